"""Tests that run kernels in Triton's CPU interpreter: values, without a GPU.

Triton reads TRITON_INTERPRET when a kernel is decorated, so these tests need a pytest run of
their own: ``TRITON_INTERPRET=1 pytest tests/interpreter``.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")


@pytest.fixture(autouse=True)
def _only_interpreted():
    from launchkit.kernels.placement import INTERPRETED

    if not INTERPRETED:
        pytest.skip("set TRITON_INTERPRET=1 and run tests/interpreter alone")


def poisoned(allocate):
    """Return ``allocate`` with NaN in what it makes."""

    def wrapper(*args, **kwargs):
        tensor = allocate(*args, **kwargs)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    return wrapper


@pytest.fixture(autouse=True)
def _poison_fresh_tensors(monkeypatch):
    """Fill what a wrapper allocates with NaN, so that an element left unwritten is seen."""
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
