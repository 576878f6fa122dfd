"""Tests here need a CUDA GPU and compiled kernels; where one is missing each is skipped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
from poison import poison_fresh_tensors

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    usable = torch.cuda.is_available() and not triton.knobs.runtime.interpret
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not usable:
                reason = "needs a CUDA GPU, and TRITON_INTERPRET unset"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _poison_fresh_tensors(monkeypatch):
    poison_fresh_tensors(monkeypatch)


@pytest.fixture(autouse=True)
def memory_store():
    """A store of its own for each test, so that none touches the user's directory."""
    import launchkit

    store = launchkit.MemoryStore()
    with launchkit.use_store(store):
        yield store


@pytest.fixture
def place():
    """Where promises of both suites are kept: device, a dtype that is multiplied there, repeats."""
    return SimpleNamespace(device="cuda", interpreted=False, dtype=torch.bfloat16, repeats=10)
