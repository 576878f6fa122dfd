"""The surroundings of a measurement: a GPU or the host-only driver, and no config of the user's."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
import triton
from triton import knobs

import launchkit
from launchkit import hostonly
from launchkit.benchmarks import noop_kernels
from launchkit.errors import UsageError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


@contextmanager
def measuring(record: bool = False) -> Iterator[bool]:
    """Measure on the current CUDA device if there is one, else on the host-only driver.

    Yields whether there is a GPU. Within the block nothing is read from or kept in the user's
    store. ``record``: whether the host-only driver records the launches.
    """
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # Triton 3.9 announces a default of 3.10; whoever measures launches need not choose.
        warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION is unset")
        cuda = torch.cuda.is_available() and not hostonly.is_active()
        if not cuda:
            stack.enter_context(hostonly.activate())
            stack.enter_context(hostonly.recording(record))
        stack.enter_context(launchkit.use_store("memory:"))
        yield cuda


def refuse_launch_hooks() -> None:
    """Raise UsageError if another tool's launch hook would be timed along."""
    for hook in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        if getattr(hook, "calls", hook):
            raise UsageError(
                "a Triton launch hook is installed, whose cost would be measured as the launch's. "
                "Run the benchmark without the profiler that installed it."
            )


def drain_for(cuda: bool) -> Callable[[], None]:
    """Return what waits for the GPU: nothing where the host-only driver executes nothing."""
    return torch.cuda.synchronize if cuda else lambda: None


@contextmanager
def installed(include: str = "*") -> Iterator[None]:
    """Launch Triton's kernels through launchkit: all, or those of a pattern."""
    launchkit.install(include=include)
    try:
        yield
    finally:
        launchkit.uninstall()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread: threads that wait for a core would be most of its time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def core_seen() -> str:
    """Return which core launches take here, ``c`` or ``python``, as two launches show.

    Resets ``launchkit.stats()``: that of C alone counts fast launches without being asked.
    """
    kernel = triton.jit(noop_kernels.noop_0.fn)
    launchkit.stats(reset=True)
    for _ in range(2):
        launchkit.launch(kernel, (1,))
    (row,) = launchkit.stats(reset=True).values()
    return "python" if row.fast is None else "c"


def keep_freed_memory() -> bool:
    """Make the C library keep what is freed, for the rest of the process, as torch does on a GPU.

    An op on the host-only driver takes its workspace from the C library, which by default
    returns large blocks to the system and maps them again: a cost that no GPU tensor has.
    Returns whether it could: some C libraries have no such option.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, -1))
