"""Checks of a store and of a lock file: each thing that is wrong is named, and nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from sharing import content, filled, one, timed, tuned
from stored import RECORD, file_of

from launchkit.keys import DeviceId
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, pins
from launchkit.store.checking import check_pins
from launchkit.store.checking import check_store as check_examined
from launchkit.store.staleness import Staleness, version


def check_store(store, policy):
    return check_examined(store, store.examine(), policy)


def kinds(found) -> list[str]:
    return [each.kind for each in found]


def test_a_sound_store_has_no_findings(tmp_path) -> None:
    store = filled(tmp_path, RECORD, one(1, 1, 5.0))
    assert list(check_store(store, "exact")) == []
    assert list(check_store(MemoryStore(), "exact")) == []


def test_broken_and_set_aside_documents_are_found_and_stay_as_they_are(tmp_path) -> None:
    store = filled(tmp_path, RECORD, one(1, 1, 5.0))
    broken = file_of(store, RECORD)
    broken.write_bytes(b"{ broken")
    broken.with_name(f"{broken.name}.bad-x").touch()
    before = content(tmp_path)
    found = list(check_store(DirectoryStore(tmp_path), "exact"))
    assert kinds(found) == ["broken", "set-aside"]
    assert found[0].place == str(broken)
    assert content(tmp_path) == before


def test_a_file_in_the_place_of_all_documents_is_found(tmp_path) -> None:
    filled(tmp_path, RECORD)
    place = tmp_path / "v1"
    shutil.rmtree(place)
    place.touch()
    found = list(check_store(DirectoryStore(tmp_path), "exact"))
    assert [(each.kind, each.place) for each in found] == [("broken", str(place))]


def test_a_record_in_the_file_of_other_keys_is_found(tmp_path) -> None:
    store = filled(tmp_path, RECORD)
    path = file_of(store, RECORD)
    wrong = path.with_name("00.json" if path.name != "00.json" else "01.json")
    shutil.move(path, wrong)
    (found,) = check_store(DirectoryStore(tmp_path), "exact")
    assert found.kind == "misplaced"
    assert str(wrong) in found.place
    layered = LayeredStore([MemoryStore(), DirectoryStore(tmp_path)])
    assert kinds(check_store(layered, "exact")) == ["misplaced"]


def test_a_record_in_the_folder_of_another_device_is_found(tmp_path) -> None:
    store = filled(tmp_path, RECORD)
    path = file_of(store, RECORD)
    shutil.move(path.parents[1], path.parents[2] / "Other-sm_90-00000000")
    assert kinds(check_store(DirectoryStore(tmp_path), "exact")) == ["broken"]


@pytest.mark.parametrize(
    ("policy", "stale"), [("exact", ["3.8.0", "3.10.0"]), ("minor", ["3.8.0"]), ("any", [])]
)
def test_staleness_is_by_policy_and_by_number(tmp_path, policy, stale) -> None:
    versions = ["3.8.0", "3.10.0", "3.10.2"]
    store = filled(tmp_path, *(one(1, 1, 5.0, triton=each) for each in versions))
    found = list(check_store(store, policy))
    assert kinds(found) == ["stale"] * len(stale)
    assert sorted(each.text.split()[2].rstrip(",") for each in found) == sorted(stale)
    assert all("3.10.2" in each.text for each in found)


def test_another_device_makes_nothing_stale() -> None:
    other = replace(
        one(1, 1, 5.0, triton="3.6.0"), device=DeviceId("cuda", "L4", "sm_89", 58, 1, 22)
    )
    staleness = Staleness("exact")
    staleness.learn([other, one(1, 1, 5.0, triton="3.9.0")])
    assert staleness.newer(other) is None
    assert staleness.newer(one(1, 1, 5.0, triton="3.6.0")) == "3.9.0"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3.9.0", (3, 9, 0)), ("3.9.0+git12.4", (3, 9, 0)), ("main", ()), ("3.9", (3, 9)), ("", ())],
)
def test_versions_are_compared_by_their_numbers(text, numbers) -> None:
    assert version(text) == numbers


def test_a_version_without_numbers_is_never_stale() -> None:
    staleness = Staleness("exact")
    strange = one(1, 1, 5.0, triton="main")
    staleness.learn([strange, one(1, 1, 5.0)])
    assert staleness.newer(strange) is None


def test_a_lock_file_that_is_up_to_date_has_no_findings() -> None:
    records = [RECORD, one(1, 1, 5.0), one(1, 1, 5.0, triton="3.6.0")]
    assert list(check_pins(pins.select(records), records, "exact")) == []


def test_pins_that_are_gone_outdated_missing_and_behind_are_told() -> None:
    pinned = pins.select([one(1, 1, 5.0), one(2, 1, 5.0), one(3, 1, 5.0, triton="3.6.0")])
    faster = tuned(2, timed(1, 5.0), timed(2, 4.0), chosen=2)
    stored = [
        faster,
        one(3, 1, 5.0, triton="3.6.0"),
        one(3, 1, 5.0, triton="3.9.0"),
        one(4, 1, 1.0),
    ]
    found = list(check_pins(pinned, stored, "minor"))
    told = {(each.kind, each.place.rpartition(" · ")[2].split()[0]) for each in found}
    assert told == {
        ("pin-gone", "n=1"), ("pin-outdated", "n=2"), ("pin-outdated", "n=3"), ("unpinned", "n=4")
    }  # fmt: skip
    (outdated,) = [each for each in found if "now chooses" in each.text]
    assert "BLOCK=2" in outdated.text
    assert "0.80 of its time" in outdated.text
