"""Launches under launchkit.install(): whether Triton's run was entered, and what was launched."""

import contextlib

from launching import counted_runs, outcome
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface

import launchkit
from launchkit import hostonly

CLASSES = (JITFunction, Autotuner, Heuristics)


@contextlib.contextmanager
def installed(**patterns):
    """Install, and count the calls of Triton's own run functions beneath."""
    with counted_runs() as runs:
        launchkit.install(**patterns)
        try:
            yield runs
        finally:
            launchkit.uninstall()


def fast(runs, call):
    """Call, which must enter no run of Triton's; return the launches that it made."""
    before = runs.total
    hostonly.clear()
    call()
    assert runs.total == before, "the launch went through Triton"
    return hostonly.launches()


def triton_launches(kernel, *args, grid=(2,), **kwargs):
    """The launches that plain Triton makes; to be called where nothing is installed."""
    result = outcome(lambda: KernelInterface.__getitem__(kernel, grid)(*args, **kwargs))
    return result if isinstance(result, type) else result[1]


def state_of_classes():
    """What Triton's kernel classes hold, function by function."""
    # Python leaves __slotnames__ on a class when an object of it is copied.
    return [
        {name: value for name, value in vars(kind).items() if name != "__slotnames__"}
        for kind in CLASSES
    ]
