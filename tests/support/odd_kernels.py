"""Kernels whose parameters have odd names, kinds or values."""

import triton
import triton.language as tl

OFFSET = tl.constexpr(5)


@triton.jit
def twice(x):
    return x + x


@triton.jit
def thrice(x):
    return x + x + x


@triton.jit
def applies(x_ptr, FUNCTION: tl.constexpr):
    tl.store(x_ptr, FUNCTION(tl.load(x_ptr)))


@triton.jit
def takes_tuple(x_ptr, pair):
    tl.store(x_ptr, pair[0] + pair[1])


@triton.jit
def casts(x_ptr, DTYPE: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr).to(DTYPE).to(tl.float32))


@triton.jit
def names(x_ptr, grid, kernel, warmup, args):
    tl.store(x_ptr, grid + kernel + warmup + args)


@triton.jit
def takes_self(self, x_ptr):
    tl.store(x_ptr, self)


@triton.jit
def any_pointer(x_ptr, y_ptr):
    tl.store(y_ptr, 1.0)


@triton.jit
def constant(x_ptr, VALUE: tl.constexpr):
    tl.store(x_ptr, VALUE)


@triton.jit
def scalar(x_ptr, value):
    tl.store(x_ptr, value)


@triton.jit
def optional(x_ptr, n=3, SIZE: tl.constexpr = 16, SPLIT: tl.constexpr = 1):
    offsets = tl.arange(0, SIZE)
    tl.store(x_ptr + offsets, offsets + n + SPLIT)


@triton.jit
def reads_global(x_ptr, n):
    tl.store(x_ptr, n + OFFSET)


@triton.jit
def keyword_only(x_ptr, *, n, m=2):
    tl.store(x_ptr, n + m)


@triton.jit
def positional_only(x_ptr, n, /, m):
    tl.store(x_ptr, n + m)


@triton.jit
def labelled(x_ptr, LABEL: tl.constexpr):
    tl.store(x_ptr, 1)


@triton.jit
def split(x_ptr, y_ptr, n, m=7, BLOCK: tl.constexpr = 16, SPLIT: tl.constexpr = 1):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) + n + m + SPLIT)


@triton.jit
def builtins_named(len, type, callable, hex, id):
    tl.store(len, type + callable + hex + id)


@triton.jit
def wide(
    x_ptr, n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15, n16, n17, n18, n19,
    n20, n21, n22, n23, n24, n25, n26, n27, n28, n29, C0: tl.constexpr = 1, C1: tl.constexpr = 2,
):  # fmt: skip
    tl.store(x_ptr, n0 + n9 + n19 + n29 + C0 + C1)
