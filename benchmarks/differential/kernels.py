"""Kernels of ``launchkit bench differential``: each kind of parameter, and little to compile."""

# Triton kernels have no types for their parameters.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def tensors(x_ptr, y_ptr, z_ptr, n, scale=1.0):
    """Take tensors of any dtype and alignment, a number and a float with a default."""


@triton.jit
def integers(x_ptr, n, m, stride):
    """Take integers, of which Triton folds 1 and notes the width and divisibility by 16."""
    tl.store(x_ptr + stride, (n + m).to(tl.float32))


@triton.jit
def scalars(a_ptr, b_ptr, n, flag, alpha, MODE: tl.constexpr, SIZE: tl.constexpr = 16):
    """Take what may be None, truth values, floats, and constants with and without a default."""
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
    """Take a number and a pointer of which Triton must not note the value or alignment."""
    tl.store(y_ptr + m, tl.load(x_ptr + n))


@triton.jit
def typed(x_ptr, n: tl.int64, m: tl.int32, alpha: tl.float32, half: tl.float16, double: tl.float64):
    """Take numbers of declared types, to which the launcher converts what it gets."""
    tl.store(x_ptr, alpha + half.to(tl.float32) + double.to(tl.float32) + n + m)


@triton.jit
def blocked(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    """Copy ``n`` elements, in blocks whose size a config or a heuristic may supply."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)


@triton.jit
def reduced(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 1024):
    """Sum up across warps: it takes dynamic shared memory, whatever the options are."""
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n), axis=0))


@triton.jit
def doubled(x):
    """Return twice ``x``: a function that a kernel takes as a constant."""
    return x + x


@triton.jit
def constants(x_ptr, A: tl.constexpr, B: tl.constexpr = None, n=1):
    """Take constants of any type."""


@triton.jit
def anything(value, other=None, n=7):
    """Take values that launchkit leaves to Triton."""


def fresh(kernel: Any) -> Any:
    """Return a new kernel of the same function and specialization, that nobody has launched."""
    return triton.jit(
        kernel.fn,
        do_not_specialize=kernel.do_not_specialize,
        do_not_specialize_on_alignment=kernel.do_not_specialize_on_alignment,
    )
