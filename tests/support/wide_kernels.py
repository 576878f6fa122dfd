"""A kernel whose shared memory grows with its config, and a record that says the largest one won."""

from dataclasses import replace

import sample_kernels
import triton
import triton.language as tl

import launchkit
from launchkit.configs import identify

ROWS = 16
FITS, TOO_LARGE = 256, 512
"""Values of BLOCK. The larger one is loaded ten steps ahead: more than any GPU's shared memory."""
CONFIGS = [
    *sample_kernels.configs(FITS // 2, FITS, num_stages=2),
    *sample_kernels.configs(TOO_LARGE, num_stages=10),
]


@triton.jit
def wide(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Stores sum over k < n of x[row, k] y[k, column], in 16 rows and columns."""
    rows = tl.arange(0, 16)
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((16, 16), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + inner
        x = tl.load(x_ptr + rows[:, None] * n + at[None, :], mask=at[None, :] < n, other=0.0)
        y = tl.load(y_ptr + at[:, None] * 16 + rows[None, :], mask=at[:, None] < n, other=0.0)
        total += tl.dot(x, y)
    tl.store(out_ptr + rows[:, None] * 16 + rows[None, :], total)


def tuned_wide(configs, bench):
    """The kernel, autotuned over configs."""
    return launchkit.autotuned(configs, ["n"], name="wide", do_bench=bench)(wide)


def too_large_for_this_gpu(record):
    """A record of the other two configs, as a GPU with more shared memory would have stored it."""
    config = identify(CONFIGS[2].all_kwargs())
    large = replace(record.configs[0], config=config, median_us=0.5, p20_us=0.5, p80_us=0.5)
    return replace(
        record,
        device=replace(record.device, name="A GPU with more", memory_gib=1),
        configs=(*record.configs, large),
        chosen=config,
    )
