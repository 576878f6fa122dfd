"""What follows from several ranks' knowledge of one key: the same for all, and usable by all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stored import RECORD

from launchkit.configs import TunedConfig, config_digest, identify
from launchkit.store.agreeing import ConfigList, agree

A, B, C = (identify({"BLOCK": block, "num_warps": 4}) for block in (16, 32, 64))


def listed(*configs, method="eager"):
    return ConfigList(method, frozenset(map(config_digest, configs)))


EVERY = listed(A, B, C)


def record(times, chosen, method="eager", **changes):
    configs = tuple(
        TunedConfig.failed(config, "too big", method=method)
        if time is None
        else TunedConfig.measured(config, time, reps=3, method=method)
        for config, time in times.items()
    )
    return replace(RECORD, configs=configs, chosen=chosen, **changes)


FIRST = record({A: 1.0, B: 2.0, C: 3.0}, A)
OTHER = record({A: 3.0, B: 2.0, C: 1.0}, C)


def times(agreed):
    return {tuned.config: tuned.median_us for tuned in agreed.record.configs}


@pytest.mark.parametrize("records", [{0: FIRST, 2: OTHER}, {2: OTHER, 0: FIRST}])
def test_the_lowest_ranks_choice_and_times_hold(records):
    agreed = agree(records, dict.fromkeys(range(3), EVERY))
    assert agreed.record == FIRST
    assert agreed.complete


def test_a_pinned_choice_goes_before_a_lower_rank():
    pin = record({C: 1.0}, C, pinned=True)
    agreed = agree({0: FIRST, 1: pin}, {0: EVERY, 1: EVERY})
    assert (agreed.record.chosen, agreed.record.pinned, agreed.complete) == (C, True, True)


def test_results_of_all_ranks_are_united_and_what_is_missing_leaves_it_incomplete():
    one, two = record({A: 1.0}, A), record({A: 9.0, B: 8.0}, B)
    agreed = agree({0: one, 1: two}, {0: EVERY, 1: EVERY})
    assert times(agreed) == {A: 1.0, B: 8.0}
    assert agreed.record.chosen == A
    assert not agreed.complete


def test_a_choice_that_a_rank_does_not_have_gives_way_to_one_that_all_have():
    lists = {0: listed(A, B), 1: listed(B, C)}
    agreed = agree({0: record({A: 1.0, B: 2.0}, A)}, lists)
    assert (agreed.record.chosen, agreed.complete) == (B, True)


def test_a_config_that_failed_on_one_rank_is_not_chosen_for_all():
    agreed = agree(
        {0: FIRST, 1: record({A: None, B: 1.0, C: 2.0}, B)}, dict.fromkeys(range(2), EVERY)
    )
    assert agreed.record.chosen == B
    assert times(agreed) == {A: 1.0, B: 2.0, C: 3.0}


def test_where_every_config_failed_somewhere_one_that_ran_is_chosen():
    one, two = record({A: 1.0, B: None}, A), record({A: None, B: 1.0}, B)
    assert agree({0: one, 1: two}, dict.fromkeys(range(2), EVERY)).record.chosen == A


def test_no_common_config_is_no_record():
    lists = {0: listed(A), 1: listed(B)}
    agreed = agree({0: record({A: 1.0}, A), 1: record({B: 1.0}, B)}, lists)
    assert (agreed.record, agreed.complete) == (None, False)


def test_times_by_unlike_methods_are_not_compared():
    mixed = record({A: 9.0, B: 8.0}, A)
    cold = TunedConfig.measured(C, 0.1, reps=3, method="graph")
    mixed = replace(mixed, configs=(*mixed.configs, cold))
    lists = dict.fromkeys(range(2), listed(B, C))
    assert agree({0: mixed}, lists).record.chosen == B


def test_a_choice_by_another_method_than_the_kernels_leaves_it_incomplete():
    agreed = agree({0: FIRST, 1: FIRST}, {0: EVERY, 1: listed(A, B, C, method="graph")})
    assert (agreed.record, agreed.complete) == (FIRST, False)


def test_results_by_several_methods_stay_apart():
    graph = record({A: 0.3, B: 0.2}, B, method="graph")
    agreed = agree({0: FIRST, 1: graph}, dict.fromkeys(range(2), EVERY))
    assert {(t.config, t.method) for t in agreed.record.configs} == {
        (A, "eager"), (B, "eager"), (C, "eager"), (A, "graph"), (B, "graph"),
    }  # fmt: skip
    assert (agreed.record.winner.method, agreed.record.winner.median_us) == ("eager", 1.0)
    turned = agree({0: graph, 1: FIRST}, dict.fromkeys(range(2), listed(A, B, method="graph")))
    assert (turned.record.winner.method, turned.record.winner.median_us) == ("graph", 0.2)
    assert turned.complete


def test_an_imported_winner_without_a_time_is_chosen_where_nobody_has_measured():
    imported = replace(FIRST, configs=(TunedConfig.imported(B, method="imported:x"),), chosen=B)
    lists = dict.fromkeys(range(2), EVERY)
    agreed = agree({0: imported, 1: imported}, lists)
    assert (agreed.record.chosen, agreed.record.winner.timed, agreed.complete) == (B, False, False)
    assert agree({0: imported, 1: FIRST}, lists).record.chosen == A


def test_unknown_lists_restrict_nothing_and_leave_it_incomplete():
    agreed = agree({1: OTHER}, {0: None, 1: None})
    assert (agreed.record, agreed.complete) == (OTHER, False)
