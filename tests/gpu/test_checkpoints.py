"""Stored checkpoints on a GPU."""

from __future__ import annotations

import pytest
from checkpoint_promises import *  # noqa: F403  the tests that the interpreter runs too
from ssd_cases import pin_first_configs


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config a kernel, so that no test measures anything."""
    pin_first_configs(monkeypatch)
