"""The whole scan in Triton's interpreter: the tensors that it reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from ssd_promises_inputs import *  # noqa: F403  the tests that a GPU runs too

# How Triton 3.6's interpreter reads scalars; NumPy 2.4 makes it an error.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@pytest.fixture
def place():
    return SimpleNamespace(device="cpu", interpreted=True, dtype=torch.float32)
