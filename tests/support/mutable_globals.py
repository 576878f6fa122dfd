"""Kernels that read globals which can change in place."""

import triton
import triton.language as tl

LISTED = tl.constexpr([1, 2])
NESTED = tl.constexpr((1, [2, [3]]))
MAPPED = tl.constexpr({"offset": 1})
MEMBERS = tl.constexpr({1, 2})
EMPTY = tl.constexpr([])


@triton.jit
def listed(x_ptr, n):
    tl.store(x_ptr, n + LISTED[0])


@triton.jit
def nested(x_ptr, n):
    tl.store(x_ptr, n + NESTED[0])


@triton.jit
def mapped(x_ptr, n):
    tl.store(x_ptr, n)
    tl.static_assert(MAPPED is not None)


@triton.jit
def members(x_ptr, n):
    tl.store(x_ptr, n)
    tl.static_assert(MEMBERS is not None)


@triton.jit
def empty(x_ptr, n):
    tl.store(x_ptr, n)
    tl.static_assert(EMPTY is not None)
