"""What processes of their own do in tests: answers, deaths, errors, and starts that fail."""

import os
import signal
import sys

CALLED = []


def echo(options):
    """A role that answers with the job, its options and what was called before."""

    def handle(job):
        sys.stdout.write("a module that prints")
        if job.get("do") == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if job.get("do") == "leave":
            sys.exit(3)
        if job.get("do") == "fail for good":
            return {"fatal": True, "pid": os.getpid()}
        return {"job": job, "options": options, "called": CALLED, "pid": os.getpid(),
                "variable": os.environ.get("LAUNCHKIT_TEST_PLACE")}  # fmt: skip

    return handle


def prepare(**options):
    CALLED.append(options)


def fail_to_start(**options):
    sys.exit(7)


def pretend_to_execute():
    """Host-only mode is believed to execute, so that kernels tune with their own ``do_bench``."""
    from launchkit.dispatch import triton_seam

    triton_seam.executes = lambda: True


def note_place(kernel, arguments):
    """A function for ``--make``: notes where it is called and with what."""
    where = os.environ["CUDA_VISIBLE_DEVICES"]
    floats = float(arguments["x_ptr"].abs().sum()) > 0
    with open(os.environ["LAUNCHKIT_TEST_NOTES"], "a") as notes:
        notes.write(f"{where} {kernel} {floats}\n")
    return {"y_ptr": arguments["y_ptr"].fill_(1)}


def make_badly(kernel, arguments):
    """A function for ``--make`` that knows another kernel."""
    return {"no_such": 1}


def die(*_arguments):
    """End this process at once, without a word."""
    os._exit(1)


def throw(kind, arguments, *_arguments):
    """Raise an error of this class."""
    raise kind(*arguments)


def throw_made(error):
    """Raise this error, which came here by pickling."""
    raise error


class Unsendable(Exception):
    """An error that can be pickled but not read back: its __init__ takes other arguments."""

    def __init__(self, left, right):
        super().__init__(f"{left} and {right}")
