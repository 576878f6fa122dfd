"""Small Triton kernels for the tests: one of each kind of parameter that a guard must tell apart."""

import triton
import triton.language as tl

SCALE = tl.constexpr(3)


@triton.jit
def helper(x):
    return x + SCALE


@triton.jit
def copy(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)


@triton.jit
def mixed(a_ptr, b_ptr, n, flag, alpha, MODE: tl.constexpr, SIZE: tl.constexpr = 16):
    offsets = tl.arange(0, SIZE)
    value = tl.zeros((SIZE,), dtype=tl.float32)
    if a_ptr is not None:
        value += tl.load(a_ptr + offsets)
    if flag:
        value *= alpha
    if MODE == "shift":
        value += n
    tl.store(b_ptr + offsets, value)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x_ptr"])
def unspecialized(x_ptr, y_ptr, n, m):
    tl.store(y_ptr + m, tl.load(x_ptr + n))


@triton.jit
def typed(x_ptr, n: tl.int64, m: tl.int32, alpha: tl.float32, half: tl.float16, double: tl.float64):
    value = alpha + half.to(tl.float32) + double.to(tl.float32) + n + m
    tl.store(x_ptr, value)


@triton.jit
def calls_helper(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, helper(tl.load(x_ptr + offsets)))


def configs(*blocks, **options):
    return [triton.Config({"BLOCK": block}, **options) for block in blocks]


def plain():
    """``copy`` as a kernel of its own, which nothing has been launched of."""
    return triton.jit(copy.fn)


@triton.jit
def adds(x_ptr, y_ptr, n, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """Store x + 1, but for the last ``WRONG`` elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n - WRONG
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1.0, mask=mask)
