"""Gathering initial states in Triton's interpreter."""

from __future__ import annotations

import pytest
from initial_states_promises import *  # noqa: F403  the tests that a GPU runs too


@pytest.fixture
def device():
    return "cpu"
