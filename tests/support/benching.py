"""A benchmark function for tests: fixed times per config, told apart by what is launched."""

import sample_kernels
import torch
import triton
from triton.runtime import errors
from triton.runtime.errors import OutOfResources

import launchkit
from launchkit import hostonly
from launchkit.errors import UsageError

BLOCKS = (16, 32, 64)

NO_CONFIG_LEFT = (UsageError, getattr(errors, "AutotunerError", UsageError))
"""What is raised where pruning leaves nothing: Triton before 3.6 does not say so itself."""


class Bench:
    """Takes the place of ``do_bench``: runs the launch, and answers by the first grid dimension.

    ``times`` maps it to a time or (median, p20, p80) in milliseconds, or to an exception to raise.
    """

    def __init__(self, times):
        self.times = times
        self.measured = []

    def __call__(self, call, quantiles):
        assert quantiles == (0.5, 0.2, 0.8)
        call()
        block = hostonly.launches()[-1].grid[0]
        self.measured.append(block)
        time = self.times[block]
        if isinstance(time, BaseException):
            raise time
        return [time] * 3 if isinstance(time, float) else time


def grid_of_block(meta):
    """A grid that shows which BLOCK a launch was made with."""
    return (meta["BLOCK"],)


def launched_block(kernel, n=64, x=None, **kwargs):
    """Launch an autotuned ``copy`` kernel with launchkit; return the BLOCK it was launched with."""
    x = torch.empty(64) if x is None else x
    launchkit.launch_autotuned(kernel, grid_of_block, x, x, n, 1, **kwargs)
    return hostonly.launches()[-1].grid[0]


def triton_block(kernel, n=64, x=None):
    """Launch an autotuned ``copy`` kernel with Triton; return the BLOCK it was launched with."""
    x = torch.empty(64) if x is None else x
    kernel[grid_of_block](x, x, n, 1)
    return hostonly.launches()[-1].grid[0]


def too_big():
    """What Triton raises for a config that needs more shared memory than there is."""
    return OutOfResources(300_000, 232_448, "shared memory")


def kernel_with(bench, blocks=BLOCKS, configs=None, key=("n",), **options):
    """The ``copy`` kernel, autotuned by launchkit over ``blocks`` or ``configs``."""
    configs = sample_kernels.configs(*blocks) if configs is None else configs
    return launchkit.autotuned(configs, list(key), do_bench=bench, **options)(sample_kernels.copy)


def triton_kernel_with(bench, blocks=BLOCKS, configs=None, key=("n",), **options):
    """The ``copy`` kernel, autotuned by Triton over ``blocks`` or ``configs``."""
    configs = sample_kernels.configs(*blocks) if configs is None else configs
    return triton.autotune(configs, list(key), do_bench=bench, **options)(sample_kernels.copy)


def kernel_by_device():
    """The ``copy`` kernel, autotuned: BLOCK=16 is the fastest on device 0, and 32 on device 1."""
    times = {0: {16: 1.0, 32: 2.0}, 1: {16: 2.0, 32: 1.0}}

    def do_bench(call, quantiles):
        call()
        launch = hostonly.launches()[-1]
        return [times[launch.device][launch.grid[0]]] * 3

    return kernel_with(do_bench, blocks=(16, 32))
