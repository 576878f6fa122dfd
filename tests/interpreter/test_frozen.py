"""Frozen handles in Triton's interpreter: ordinary launches, with the same checks and values."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import launchkit
from launchkit.errors import FrozenArgumentError


@triton.jit
def scaled(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


BY_BLOCKS = launchkit.grid(launchkit.cdiv("n", "BLOCK"))
TUNED = launchkit.autotuned([triton.Config({"BLOCK": size}) for size in (16, 32)], ["n"])(scaled)


@pytest.mark.parametrize("tuned", [False, True])
def test_handle_computes_what_a_launch_computes(tuned):
    x = torch.randn(100)
    options = {} if tuned else {"BLOCK": 16}
    handle = launchkit.freeze(
        TUNED if tuned else scaled, BY_BLOCKS, x, x, 50, factor=2.5, **options,
        varying=("x_ptr", "y_ptr", "n"),
    )  # fmt: skip
    assert handle.obstacle == "TRITON_INTERPRET is set"
    for n in (50, 99, 7):
        y = torch.full((128,), float("nan"))
        handle(x, y, n)
        assert torch.equal(y[:n], x[:n] * 2.5)
        assert y[n:].isnan().all()


def test_argument_of_another_class_is_refused_as_on_a_gpu():
    x = torch.randn(100)
    handle = launchkit.freeze(scaled, BY_BLOCKS, x, x, 50, 2.0, BLOCK=16, varying=("x_ptr", "n"))
    for wrong in ((x.half(), 50), (x, 48), (x, 1), (x, 2.0), (x[1:], 50)):
        with pytest.raises(FrozenArgumentError):
            handle(*wrong)
