"""Errors arrive whole in another process: type, message and fields."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from threading import Lock

import job_roles
import pytest

from launchkit import errors

CLASSES = [
    value for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, Exception)
]  # fmt: skip

MADE = [
    errors.LaunchkitError("say it", what="this"),
    errors.UsageError("say it", option="key", unknown=["a"]),
    errors.NotAutotunedError("a.kernel"),
    errors.MissingManifestError("none.json"),
    errors.GridError("no grid", dimensions=0),
    errors.GridNameError("'K'", "K", ("M", "N")),
    errors.GridValueError("cdiv('M', 'B')", "cdiv", 0, "divides by zero"),
    errors.FrozenArgumentError("a.kernel", "n", "an int other than 1", "1"),
    errors.CompilerError("no compiler", reason="no_compiler", compiler=None),
    errors.HostOnlyError("no compiler", reason="no_compiler"),
    errors.MixedDevicesError("a.kernel", {"x_ptr": 0, "y_ptr": 1}),
    errors.CaptureError("a.kernel"),
    errors.CaptureError(None),
    errors.NotTunedError("a.kernel", "n=1", "absent", "nothing is stored"),
    errors.TuningFailedError("a.kernel", {"BLOCK=1": "too big"}),
    errors.TuningStoppedError("a.kernel", "BLOCK=1", "an illegal memory access"),
    errors.ProtectionError("a.kernel", 2**40, "cuda:0"),
    errors.VerifyError("differs", kernel="a.kernel"),
    errors.UnexpectedCompileError("a.kernel", "compilation", "n became 1"),
    errors.AgreementError("rank 3 died", silent=(3,), conflicts=("a.kernel n=4",)),
    errors.MissingExtraError("profile", "polars"),
    errors.TimelineError("a.sqlite", "it is empty", "Export it again."),
    errors.UnfingerprintableError("key", "no text"),
    errors.StoreError("no such place"),
    errors.ServiceError("https://host/team", "refused", "refused it", status=429, retry_after_s=2),
    errors.BadDocumentError("a.json", "not JSON", newer=True),
    errors.BadBundleError("a.bundle", "entry 2 is broken"),
    errors.BadLockError("launchkit.lock", "its digest differs"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_error_survives_pickling_with_its_fields(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.fields == error.fields


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as made:
        yield made


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_error_raised_in_a_process_of_a_pool_arrives_whole(error, pool):
    with pytest.raises(type(error)) as caught:
        pool.submit(job_roles.throw_made, error).result()
    assert type(caught.value) is type(error)
    assert vars(caught.value) == vars(error)
    assert str(caught.value) == str(error)


class Unspeakable:
    """Can neither be pickled nor described."""

    def __reduce__(self):
        raise RuntimeError("never")

    def __repr__(self):
        raise RuntimeError("never")


@pytest.mark.parametrize(
    "value", [lambda: None, Lock(), Unspeakable(), job_roles.Unsendable(1, 2), {"deep": Lock()}],
    ids=["function", "lock", "unspeakable", "unsendable", "nested"],
)  # fmt: skip
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_field_that_cannot_be_pickled_arrives_as_text(cls, value):
    error = cls.__new__(cls)
    errors.LaunchkitError.__init__(error, "say it", kernel="a.kernel", value=value)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.fields["kernel"]) == (cls, "say it", "a.kernel")
    arrived = copy.fields["value"]
    assert isinstance(arrived["deep"] if isinstance(value, dict) else arrived, str)


class Worded(errors.StoreError):
    """A user's own, whose __init__ takes what its fields do not hold."""

    def __init__(self, place, *, tries):
        super().__init__(f"{place} after {tries} tries")
        self.tries = tries


def test_a_subclass_with_an_init_of_its_own_survives_pickling():
    copy = pickle.loads(pickle.dumps(Worded("here", tries=3)))
    assert (type(copy), str(copy), copy.tries) == (Worded, "here after 3 tries", 3)


def test_every_error_is_listed_in_the_module_and_tried_here():
    assert {type(error) for error in MADE} == set(CLASSES)
    for cls in CLASSES:
        assert cls.__name__ in errors.__doc__
