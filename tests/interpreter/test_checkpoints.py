"""Stored checkpoints in Triton's interpreter."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from checkpoint_promises import *  # noqa: F403  the tests that a GPU runs too


@pytest.fixture
def place():
    return SimpleNamespace(device="cpu", interpreted=True, dtype=torch.float32)
