"""watch_compiles(): every compilation and tuning after a point, with the argument that is its cause."""

from __future__ import annotations

import logging

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from installing import state_of_classes
from sample_kernels import plain
from threads import in_threads

import launchkit
from launchkit import hostonly
from launchkit.dispatch import watching
from launchkit.errors import UnexpectedCompileError, UsageError

X = torch.empty(128)


@pytest.fixture(autouse=True)
def quiet(host):
    yield
    launchkit.uninstall()


@pytest.fixture(params=["triton", "launchkit", "installed"])
def start(request):
    """``kernel[grid]`` in three ways."""
    if request.param == "installed":
        launchkit.install()
    if request.param == "launchkit":
        return lambda kernel: lambda *args, **kw: launchkit.launch(kernel, (1,), *args, **kw)
    return lambda kernel: kernel[(1,)]


WARM = (X, X, 32, 2)
CHANGES = {
    "int equal to 1": ((X, X, 32, 1), {}, ["stride became 1"]),
    "int divisible": ((X, X, 32, 16), {}, ["stride is now divisible by 16"]),
    "int not divisible": ((X, X, 33, 2), {}, ["n is no longer divisible by 16"]),
    "wide int": ((X, X, 32, 2**40 + 1), {}, ["stride needs another integer width"]),
    "alignment": ((X[1:], X, 32, 2), {}, ["x_ptr is no longer aligned to 16 bytes"]),
    "dtype": ((X, X.half(), 32, 2), {}, ["y_ptr has a new dtype"]),
    "constexpr": (WARM, {"BLOCK": 64}, ["BLOCK has a new constexpr value"]),
    "option": (WARM, {"num_warps": 8}, ["num_warps changed"]),
    "two at once": (
        (X, X, 31, 1), {}, ["n is no longer divisible by 16", "stride became 1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_changed_class_is_named(what, start):
    args, options, expected = CHANGES[what]
    launch = start(plain())
    launch(*WARM, BLOCK=16)
    with launchkit.watch_compiles() as seen:
        launch(*WARM, BLOCK=16)
        launch(X, X, 48, 3, BLOCK=16)  # other values of the same classes
        assert seen.events == []
        launch(*args, **{"BLOCK": 16, **options})
        launch(*args, **{"BLOCK": 16, **options})
    (event,) = seen.events
    assert (event.kernel, event.kind, event.first) == ("sample_kernels.copy", "compilation", False)
    assert [f"{each.argument} {each.change}" for each in event.changes] == expected


def test_nearest_variant_is_the_one_that_is_compared_with(start):
    launch = start(plain())
    launch(X, X, 33, 1, BLOCK=16)
    launch(X, X, 32, 2, BLOCK=64, num_warps=8)
    with launchkit.watch_compiles() as seen:
        launch(X, X, 33, 3, BLOCK=16)
    ((change,),) = (event.changes for event in seen.events)
    assert str(change) == "stride is no longer 1 (1 → i32)"


def test_first_compilation_of_a_kernel_says_so(start):
    with launchkit.watch_compiles() as seen:
        start(plain())(*WARM, BLOCK=16)
    (event,) = seen.events
    assert event.first
    assert event.changes == ()
    assert str(event) == "compilation of sample_kernels.copy: its first on this device"


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [(None, X, "a_ptr is no longer None"), (X, None, "a_ptr became None")],
)
def test_optional_tensor_is_named(before, after, change):
    kernel = triton.jit(sample_kernels.mixed.fn)
    kernel[(1,)](before, X, 3, True, 1.5, "none")
    with launchkit.watch_compiles() as seen:
        kernel[(1,)](after, X, 3, True, 1.5, "none")
    (event,) = seen.events
    assert [f"{each.argument} {each.change}" for each in event.changes] == [change]


def test_float_where_an_int_was_is_named():
    kernel = triton.jit(odd_kernels.scalar.fn)
    kernel[(1,)](X, 3)
    with launchkit.watch_compiles() as seen:
        kernel[(1,)](X, 3.5)
    ((change,),) = (event.changes for event in seen.events)
    assert str(change) == "value has a new type (i32 → fp32)"


def test_member_of_a_tuple_is_seen():
    kernel = triton.jit(odd_kernels.takes_tuple.fn)
    kernel[(1,)](X, (3, 5))
    with launchkit.watch_compiles() as seen:
        kernel[(1,)](X, (3, 1))
    (event,) = seen.events
    assert [each.argument for each in event.changes] == ["pair"]


def test_function_as_a_constexpr_does_not_disturb():
    kernel = triton.jit(odd_kernels.applies.fn)
    kernel[(1,)](X, odd_kernels.twice)
    with launchkit.watch_compiles() as seen:
        kernel[(1,)](X, odd_kernels.thrice)
    (event,) = seen.events
    assert [each.argument for each in event.changes] == ["FUNCTION"]


def test_events_are_logged_and_need_not_be(caplog):
    with caplog.at_level(logging.WARNING), launchkit.watch_compiles(log=False):
        plain()[(1,)](*WARM, BLOCK=16)
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING), launchkit.watch_compiles():
        plain()[(1,)](*WARM, BLOCK=16)
    assert "compilation of sample_kernels.copy" in caplog.text


def test_strict_watch_raises_before_anything_is_compiled(start):
    launch = start(kernel := plain())
    launch(*WARM, BLOCK=16)
    compiled = len(kernel.device_caches[0][0])
    hostonly.clear()
    with launchkit.watch_compiles(strict=True) as seen:
        for _ in range(2):
            with pytest.raises(UnexpectedCompileError, match="stride became 1") as caught:
                launch(X, X, 32, 1, BLOCK=16)
        launch(*WARM, BLOCK=16)
    assert caught.value.fields["kernel"] == "sample_kernels.copy"
    assert (len(kernel.device_caches[0][0]), len(hostonly.launches())) == (compiled, 1)
    assert seen.count == 2
    launch(X, X, 32, 1, BLOCK=16)
    assert len(hostonly.launches()) == 2


# -- tuning


def tuned():
    def do_bench(call, quantiles):
        call()
        return [1.0, 1.0, 1.0]

    make = triton.autotune(sample_kernels.configs(16, 32), ["n"], do_bench=do_bench)
    return make(plain())


def test_new_key_is_one_event_with_all_that_it_compiles(start, measuring):
    launch = start(tuned())
    launch(*WARM)
    with launchkit.watch_compiles() as seen:
        launch(*WARM)
        assert seen.events == []
        launch(X, X, 33, 2)
        launch(X, X, 33, 2)
    (event,) = seen.events
    assert str(event) == "tuning of sample_kernels.copy: n has a new key value (32 → 33)"


def test_new_dtype_is_named_as_the_cause_of_a_tuning(start, measuring):
    launch = start(tuned())
    launch(*WARM)
    with launchkit.watch_compiles() as seen:
        launch(X.half(), X, 32, 2)
    (event,) = seen.events
    assert event.kind == "tuning"
    assert [each.argument for each in event.changes] == ["dtype of x_ptr"]


def test_first_tuning_of_a_kernel_says_so(start, measuring):
    with launchkit.watch_compiles() as seen:
        start(tuned())(*WARM)
    (event,) = seen.events
    assert str(event) == "tuning of sample_kernels.copy: its first key"


def test_strict_watch_raises_before_a_tuning_and_the_kernel_can_be_tuned_later(start, measuring):
    launch = start(kernel := tuned())
    launch(*WARM)
    hostonly.clear()
    with launchkit.watch_compiles(strict=True):
        for _ in range(2):
            with pytest.raises(UnexpectedCompileError, match="new key value"):
                launch(X, X, 33, 2)
    assert hostonly.launches() == []
    launch(X, X, 33, 2)
    assert len(kernel.cache) == 2


def test_known_key_with_a_new_class_is_a_compilation(start, measuring):
    launch = start(tuned())
    launch(*WARM)
    with launchkit.watch_compiles() as seen:
        launch(X, X, 32, 1)
    (event,) = seen.events
    assert str(event) == "compilation of sample_kernels.copy: stride became 1 (i32 → 1)"


# -- the watch itself


def test_classes_are_what_they_were_after_the_last_watch():
    before = state_of_classes()
    first = launchkit.watch_compiles()
    with launchkit.watch_compiles():
        first.stop()
        assert state_of_classes() != before
    first.stop()
    assert state_of_classes() == before


def test_compilations_before_and_after_are_not_seen():
    kernel = plain()
    kernel[(1,)](*WARM, BLOCK=16)
    with launchkit.watch_compiles() as seen:
        pass
    kernel[(1,)](*WARM, BLOCK=32)
    assert (seen.events, seen.count) == ([], 0)


def test_two_watches_see_the_same_and_one_strict_one_is_enough():
    outer, inner = launchkit.watch_compiles(), launchkit.watch_compiles(strict=True)
    with inner, outer, pytest.raises(UnexpectedCompileError):
        plain()[(1,)](*WARM, BLOCK=16)
    assert outer.events == inner.events
    assert len(outer.events) == 1


def test_compilations_of_other_threads_are_seen():
    kernels = [plain() for _ in range(4)]
    with launchkit.watch_compiles() as seen:
        in_threads(4, lambda index: kernels[index][(1,)](*WARM, BLOCK=16))
    assert seen.count == 4


def test_kept_events_are_bounded(monkeypatch):
    monkeypatch.setattr(watching, "MAX_EVENTS", 2)
    kernel = plain()
    with launchkit.watch_compiles() as seen:
        for block in (16, 32, 64):
            kernel[(1,)](*WARM, BLOCK=block)
    assert (seen.count, len(seen.events)) == (3, 2)


@pytest.mark.parametrize("options", [{"strict": 1}, {"log": None}])
def test_option_that_is_no_bool_raises(options):
    before = state_of_classes()
    with pytest.raises(UsageError, match="on or off"):
        launchkit.watch_compiles(**options)
    assert state_of_classes() == before
