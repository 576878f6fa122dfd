"""Settings: what a test sets ends with the test."""

from __future__ import annotations

import pytest

from launchkit import settings


@pytest.fixture(scope="module", autouse=True)
def settings_of_the_process():
    settings.reload()
    before = settings.current()
    yield
    assert settings.current() == before


def test_setting_made_last_in_a_test_is_not_in_force_after_it(monkeypatch):
    before = settings.current().verify
    monkeypatch.setenv("LAUNCHKIT_VERIFY", "0" if before else "1")
    assert settings.reload().verify is not before
