"""Tests that run kernels in Triton's CPU interpreter: values, without a GPU.

Triton reads TRITON_INTERPRET when a kernel is decorated, so these tests need a pytest run of
their own: ``TRITON_INTERPRET=1 pytest tests/interpreter``.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from poison import poison_fresh_tensors

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    # How Triton 3.6's interpreter reads scalars; NumPy 2.4 makes it an error.
    scalars = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(scalars)


@pytest.fixture(autouse=True)
def _only_interpreted():
    from launchkit.kernels.placement import INTERPRETED

    if not INTERPRETED:
        pytest.skip("set TRITON_INTERPRET=1 and run tests/interpreter alone")


@pytest.fixture(autouse=True)
def _poison_fresh_tensors(monkeypatch):
    poison_fresh_tensors(monkeypatch)


@pytest.fixture
def place():
    """Where promises of both suites are kept: device, a dtype that is multiplied there, repeats."""
    return SimpleNamespace(device="cpu", interpreted=True, dtype=torch.float32, repeats=1)
