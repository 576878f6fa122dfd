"""Tests that run kernels in Triton's CPU interpreter: values, without a GPU.

Triton reads TRITON_INTERPRET when a kernel is decorated, so these tests need a pytest run of
their own: ``TRITON_INTERPRET=1 pytest tests/interpreter``.
"""

from __future__ import annotations

import pytest
from poison import poison_fresh_tensors


@pytest.fixture(autouse=True)
def _only_interpreted():
    from launchkit.kernels.placement import INTERPRETED

    if not INTERPRETED:
        pytest.skip("set TRITON_INTERPRET=1 and run tests/interpreter alone")


@pytest.fixture(autouse=True)
def _poison_fresh_tensors(monkeypatch):
    poison_fresh_tensors(monkeypatch)
