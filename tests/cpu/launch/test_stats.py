"""stats(): launches through Triton by reason always, fast ones by the C core or while asked for."""

from __future__ import annotations

import gc

import pytest
import sample_kernels
import torch
import triton
from sample_kernels import plain
from threads import in_threads

import launchkit
from launchkit import settings
from launchkit.dispatch import launch_counts
from launchkit.dispatch.native import python_core as python_core_module

X = torch.empty(128)
NAME = "sample_kernels.copy"
NO_CONFIGS = {
    "hits": {}, "misses": {}, "inexact": {},
    "tunings": 0, "tuning_s": 0.0, "saved_s": 0.0, "tune_next": [],
}  # fmt: skip
OP = f"{__name__}.copy_twice"


@pytest.fixture(autouse=True)
def from_nought(host, monkeypatch):
    # Other tests may have launched kernels of this name through the Python core, uncounted.
    monkeypatch.setattr(launch_counts, "_uncounted", set())
    launchkit.stats(reset=True)
    yield
    launchkit.uninstall()
    launchkit.stats(reset=True)


def launch(kernel, times=1, n=100, **options):
    for _ in range(times):
        launchkit.launch(kernel, (1,), X, X, n, 3, **options)


def reasons():
    return dict(launchkit.stats()[NAME].through_triton)


def test_c_core_counts_fast_launches_without_being_asked(c_core):
    launch(plain(), 5, BLOCK=16)
    found = launchkit.stats()[NAME]
    assert (found.fast, found.through_triton) == (4, {launch_counts.FIRST: 1})


def test_frozen_launches_that_python_makes_are_counted_beside_those_of_c(c_core):
    options = {"stride": 3, "BLOCK": 16, "varying": ["n"]}
    handle = launchkit.freeze(plain(), launchkit.grid("n"), X, X, n=100, **options)
    for n in (100, -5, 7):  # a negative size is left to Python, and launches nothing
        handle(n)
    assert (launchkit.stats()[NAME].fast, reasons()) == (3, {})


def test_c_core_counts_kernels_of_one_name_together_and_those_that_are_gone(c_core):
    for _ in range(3):
        launch(plain(), 5, BLOCK=16)
        gc.collect()
    assert launchkit.stats()[NAME].fast == 12


def test_python_core_counts_only_first_launches_where_nobody_asked_for_the_fast_ones(python_core):
    launch(plain(), 5, BLOCK=16)
    found = launchkit.stats()[NAME]
    assert (found.fast, found.through_triton) == (None, {launch_counts.FIRST: 1})


def test_fast_launches_of_the_python_core_are_counted_while_asked_for(python_core):
    kernel = plain()
    launch(kernel, 3, BLOCK=16)
    with launchkit.count_launches():
        launch(kernel, 4, BLOCK=16)
    launch(kernel, 5, BLOCK=16)
    found = launchkit.stats()[NAME]
    assert (found.fast, found.slow) == (4, 1)


def test_counting_puts_nothing_in_front_of_the_c_core(c_core):
    kernel = plain()
    launch(kernel, 2, BLOCK=16)
    before = kernel._launchkit_entry.fast
    with launchkit.count_launches():
        assert kernel._launchkit_entry.fast is before


def test_counting_leaves_nothing_in_front_of_the_python_core(python_core):
    kernel = plain()
    launch(kernel, 2, BLOCK=16)
    before = kernel._launchkit_entry.fast
    counter = launchkit.count_launches()
    assert kernel._launchkit_entry.fast is not before
    counter.stop()
    counter.stop()
    assert kernel._launchkit_entry.fast is before


def test_nested_counters_count_once_and_until_the_last_has_stopped(python_core):
    kernel = plain()
    launch(kernel, BLOCK=16)
    with launchkit.count_launches():
        with launchkit.count_launches():
            launch(kernel, 2, BLOCK=16)
        launch(kernel, 1, BLOCK=16)
    assert launchkit.stats()[NAME].fast == 3


@pytest.mark.parametrize("layers", ["outer", "inner", "both"])
def test_launch_of_a_kernel_with_layers_is_counted_once(layers, each_core):
    jit = plain()
    inner = triton.heuristics({"stride": lambda args: 3})(jit) if layers != "outer" else jit
    kernel = triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 32)], ["n"])(inner)
    if layers != "inner":
        kernel = triton.heuristics({"stride": lambda args: 3})(kernel)
    with launchkit.count_launches():
        for _ in range(4):
            launchkit.launch(kernel, (1,), X, X, 100)
    found = launchkit.stats()[NAME]
    assert (found.fast, found.through_triton) == (3, {launch_counts.FIRST: 1})


@pytest.mark.parametrize("layers", ["none", "outer", "inner", "both"])
def test_declared_name_is_what_launches_are_counted_by_whatever_the_layers(layers, each_core):
    jit = plain()
    below = triton.heuristics({"stride": lambda args: 3})
    kernel = launchkit.autotuned([triton.Config({"BLOCK": 16})], ["n"], name="moves")(
        below(jit) if layers in ("inner", "both") else jit
    )
    if layers in ("outer", "both"):
        kernel = triton.heuristics({"stride": lambda args: 3})(kernel)
    given = (X, X, 100, 3) if layers == "none" else (X, X, 100)
    with launchkit.count_launches():
        for _ in range(4):
            kernel[(1,)](*given)
        launchkit.freeze(kernel, (1,), *given)()
    (found,) = launchkit.stats().values()
    assert (found.kernel, found.fast, found.slow) == ("moves", 4, 1)


def test_reasons_are_told_apart(monkeypatch, each_core):
    kernel = plain()
    launch(kernel, BLOCK=16)
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", lambda metadata: None)
    launch(kernel, 2, BLOCK=16)
    monkeypatch.undo()
    assert reasons() == {launch_counts.FIRST: 1, "launch hook": 2}


def test_config_with_a_pre_hook_is_a_reason():
    configs = [triton.Config({"BLOCK": b}, pre_hook=lambda args: None) for b in (16, 32)]
    launch(triton.autotune(configs, ["n"])(plain()), 3)
    assert reasons() == {launch_counts.PRE_HOOK: 3}


def test_key_that_cannot_be_stored_is_a_reason():
    kernel = triton.autotune(sample_kernels.configs(16, 32), ["stride"])(plain())
    for _ in range(2):
        launchkit.launch(kernel, (1,), X, X, 100, frozen())
    assert reasons() == {launch_counts.NO_CONFIG: 2}


def copy_twice(x, y):
    for _ in range(2):
        launchkit.launch(sample_kernels.copy, (1,), x, y, 100, 3, BLOCK=16)


class frozen(int):
    """An int that is no plain one."""

    def __new__(cls):
        return super().__new__(cls, 3)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"n": frozen()}, "n (frozen)"),
        ({"BLOCK": triton.language.constexpr(16)}, "BLOCK (constexpr)"),
        ({"num_stages": frozen()}, "num_stages (frozen)"),
    ],
)
def test_reason_names_the_argument_or_option_that_is_unknown(changed, named, each_core):
    kernel = plain()
    given = {"n": 100, "stride": 3, "BLOCK": 16, **changed}
    for _ in range(2):
        launchkit.launch(kernel, (1,), X, X, **given)
    assert reasons() == {f"{launch_counts.UNKNOWN}: {named}": 2}


def test_reason_names_a_positional_argument(each_core):
    launchkit.launch(plain(), (1,), X, X, frozen(), 3, BLOCK=16)
    assert reasons() == {f"{launch_counts.UNKNOWN}: n (frozen)": 1}


def test_too_many_kinds_of_call_are_a_reason(monkeypatch, python_core):
    monkeypatch.setattr(python_core_module, "MAX_BODIES", 0)
    launch(plain(), 2, BLOCK=16)
    assert reasons() == {launch_counts.VALUES: 2}


def test_kernels_left_out_are_a_reason():
    launchkit.install(exclude="*")
    kernel = triton.heuristics({"BLOCK": lambda args: 16})(
        triton.autotune([triton.Config({}, num_warps=2)], ["n"])(plain())
    )
    for _ in range(3):
        kernel[(1,)](X, X, 100, 3)
    assert reasons() == {launch_counts.EXCLUDED: 3}


def test_switched_off_launchkit_is_a_reason(monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_DISABLE", "1")
    settings.reload()
    launch(plain(), 2, BLOCK=16)
    assert reasons() == {launch_counts.DISABLED: 2}


def test_failed_launch_is_not_counted():
    kernel = plain()
    with pytest.raises(KeyError):
        launch(kernel, BLOCK=16, no_such_option=1)
    assert NAME not in launchkit.stats()


def test_launches_of_many_threads_are_all_counted(each_core):
    kernel = plain()
    launch(kernel, BLOCK=16)
    with launchkit.count_launches():
        in_threads(4, lambda _: launch(kernel, 100, BLOCK=16))
    assert launchkit.stats()[NAME].fast == 400


def test_counting_and_recording_go_together(each_core):
    kernel = plain()
    launch(kernel, BLOCK=16)
    with launchkit.count_launches(), launchkit.profile_launches() as profile:
        launch(kernel, 3, BLOCK=16)
    assert launchkit.stats()[NAME].fast == 3
    assert [row.launches for row in profile.rows] == [3]


def test_reset_starts_again_from_here(each_core):
    kernel = plain()
    launch(kernel, 2, BLOCK=16)
    assert launchkit.stats(reset=True)[NAME].slow == 1
    assert len(launchkit.stats()) == 0
    launch(kernel, n=2**40, BLOCK=16)
    assert reasons() == {launch_counts.FIRST: 1}


def test_table_and_plain_data_hold_every_kernel_and_reason():
    with launchkit.count_launches():
        launch(plain(), 3, BLOCK=16)
    found = launchkit.stats()
    assert [line.split() for line in str(found).splitlines()] == [
        ["fast", "replayed", "Triton", "kernel"],
        ["2", "1", NAME],
        ["1", *launch_counts.FIRST.split()],
    ]
    assert found.as_dict() == {
        "kernels": [
            {"kernel": NAME, "fast": 2, "replayed": 0, "through_triton": {launch_counts.FIRST: 1}}
        ],
        "ops": [],
        "configs": NO_CONFIGS,
    }


def test_table_is_what_an_interactive_python_shows_as_well():
    launch(plain(), 2, BLOCK=16)
    found = launchkit.stats()
    assert repr(found) == str(found)


def test_table_without_launches_says_so():
    assert str(launchkit.stats()).splitlines()[1:] == ["no launch was counted"]


class TestOps:
    @pytest.fixture
    def op(self, c_core):
        """An op that was watched in one call and replayed in three."""
        launchkit.launch(sample_kernels.copy, (1,), X, X, 100, 3, BLOCK=16)
        op = launchkit.planned(copy_twice)
        launchkit.stats(reset=True)
        for _ in range(4):
            op(X, torch.empty(128))
        return op

    def test_launches_of_replays_are_counted_as_fast_and_by_themselves(self, op):
        found = launchkit.stats()[NAME]
        assert (found.fast, found.replayed, found.slow) == (8, 6, 0)

    def test_calls_of_an_op_are_counted_by_what_became_of_them(self, op):
        with torch.device("cpu"):
            op(X, torch.empty(128))
        found = launchkit.stats().ops[OP]
        assert (found.replays, dict(found.as_it_is)) == (3, dict(op.op_plans.reasons))
        assert found.as_it_is == {"watched": 1, "a torch mode is active": 1}

    def test_reset_starts_again_and_the_op_goes_on_counting(self, op):
        launchkit.stats(reset=True)
        assert dict(launchkit.stats().ops) == {}
        op(X, torch.empty(128))
        found = launchkit.stats()
        assert (found[NAME].fast, found[NAME].replayed) == (2, 2)
        assert found.ops[OP].replays == 1
        assert dict(found.ops[OP].as_it_is) == {}
        assert op.op_plans.replays == 4

    def test_ops_of_one_name_are_counted_together(self, op):
        other = launchkit.planned(copy_twice)
        for _ in range(2):
            other(X, torch.empty(128))
        found = launchkit.stats().ops[OP]
        assert (found.replays, found.as_it_is["watched"]) == (4, 2)

    def test_table_and_plain_data_hold_ops(self, op):
        found = launchkit.stats()
        assert [line.split() for line in str(found).splitlines()] == [
            ["fast", "replayed", "Triton", "kernel"],
            ["8", "6", "0", NAME],
            ["replays", "as", "it", "is", "op"],
            ["3", "1", OP],
            ["1", "watched"],
        ]
        assert found.as_dict() == {
            "kernels": [{"kernel": NAME, "fast": 8, "replayed": 6, "through_triton": {}}],
            "ops": [{"op": OP, "replays": 3, "as_it_is": {"watched": 1}}],
            "configs": NO_CONFIGS,
        }
