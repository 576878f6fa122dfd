"""Tests run away from the checkout, as users do: launchkit is the installed one everywhere."""

from __future__ import annotations

import logging
import os

import pytest
from postgres import postgres, postgres_url  # noqa: F401  fixtures

try:
    import hypothesis
except ImportError:  # tests on a GPU do without
    pass
else:
    # How long an example takes is the machine's affair.
    hypothesis.settings.register_profile("launchkit", deadline=None)
    hypothesis.settings.load_profile("launchkit")


def pytest_make_parametrize_id(val):
    """Packed bytes hold the time: each process would name a test of them otherwise."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture(scope="session", autouse=True)
def away_from_the_checkout(tmp_path_factory):
    """A Python started in the checkout would find launchkit/ there, without what is mapped in."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


@pytest.fixture(autouse=True)
def logs_as_before():
    """A test that silences the log would make those after it fail, or find nothing wrong."""
    log = logging.getLogger("launchkit")
    before = (log.level, log.disabled, log.propagate, logging.root.manager.disable)
    yield
    assert (log.level, log.disabled, log.propagate, logging.root.manager.disable) == before
