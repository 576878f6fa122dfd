"""Ops of two small launches each, and how to compare what a call launched with another call."""

import math

import sample_kernels
import torch
import triton

import launchkit
from launchkit import hostonly

BLOCK = 16


def copy_twice(
    x, out, scale=1.0, mode="plain", shift=None, limits=(0.0, math.inf), *, times=1, like=None
):
    """Copy x into out by way of memory of its own; the rest only makes kinds of calls."""
    n = x.numel()
    between = torch.empty(n, dtype=x.dtype, device=x.device)
    copy(x, between, n, x.stride(0) if x.dim() else 1)
    for _ in range(times):
        copy(between, out, n, 1)


def copy(x, y, n, stride):
    grid = (triton.cdiv(n, BLOCK),)
    launchkit.launch(sample_kernels.copy, grid, x, y, n, stride, BLOCK=BLOCK)


def counted(function):
    """Return a planned op that runs ``function``, and the list that grows with each run."""
    runs = []

    def op(
        x, out, scale=1.0, mode="plain", shift=None, limits=(0.0, math.inf), *, times=1, like=None
    ):
        runs.append(None)
        return function(x, out, scale, mode, shift, limits, times=times, like=like)

    return launchkit.planned(op), runs


def launched(call):
    """Return what a call returned, and what it launched."""
    hostonly.clear()
    result = call()
    return result, hostonly.launches()


def same_launches(seen, expected):
    """Whether two lists of launches are equal but for memory that each call allocates.

    Returns the addresses of the first by those of the second where they differ.
    """
    assert len(seen) == len(expected) > 0
    moved = {}
    for one, other in zip(seen, expected, strict=True):
        for name in ("kernel", "function", "grid", "block", "shared_bytes", "stream"):
            assert getattr(one, name) == getattr(other, name), name
        assert (one.attributes, one.device) == (other.attributes, other.device)
        assert [len(param) for param in one.params] == [len(param) for param in other.params]
        for mine, theirs in zip(one.params, other.params, strict=True):
            if mine != theirs:
                assert len(mine) == 8
                place, before = (int.from_bytes(each, "little") for each in (mine, theirs))
                assert moved.setdefault(before, place) == place
    assert len(set(moved.values())) == len(moved)
    return moved
