"""Kernels that do nothing, with 0, 19 and 46 arguments: what is left is the cost of a launch."""

# Triton kernels have no types for their parameters.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def noop_0():
    """Do nothing, without arguments."""


@triton.jit
def noop_19(
    p0, p1, p2, p3, p4, n0, n1, n2, n3, n4, n5, n6, n7,
    C0: tl.constexpr, C1: tl.constexpr, C2: tl.constexpr,
    C3: tl.constexpr, C4: tl.constexpr, C5: tl.constexpr,
    BLOCK_M: tl.constexpr = 32, BLOCK_N: tl.constexpr = 32,
):  # fmt: skip
    """Do nothing, with 5 pointers, 8 integers and 6 constants."""


@triton.jit
def noop_46(
    p0, p1, p2, p3, p4, p5, p6, p7, p8, p9,
    n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13,
    n14, n15, n16, n17, n18, n19, n20, n21, n22, n23, n24, n25, n26, n27,
    C0: tl.constexpr, C1: tl.constexpr, C2: tl.constexpr, C3: tl.constexpr,
    C4: tl.constexpr, C5: tl.constexpr, C6: tl.constexpr, C7: tl.constexpr,
    BLOCK_M: tl.constexpr = 32, BLOCK_N: tl.constexpr = 32,
):  # fmt: skip
    """Do nothing, with 10 pointers, 28 integers and 8 constants."""
