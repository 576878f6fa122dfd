"""What workers do in tests: answers, deaths, and starts that fail."""

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
