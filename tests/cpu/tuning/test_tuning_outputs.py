"""check_outputs: configs that compute something else than most are excluded, with the reason."""

from __future__ import annotations

import access_kernels as kernels
import numpy as np
import pytest
import torch
import triton
from executing import Executed, times
from hypothesis import given
from hypothesis import strategies as st
from stored import errors_by_config

import launchkit
from launchkit.dispatch.tuning.outputs import MAX_GROUPS, OutputCheck, difference
from launchkit.errors import ProtectionError, TuningFailedError

pytestmark = pytest.mark.usefixtures("measuring")


def tuned(kernel, *args, blocks=(16, 32, 64), check=True, name=None, **options):
    """Tune by launching once; the first block is the fastest. Return the BLOCK that is chosen."""
    configs = [triton.Config({"BLOCK": block}) for block in blocks]
    made = launchkit.autotuned(
        configs, ["n"], name=name, do_bench=FirstIsFastest(), check_outputs=check, **options
    )(kernel)
    made[(1,)](*args)
    return made.best_config.kwargs["BLOCK"]


class FirstIsFastest:
    """Each config measured takes longer than the one before."""

    def __init__(self):
        self.time = 0.0

    def __call__(self, call, quantiles):
        self.time += 1.0
        return times(self.time)(call, quantiles)


def copying(*broken, how):
    """``y = x + 1``, but for the broken blocks, which do ``how(named)`` instead."""

    def effect(named):
        if named["BLOCK"] in broken:
            how(named)
        else:
            named["y_ptr"].copy_(named["x_ptr"] + 1)

    return effect


def nothing(named):
    pass


def half(named):
    n = named["y_ptr"].numel() // 2
    named["y_ptr"][:n] = named["x_ptr"][:n] + 1


def wrong(named):
    named["y_ptr"].copy_(named["x_ptr"] + 2)


def nans(named):
    named["y_ptr"].fill_(float("nan"))


@pytest.mark.parametrize("how", [nothing, half, wrong, nans])
@pytest.mark.parametrize("broken", [16, 32, 64])
@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_config_whose_output_differs_never_wins(monkeypatch, memory_store, how, broken, protect):
    Executed(monkeypatch, copying(broken, how=how))
    x, y = torch.randn(64), torch.randn(64)
    assert tuned(kernels.copies, x, y, 64, protect=protect) == (32 if broken == 16 else 16)
    found = errors_by_config(memory_store)
    assert found[f"BLOCK={broken}"].startswith("OutputMismatch: y_ptr differs in ")
    assert [found[f"BLOCK={block}"] for block in {16, 32, 64} - {broken}] == [None, None]


def test_without_the_check_a_broken_config_may_win(monkeypatch):
    Executed(monkeypatch, copying(16, how=wrong))
    assert tuned(kernels.copies, torch.randn(64), torch.randn(64), 64, check=False) == 16


def test_reason_says_how_much_differs(monkeypatch, memory_store):
    def three_elements(named):
        named["y_ptr"].copy_(named["x_ptr"] + 1)
        named["y_ptr"][5:8] += 0.5

    Executed(monkeypatch, copying(32, how=three_elements))
    tuned(kernels.copies, torch.zeros(64), torch.randn(64), 64)
    assert errors_by_config(memory_store)["BLOCK=32"] == (
        "OutputMismatch: y_ptr differs in 3 of 64 elements, by up to 0.5"
    )


def test_output_that_an_earlier_config_left_hides_nothing(monkeypatch, memory_store):
    """A config that writes nothing finds the right answer of the one before in the buffer."""
    Executed(monkeypatch, copying(64, how=nothing))
    x = torch.randn(64)
    tuned(kernels.copies, x, x + 1, 64)
    assert errors_by_config(memory_store)["BLOCK=64"] is not None


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_what_was_in_the_output_is_there_after_the_check(monkeypatch, protect):
    def first_half(named):
        named["y_ptr"][:32] = named["x_ptr"][:32]

    Executed(monkeypatch, first_half)
    x, y = torch.randn(64), torch.randn(64)
    expected = y.clone()
    tuned(kernels.copies, x, y, 64, protect=protect)
    assert torch.equal(y, expected)


@pytest.mark.parametrize("option", ["restore_value", "reset_to_zero"])
def test_outputs_that_hooks_take_back_are_compared_before(monkeypatch, memory_store, option):
    def effect(named):
        named["x_ptr"].mul_(3.0 if named["BLOCK"] == 32 else 2.0).add_(1.0)

    Executed(monkeypatch, effect)
    x = torch.randn(64)
    tuned(kernels.doubles, x, 64, **{option: ["x_ptr"]})
    expected = None if option == "reset_to_zero" else "OutputMismatch: x_ptr"
    found = errors_by_config(memory_store)["BLOCK=32"]
    assert found is None if expected is None else found.startswith(expected)


def test_in_place_kernels_start_from_the_same_values(monkeypatch, memory_store):
    Executed(monkeypatch, lambda named: named["x_ptr"].mul_(2.0))
    x = torch.randn(64)
    before = x.clone()
    assert tuned(kernels.doubles, x, 64) == 16
    assert set(errors_by_config(memory_store).values()) == {None}
    assert torch.equal(x, before)


def test_all_that_can_be_measured_disagreeing_leaves_the_first(monkeypatch, memory_store):
    Executed(monkeypatch, lambda named: named["y_ptr"].fill_(named["BLOCK"]))
    assert tuned(kernels.copies, torch.zeros(64), torch.zeros(64), 64) == 16
    found = errors_by_config(memory_store)
    assert found["BLOCK=16"] is None
    assert None not in (found["BLOCK=32"], found["BLOCK=64"])


def test_config_that_raises_only_in_the_check_is_excluded(monkeypatch, memory_store):
    def effect(named):
        counted.append(named["BLOCK"])
        if counted.count(16) == 4 and named["BLOCK"] == 16:
            raise RuntimeError("Triton Error [CUDA]: invalid argument")

    counted = []
    Executed(monkeypatch, effect)
    assert tuned(kernels.copies, torch.zeros(64), torch.zeros(64), 64) == 32
    assert "invalid argument" in errors_by_config(memory_store)["BLOCK=16"]


def test_new_config_is_compared_with_what_is_stored(monkeypatch, memory_store):
    x, y = torch.randn(64), torch.randn(64)
    Executed(monkeypatch, copying(128, how=wrong))
    tuned(kernels.copies, x, y, 64, blocks=(64, 32))
    assert tuned(kernels.copies, x, y, 64, blocks=(128, 64, 32)) == 64
    assert errors_by_config(memory_store)["BLOCK=128"].startswith("OutputMismatch")


def test_tolerance_of_the_user_decides(monkeypatch, memory_store):
    def nearly(named):
        named["y_ptr"].copy_(named["x_ptr"] + 1.001)

    Executed(monkeypatch, copying(32, how=nearly))
    x, y = torch.ones(64), torch.zeros(64)
    tuned(kernels.copies, x, y, 64, check=(0.01, 0.0))
    assert set(errors_by_config(memory_store).values()) == {None}


def test_every_config_failing_raises_with_every_reason(monkeypatch, memory_store):
    def effect(named):
        raise RuntimeError(f"Triton Error [CUDA]: {named['BLOCK']}")

    Executed(monkeypatch, effect)
    with pytest.raises(TuningFailedError) as caught:
        tuned(kernels.copies, torch.zeros(64), torch.zeros(64), 64)
    assert sorted(caught.value.fields["reasons"].values()) == [
        f"RuntimeError: Triton Error [CUDA]: {block}" for block in (16, 32, 64)
    ]
    assert list(memory_store.records()) == []


def test_outputs_that_do_not_fit_twice_name_the_bytes(monkeypatch):
    def add(check, place, outputs, weight):
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(OutputCheck, "add", add)
    with pytest.raises(ProtectionError, match="256 bytes"):
        tuned(kernels.copies, torch.zeros(64), torch.zeros(64), 64)


# -- groups and tolerances, alone


def check_of(values, tolerance=None):
    check = OutputCheck(tolerance)
    for place, value in enumerate(values):
        check.add(place, {"y": [torch.tensor([float(value)])]})
    return [place for place, _ in check.outliers()]


@given(st.lists(st.integers(0, 3), max_size=12))
def test_outliers_are_all_but_the_largest_group_and_of_equals_the_first(values):
    sizes = {value: values.count(value) for value in values}
    best = max(dict.fromkeys(values), key=sizes.__getitem__, default=None)
    assert sorted(check_of(values)) == [i for i, value in enumerate(values) if value != best]


def test_more_unlike_outputs_than_are_kept_are_outliers_too():
    values = [*range(MAX_GROUPS + 3), 0]
    assert sorted(check_of(values)) == list(range(1, MAX_GROUPS + 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16,
                                   torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2])  # fmt: skip
def test_floats_may_differ_by_what_their_type_resolves_and_not_by_more(dtype):
    exact = torch.linspace(1, 2, 101, dtype=torch.float64)
    x = exact.to(dtype)
    step = torch.finfo(dtype).eps
    assert difference(x, x.clone(), None) is None
    assert difference((exact * (1 + 10 * step**0.5)).to(dtype), x, None) is not None
    assert difference((exact * (1 + step)).to(dtype), x, None) is None


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8, torch.uint16,
                                   torch.uint32, torch.uint64, torch.bool])  # fmt: skip
def test_all_but_floats_must_be_equal(dtype):
    x = torch.tensor(np.array([0, 1, 1, 0]), dtype=torch.uint8).to(dtype)
    y = torch.tensor(np.array([0, 1, 0, 0]), dtype=torch.uint8).to(dtype)
    assert difference(x, x.clone(), (1.0, 1.0)) is None
    assert difference(x, y, (1.0, 1.0)) == "1 of 4 elements, by up to 1"


def test_nan_equals_nan_and_infinity_itself_and_neither_anything_else():
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    assert difference(odd, odd.clone(), None) is None
    for place in range(3):
        changed = odd.clone()
        changed[place] = 1.0
        assert difference(changed, odd, None).startswith("1 of 4")


def test_large_outputs_are_compared_in_parts(monkeypatch):
    monkeypatch.setattr("launchkit.dispatch.tuning.outputs.CHUNK", 7)
    x = torch.randn(100)
    y = x.clone()
    y[[0, 6, 7, 50, 99]] += 3.0
    assert difference(y, x, None) == "5 of 100 elements, by up to 3"
