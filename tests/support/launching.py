"""What a launch did: what was recorded, and whether Triton's own run was taken."""

import contextlib
import functools
from dataclasses import dataclass

import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

import launchkit
from launchkit import hostonly


@dataclass
class Runs:
    """How often each of Triton's two run functions was called."""

    autotuner: int = 0
    jit: int = 0

    @property
    def total(self):
        return self.autotuner + self.jit


@contextlib.contextmanager
def counted_runs():
    """Count the calls of Autotuner.run and JITFunction.run inside the block."""
    runs = Runs()
    tuner_run, jit_run = Autotuner.run, JITFunction.run

    @functools.wraps(tuner_run, updated=())  # what install() marks, this is not
    def counted_tuner_run(self, *args, **kwargs):
        runs.autotuner += 1
        return tuner_run(self, *args, **kwargs)

    @functools.wraps(jit_run, updated=())
    def counted_jit_run(self, *args, **kwargs):
        runs.jit += 1
        return jit_run(self, *args, **kwargs)

    Autotuner.run, JITFunction.run = counted_tuner_run, counted_jit_run
    try:
        yield runs
    finally:
        Autotuner.run, JITFunction.run = tuner_run, jit_run


def outcome(call):
    """What a call came to: the kernel it returned and the launches it made, or its exception's type."""
    hostonly.clear()
    try:
        compiled = call()
    except Exception as error:  # the type is what is compared
        return type(error)
    return compiled, hostonly.launches()


def launch_as_triton(kernel, *args, grid=(2,), **kwargs):
    """Launch with launchkit twice and with Triton; return what all three came to."""
    first = outcome(lambda: launchkit.launch(kernel, grid, *args, **kwargs))
    second = outcome(lambda: launchkit.launch(kernel, grid, *args, **kwargs))
    triton_outcome = outcome(lambda: triton_launch(kernel, grid, args, kwargs))
    assert first == triton_outcome, (first, triton_outcome)
    assert second == triton_outcome, (second, triton_outcome)
    return triton_outcome


def triton_launch(kernel, grid, args, kwargs):
    """Launch through Triton's own ``kernel[grid]``, whatever launchkit made of the kernel."""
    return triton.runtime.jit.KernelInterface.__getitem__(kernel, grid)(*args, **kwargs)


def hit(kernel, *args, grid=(2,), **kwargs):
    """Launch with launchkit, which must take its shortcut; return the recorded launch."""
    hostonly.clear()
    with counted_runs() as runs:
        launchkit.launch(kernel, grid, *args, **kwargs)
    assert runs.total == 0, "the launch went through Triton"
    (launch,) = hostonly.launches()
    return launch


def plans(kernel):
    """How many plans a kernel holds."""
    return len(kernel._launchkit_entry._core)


def compiled_by(monkeypatch, module, wrapper, *problems):
    """Return the compiled kernel of each problem, keyword arguments of a ``wrapper`` of ``module``.

    The wrapper makes one launch a call.
    """
    seen = []
    launch = module.launch_autotuned
    with monkeypatch.context() as patch:
        patch.setattr(
            module, "launch_autotuned", lambda *args, **kwargs: seen.append(launch(*args, **kwargs))
        )
        for problem in problems:
            wrapper(**problem)
    return seen
