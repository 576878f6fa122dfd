"""Recording a manifest in one host-only session, for another session that has compiled nothing."""

import contextlib

import manifest_kernels as kernels
import torch
from descriptor_kernels import copy_block
from launching import counted_runs
from triton.tools.tensor_descriptor import TensorDescriptor

import launchkit
from launchkit import hostonly

X = torch.arange(96.0)
ODD = torch.arange(97.0)[1:]


def tiles():
    return TensorDescriptor.from_tensor(torch.zeros(32, 32), [16, 16])


LAUNCHES = {
    "plain": lambda: kernels.plain[(2,)](X, X, 64, 1, 0.5, BLOCK=16),
    "at an odd place": lambda: kernels.plain[(2,)](ODD, X, 64, 1, 0.5, BLOCK=16),
    "with options": lambda: kernels.plain[(2,)](X, X, 65, 2, 0.5, BLOCK=16, num_warps=2),
    "autotuned": lambda: kernels.tuned[kernels.grid_of_block](X, X, 64, 1),
    "heuristics": lambda: kernels.layered[kernels.grid_of_block](X, None, 64),
    "heuristics, others": lambda: kernels.layered[kernels.grid_of_block](X, X, 65),
    "a function": lambda: kernels.with_function[(1,)](X, 16, kernels._double, BLOCK=16),
    "a tuple": lambda: kernels.with_tuple[(1,)]((X, 3), BLOCK=16),
    "a descriptor": lambda: copy_block[(1,)](tiles(), X, 0, 0, ROWS=16, COLUMNS=16),
}


@contextlib.contextmanager
def session(cache_dir):
    """Host-only mode in which no kernel has been compiled, with a disk cache of its own.

    Plain kernels launch through launchkit, too.
    """
    with hostonly.activate(devices=2, cache_dir=cache_dir):
        hostonly.clear()
        kernels.tuned.cache.clear()
        kernels.layered.fn.cache.clear()
        launchkit.install()
        try:
            yield
        finally:
            launchkit.uninstall()


def record(path, cache_dir, *names):
    """Make launches in a session of their own, and record them."""
    with session(cache_dir), launchkit.record_manifest(path):
        for name in names or LAUNCHES:
            LAUNCHES[name]()


def first_launch(name):
    """Make a launch; return what was compiled or tuned, and how often Triton's own run was taken."""
    with launchkit.watch_compiles(log=False) as seen, counted_runs() as runs:
        LAUNCHES[name]()
    return seen.events, runs.total
