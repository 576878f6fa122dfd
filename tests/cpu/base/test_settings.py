"""Settings: what a test sets ends with the test; a blank variable is none."""

from __future__ import annotations

from dataclasses import fields

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


@pytest.mark.parametrize("declared", fields(settings.Settings), ids=lambda field: field.name)
@pytest.mark.parametrize("blank", ["", " ", "\t"], ids=["empty", "blank", "tab"])
def test_blank_variable_says_nothing(declared, blank, monkeypatch):
    variable = declared.metadata["variable"]
    monkeypatch.delenv(variable, raising=False)
    expected = getattr(settings.reload(), declared.name)
    monkeypatch.setenv(variable, blank)
    # LAUNCHKIT_INSTALL that is there and not on forbids what a plugin would do.
    assert getattr(settings.reload(), declared.name) == (
        False if variable == "LAUNCHKIT_INSTALL" else expected
    )
