"""Tensor descriptors in a frozen launch: the parameters that Triton's own launch passes."""

from __future__ import annotations

import functools

import descriptor_kernels
import pytest
import torch
from launching import counted_runs, outcome, triton_launch
from triton.tools.tensor_descriptor import TensorDescriptor

import launchkit
from launchkit import hostonly, settings
from launchkit.errors import VerifyError

pytestmark = pytest.mark.usefixtures("each_core")


@pytest.fixture(params=[80, 90], ids=["decomposed", "tensor map"])
def arch(request):
    with hostonly.activate(arch=request.param):
        hostonly.clear()
        yield request.param


def descriptor(**options):
    return TensorDescriptor.from_tensor(
        torch.empty(96, 64, dtype=torch.float16), [32, 16], **options
    )


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_frozen_descriptor_launches_as_in_triton(arch, padding, each_core, monkeypatch):
    source, out = descriptor(padding=padding), torch.empty(32 * 16, dtype=torch.float16)
    handle = launchkit.freeze(
        descriptor_kernels.copy_block, lambda meta: (meta["row"],), source, out, 3, 5, 32, 16,
        varying=["out_ptr", "row"],
    )  # fmt: skip
    assert handle.obstacle is None
    if each_core == "c":
        monkeypatch.setattr(type(handle), "_call", None)  # the C core makes the launch
    for row in (3, 7, 33):
        other = torch.empty_like(out)
        args = (source, other, row, 5, 32, 16)
        kernel, grid = descriptor_kernels.copy_block, (row,)
        expected = outcome(functools.partial(triton_launch, kernel, grid, args, {}))
        with counted_runs() as runs:
            assert outcome(functools.partial(handle, other, row)) == expected
        assert runs.total == 0
        (launch,) = expected[1]
        assert len(launch.params[0]) == (128 if arch == 90 else 8)
        assert any(launch.params[0])


def test_frozen_descriptor_is_a_snapshot(arch):
    source, out = descriptor(), torch.empty(32 * 16, dtype=torch.float16)
    source.shape = list(source.shape)
    handle = launchkit.freeze(descriptor_kernels.copy_block, (1,), source, out, 3, 5, 32, 16)
    handle()
    source.shape[0] = 48
    source.base = torch.empty(96, 64, dtype=torch.float16)
    handle()
    first, second = hostonly.launches()
    assert first == second


def test_descriptor_cannot_vary(arch):
    out = torch.empty(32 * 16, dtype=torch.float16)
    with pytest.raises(launchkit.errors.UsageError, match=r"source of .* is a TensorDescriptor"):
        launchkit.freeze(
            descriptor_kernels.copy_block, (1,), descriptor(), out, 3, 5, 32, 16, varying="source"
        )


def test_verified_handle_passes_and_a_descriptor_that_changed_is_told(arch, each_core, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
    settings.reload()
    source, out = descriptor(), torch.empty(32 * 16, dtype=torch.float16)
    source.shape = list(source.shape)
    handle = launchkit.freeze(
        descriptor_kernels.copy_block, (2,), source, out, 3, 5, 32, 16, varying=["row"]
    )
    for row in (3, 7):
        hostonly.clear()
        handle(row)
        (launched,) = hostonly.launches()
        assert launched.grid == (2, 1, 1)
    if each_core == "c":  # without it the descriptor is encoded at each call, and not compared
        handle._plan.values["source"].shape[0] = 48
        hostonly.clear()
        with pytest.raises(VerifyError, match="of source instead of") as caught:
            handle(3)
        assert caught.value.fields["parameter"] == "source"
        assert hostonly.launches() == []
