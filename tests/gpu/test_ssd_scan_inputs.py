"""The whole scan on a GPU: the tensors that it reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from poison import poison_fresh_tensors
from ssd_cases import pin_first_configs
from ssd_promises_inputs import *  # noqa: F403  the tests that the interpreter runs too


@pytest.fixture(autouse=True)
def _one_config_and_poison(monkeypatch):
    """Pin one config a kernel, so that no test measures anything."""
    pin_first_configs(monkeypatch)
    poison_fresh_tensors(monkeypatch)


@pytest.fixture
def place():
    return SimpleNamespace(device="cuda", interpreted=False, dtype=torch.bfloat16)
