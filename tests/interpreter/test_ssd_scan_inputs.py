"""The whole scan in Triton's interpreter: the tensors that it reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from ssd_promises_inputs import *  # noqa: F403  the tests that a GPU runs too


@pytest.fixture
def place():
    return SimpleNamespace(device="cpu", interpreted=True, dtype=torch.float32)
