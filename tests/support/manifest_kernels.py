"""Kernels that another process can import: plain, autotuned, with heuristics, with descriptors."""

import os
import signal

import triton
import triton.language as tl

import launchkit


@triton.jit
def _double(x):
    return x * 2


@triton.jit
def plain(x_ptr, y_ptr, n, stride, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i * stride, tl.load(x_ptr + i, mask=i < n) * scale, mask=i < n)


@triton.jit
def with_function(x_ptr, n, ACT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, ACT(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


@triton.jit
def with_tuple(pair, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(pair[0] + i, tl.load(pair[0] + i) + pair[1])


@triton.jit
def with_nothing(pair):
    pass


def measure(call, quantiles=None):
    """Stands for do_bench: run the launch once, and say that BLOCK=32 is the fastest."""
    from launchkit import hostonly

    call()
    block = hostonly.launches()[-1].grid[0]
    MEASURED.append(block)
    if len(MEASURED) == int(os.environ.get("LAUNCHKIT_TEST_DIE_AT", 0)):
        os.kill(os.getpid(), signal.SIGKILL)
    time = abs(block - 32) + 1.0
    return [time, time, time]


MEASURED = []

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=2) for block in (16, 32, 64)]


@launchkit.autotuned(CONFIGS, ["n"], name="manifest.tuned", do_bench=measure)
@triton.jit
def tuned(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i * stride, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.heuristics({"HAS_BIAS": lambda args: args["bias_ptr"] is not None})
@launchkit.autotuned(CONFIGS, ["n"], do_bench=measure)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def layered(x_ptr, bias_ptr, n, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i) if EVEN else tl.load(x_ptr + i, mask=i < n)
    if HAS_BIAS:
        x += tl.load(bias_ptr + i, mask=i < n)
    tl.store(x_ptr + i, x, mask=i < n)


def grid_of_block(meta):
    """A grid that shows which BLOCK a launch was made with."""
    return (meta["BLOCK"],)
