"""Copies between addresses in Triton's interpreter."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from copy_bytes_promises import *  # noqa: F403  the tests that a GPU runs too


@pytest.fixture
def place():
    return SimpleNamespace(device="cpu", interpreted=True, repeats=1)
