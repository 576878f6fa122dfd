"""Errors arrive whole in another process: type, message and fields."""

from __future__ import annotations

import pickle

import pytest

from launchkit import errors

MADE = [
    errors.UsageError("say it", option="key", unknown=["a"]),
    errors.NotAutotunedError("a.kernel"),
    errors.CompilerError("no compiler", reason="no_compiler", compiler=None),
    errors.HostOnlyError("no compiler", reason="no_compiler"),
    errors.CaptureError("a.kernel"),
    errors.TuningFailedError("a.kernel", {"BLOCK=1": "too big"}),
    errors.VerifyError("differs", kernel="a.kernel"),
    errors.UnfingerprintableError("key", "no text"),
    errors.StoreError("no such place"),
    errors.BadDocumentError("a.json", "not JSON", newer=True),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_error_survives_pickling_with_its_fields(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.fields == error.fields


def test_every_error_is_listed_in_the_module_and_tried_here():
    classes = {
        value for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    }  # fmt: skip
    assert {type(error) for error in MADE} == classes - {errors.LaunchkitError}
    for cls in classes:
        assert cls.__name__ in errors.__doc__
