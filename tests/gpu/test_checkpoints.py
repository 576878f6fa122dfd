"""Stored checkpoints on a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from checkpoint_promises import *  # noqa: F403  the tests that the interpreter runs too
from ssd_cases import pin_first_configs


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config a kernel, so that no test measures anything."""
    pin_first_configs(monkeypatch)


@pytest.fixture
def place():
    return SimpleNamespace(device="cuda", interpreted=False, dtype=torch.bfloat16)
