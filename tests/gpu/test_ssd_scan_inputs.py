"""The whole scan on a GPU: the tensors that it reads."""

from __future__ import annotations

import pytest
from ssd_cases import pin_first_configs
from ssd_promises_inputs import *  # noqa: F403  the tests that the interpreter runs too


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config a kernel, so that no test measures anything."""
    pin_first_configs(monkeypatch)
