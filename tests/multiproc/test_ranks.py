"""Real ranks over gloo that agree on their configs: one tuning a key, and never a hang."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

WORKER = pathlib.Path(__file__).with_name("rank_worker.py")
SUPPORT = WORKER.parent.parent / "support"
KILLED = -9


def played(place: pathlib.Path, *scenes: str):
    paths = [str(WORKER.parent), str(SUPPORT), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", WORKER, place, *scenes],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """What ranks saw in scenes where nobody dies; one process imports torch for all of them."""
    scenes = ("cold:2:tcp", "grown_world:3", "warm_zero:3", "unlike:2", "by_triton:2",
              "disjoint:3", "spread:2")  # fmt: skip
    return played(tmp_path_factory.mktemp("calm"), *scenes)


@pytest.fixture(scope="module")
def rough(tmp_path_factory):
    """What they saw where ranks differ, fail, come late or are killed."""
    scenes = ("lists:2", "lists_refused:2", "nothing_common:2", "owner_fails:2", "owner_killed:3",
              "late:2", "broken_block:2", "keeper_killed:2:tcp")  # fmt: skip
    return played(tmp_path_factory.mktemp("rough"), *scenes)


def only(values):
    (value,) = set(values)
    return value


def test_cold_ranks_tune_a_key_once_and_launch_and_store_the_same_config(calm):
    ranks = calm["cold"]
    assert sorted(rank["measured"] for rank in ranks) == [[], [16, 32, 64]]
    assert only(block for rank in ranks for block in rank["blocks"]) in (16, 32)
    assert only(rank["digest"] for rank in ranks)
    assert [(rank["keys"], rank["stored"]) for rank in ranks] == [(1, 1)] * 2


def test_a_rank_that_joins_a_later_job_takes_what_the_others_had(calm):
    block = only(block for rank in calm["cold"] for block in rank["blocks"])
    assert calm["grown_world"] == [{"block": block, "measured": 0}] * 3


def test_what_only_rank_0_had_tuned_is_used_and_stored_by_all_without_tuning(calm):
    ranks = calm["warm_zero"]
    assert [(rank["block"], rank["measured"], rank["stored"]) for rank in ranks] == [
        (64, [], 1)
    ] * 3
    assert only(rank["digest"] for rank in ranks)


def test_ranks_that_launch_with_unlike_configs_take_the_lowest_ranks_at_once(calm):
    zero, one = calm["unlike"]
    assert (zero["before"], one["before"]) == ([32] * 6, [16] * 6)
    assert zero["after"] == one["after"] == [32] * 6
    assert (zero["changed"], one["changed"]) == (0, 1)
    assert zero["digest"] == one["digest"]


def test_what_tritons_own_tuning_chose_gives_way_to_the_lowest_ranks_and_is_not_stored(calm):
    ranks = calm["by_triton"]
    assert [rank["before"] for rank in ranks] == [64, 16]
    assert [(rank["after"], rank["stored"]) for rank in ranks] == [(64, 0)] * 2
    assert only(rank["digest"] for rank in ranks)


def test_ranks_of_disjoint_shapes_and_one_that_skips_the_kernel_hang_nobody(calm):
    ranks = calm["disjoint"]
    assert [rank["measured"] for rank in ranks] == [3, 3, 0]
    assert [(rank["keys"], rank["stored"]) for rank in ranks] == [(2, 2)] * 3
    assert only(rank["digest"] for rank in ranks)


def test_spread_calls_are_tuned_by_all_ranks_each_key_once(calm):
    zero, one = calm["spread"]
    assert zero["blocks"] == one["blocks"]
    assert [rank["keys"] for rank in (zero, one)] == [6, 6]
    assert zero["owned"] + one["owned"] == 6
    assert min(zero["owned"], one["owned"]) > 0
    assert zero["measured"] + one["measured"] == 6 * 3


def test_unlike_config_lists_meet_in_what_they_have_in_common(rough):
    assert rough["lists"] == [{"block": 32}] * 2


def test_unlike_config_lists_are_an_error_on_every_rank_where_asked_for(rough):
    assert rough["lists_refused"] == [{"silent": [], "conflicts": 1}] * 2


def test_lists_with_nothing_in_common_are_an_error_on_every_rank(rough):
    assert rough["nothing_common"] == [{"silent": [], "conflicts": 1}] * 2


def test_when_the_owner_fails_another_rank_tunes_and_both_launch_its_config(rough):
    zero, one = rough["owner_fails"]
    assert (zero["failed"], one["failed"]) == (True, False)
    assert (zero["block"], one["block"]) == (32, 32)
    assert one["owned"] == 1


def test_when_the_owner_is_killed_one_other_tunes_and_the_error_names_the_dead_rank(rough):
    dead, *others = rough["owner_killed"]
    assert dead == KILLED
    assert [rank["block"] for rank in others] == [32, 32]
    assert [rank["silent"] for rank in others] == [[0], [0]]
    assert sorted(rank["measured"] for rank in others) == [0, 3]
    assert sorted(rank["taken_over"] for rank in others) == [0, 1]


def test_late_rank_is_named_and_the_next_call_succeeds(rough):
    zero, one = rough["late"]
    assert zero["first"] == ["rank 1"]
    assert "rank 1" in one["first"][0]
    assert zero["ranks"] == one["ranks"] == [0, 1]


def test_error_in_one_ranks_block_ends_the_others_agreement_and_passes_on_its_own(rough):
    assert rough["broken_block"] == [
        {"error": "AgreementError", "names_rank_1": True},
        {"error": "KeyError", "names_rank_1": False},
    ]


def test_rank_whose_store_is_lost_tunes_alone_and_is_told_at_the_end(rough):
    assert rough["keeper_killed"] == [KILLED, {"block": 32, "lost": 1, "error": True}]
