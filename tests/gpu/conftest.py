"""Tests here need a CUDA GPU; without one each is skipped, with that as its reason."""

from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if "/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@pytest.fixture(autouse=True)
def memory_store():
    """A store of its own for each test, so that none touches the user's directory."""
    import launchkit

    store = launchkit.MemoryStore()
    with launchkit.use_store(store):
        yield store
