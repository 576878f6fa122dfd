"""Merging stores: by a declared policy, unlike methods never compared, nothing stored lost."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sharing import config, content, filled, one, timed, tuned, untimed

from launchkit.configs import TunedConfig
from launchkit.errors import UsageError
from launchkit.store import DirectoryStore, MemoryStore
from launchkit.store.merge import POLICIES, apply, decide, plan

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("policy", "our_us", "their_us", "our_time", "their_time", "winner"),
    [
        ("faster", 5.0, 4.0, NEW, OLD, 2),
        ("faster", 4.0, 5.0, OLD, NEW, 1),
        ("faster", 4.0, 4.0, OLD, NEW, 1),
        ("newer", 4.0, 5.0, OLD, NEW, 2),
        ("newer", 5.0, 4.0, NEW, OLD, 1),
        ("newer", 5.0, 4.0, NEW, NEW, 1),
        ("ours", 5.0, 4.0, OLD, NEW, 1),
        ("theirs", 4.0, 5.0, NEW, OLD, 2),
    ],
)
def test_policy_decides_whose_choice_stays(
    tmp_path, policy, our_us, their_us, our_time, their_time, winner
) -> None:
    ours, theirs = one(1, 1, our_us, tuned_at=our_time), one(1, 2, their_us, tuned_at=their_time)
    store = filled(tmp_path, ours)
    merging = plan(store, [theirs], policy)
    apply(merging, store)
    (merged,) = DirectoryStore(tmp_path).records()
    assert merged.chosen == config(winner)
    assert merged.tuned_at == (our_time, their_time)[winner - 1]
    assert {each.config for each in merged.configs} == {config(1), config(2)}
    (conflict,) = merging.conflicts
    assert (conflict.ours, conflict.theirs) == (ours, theirs)
    assert (conflict.stays, conflict.undecided) == (("ours", "theirs")[winner - 1], None)


@pytest.mark.parametrize("method", ["graph", "eager+cold", "imported:fla"])
def test_unlike_methods_are_not_compared_and_the_report_says_so(tmp_path, method) -> None:
    store = filled(tmp_path, one(1, 1, 9.0))
    merging = plan(store, [one(1, 2, 1.0, method)], "faster")
    apply(merging, store)
    (conflict,) = merging.undecided
    assert conflict.stays == "ours"
    assert "'eager'" in conflict.undecided
    assert repr(method) in conflict.undecided
    (merged,) = store.records()
    assert merged.winner == timed(1, 9.0)
    assert timed(2, 1.0, method) in merged.configs


@pytest.mark.parametrize("times", [(None, NEW), (OLD, None), (None, None)])
def test_newer_decides_nothing_where_a_time_is_not_known(times) -> None:
    ours, theirs = one(1, 1, 5.0, tuned_at=times[0]), one(1, 2, 4.0, tuned_at=times[1])
    decision = decide(ours, theirs, "newer")
    assert decision.record.chosen == config(1)
    assert decision.conflict.undecided is not None


def test_policy_error_lists_every_conflict_and_writes_nothing(tmp_path) -> None:
    store = filled(tmp_path, one(1, 1, 5.0), one(2, 1, 5.0))
    before = content(tmp_path)
    merging = plan(store, [one(1, 2, 4.0), one(3, 1, 1.0), one(2, 2, 4.0)], "error")
    apply(merging, store)
    assert merging.refused
    assert len(merging.undecided) == 2
    assert content(tmp_path) == before


def test_policy_error_merges_what_does_not_conflict(tmp_path) -> None:
    store = filled(tmp_path, one(1, 1, 5.0))
    merging = plan(store, [one(1, 1, 4.0), one(3, 1, 1.0)], "error")
    apply(merging, store)
    assert not merging.refused
    assert len(list(store.records())) == 2


def test_planning_changes_nothing_and_mends_nothing(tmp_path) -> None:
    store = filled(tmp_path, one(1, 1, 5.0))
    (path,) = store.paths()
    path.write_bytes(b"{ broken")
    merging = plan(DirectoryStore(tmp_path), [one(1, 2, 4.0)], "faster")
    assert merging.outcomes == {"added": 1}
    assert content(tmp_path) == {str(path.relative_to(tmp_path)): b"{ broken"}


def test_results_of_the_loser_for_other_configs_are_kept(tmp_path) -> None:
    failed = TunedConfig.failed(config(8), "OutOfResources", method="eager")
    theirs = tuned(1, timed(2, 6.0), timed(4, 7.0), failed, chosen=2)
    store = filled(tmp_path, tuned(1, timed(1, 5.0), timed(2, 5.5), chosen=1))
    merging = plan(store, [theirs], "faster")
    apply(merging, store)
    (merged,) = store.records()
    assert merging.outcomes == {"extended": 1}
    assert merged.configs == (timed(1, 5.0), timed(2, 5.5), timed(4, 7.0), failed)


def test_equal_records_cost_no_write(tmp_path) -> None:
    records = [one(n, 1, 5.0) for n in range(5)]
    store = filled(tmp_path, *records)
    merging = plan(store, records, "theirs")
    assert merging.outcomes == {"same": 5}
    assert not merging.staged


def test_the_order_of_three_stores_does_not_matter_to_faster(tmp_path) -> None:
    rng = random.Random(5)
    stores = [
        [one(n, block, rng.uniform(1, 9)) for n in range(20) if rng.random() < 0.7]
        for block in (1, 2, 3)
    ]
    least: dict[str, tuple[float, object]] = {}
    for record in (each for store in stores for each in store):
        found = (record.winner.median_us, record.chosen)
        least[record.key.text] = min(least.get(record.key.text, found), found)
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        target = MemoryStore()
        merging = plan(target, [each for index in order for each in stores[index]], "faster")
        apply(merging, target)
        got = {each.key.text: (each.winner.median_us, each.chosen) for each in target.records()}
        assert got == least


@pytest.mark.parametrize("policy", POLICIES)
def test_a_measured_choice_never_gives_way_to_one_without_a_time(policy) -> None:
    store = MemoryStore()
    store.put(one(1, 1, 5.0))
    merging = plan(store, [untimed(1, 2)], policy)
    apply(merging, store)
    (merged,) = store.records()
    assert merged.winner == timed(1, 5.0)
    assert merging.conflicts[0].stays == "ours"


@pytest.mark.parametrize("policy", POLICIES)
def test_report_says_what_the_store_then_holds(policy) -> None:
    rng = random.Random(policy)
    for _ in range(60):
        pair = []
        for _ in range(2):
            blocks = rng.sample([1, 2, 4, 8], rng.randint(1, 3))
            method = rng.choice(["eager", "graph"])
            when = rng.choice([None, OLD, NEW])
            results = [timed(block, rng.choice([3.0, 4.0, 5.0]), method) for block in blocks]
            made = tuned(1, *results, chosen=blocks[0], tuned_at=when)
            pair.append(untimed(1, rng.choice([1, 2])) if rng.random() < 0.2 else made)
        ours, theirs = pair
        store = MemoryStore()
        store.put(ours)
        merging = plan(store, [theirs], policy)
        decision = decide(ours, theirs, policy)
        apply(merging, store)
        (held,) = store.records()
        assert held == (ours if merging.refused else decision.record)
        if decision.conflict is not None:
            side = decision.conflict.ours if decision.conflict.stays == "ours" else theirs
            assert held.chosen == side.chosen
        assert {(each.config, each.method) for each in ours.configs} <= {
            (each.config, each.method) for each in held.configs
        }


def test_a_store_that_cannot_be_written_is_told_record_by_record(tmp_path) -> None:
    store = filled(tmp_path, one(1, 1, 5.0))
    for path in store.paths():
        path.write_bytes(b'{"schema": 99}')
    store = DirectoryStore(tmp_path)
    merging = plan(store, [one(1, 2, 4.0), one(2, 2, 4.0)], "faster")
    apply(merging, store)
    assert merging.unwritten == [one(1, 2, 4.0)]


def test_a_pinned_record_is_merged_as_an_ordinary_one() -> None:
    store = MemoryStore()
    merging = plan(store, [replace(one(1, 1, 5.0), pinned=True)], "faster")
    apply(merging, store)
    assert list(store.records()) == [one(1, 1, 5.0)]


def test_unlike_keys_and_unknown_policies_are_refused() -> None:
    with pytest.raises(UsageError, match="unlike keys"):
        decide(one(1, 1, 5.0), one(2, 1, 5.0), "faster")
    with pytest.raises(UsageError, match="no policy"):
        decide(None, one(1, 1, 5.0), "best")
