"""launchkit configs check and gc: findings by exit code, and nothing removed unless asked."""

from __future__ import annotations

import pytest
from configs_commands import run, run_json
from sharing import age, content, filled, one
from stored import file_of

from launchkit import clock
from launchkit.store import DirectoryStore, pins
from launchkit.tools.configs_gc import seconds, size_bytes

NOW_S = clock.utc_now().timestamp()


@pytest.fixture
def store(tmp_path) -> DirectoryStore:
    records = [one(1, 1, 5.0, triton="3.6.0"), one(1, 1, 5.0), one(2, 1, 5.0)]
    made = filled(tmp_path / "store", *records)
    age(made, 40, NOW_S)
    return made


def test_check_of_a_sound_store_is_exit_0(store) -> None:
    found = run_json("check", "--store", store.path, "--stale", "any")
    assert (found["records"], found["findings"]) == (3, [])


def test_check_finds_stale_and_broken_documents(store) -> None:
    file_of(store, one(2, 1, 5.0)).write_bytes(b"{")
    found = run_json("check", "--store", store.path, code=1)
    assert [each["kind"] for each in found["findings"]] == ["broken", "stale"]
    shown = run("check", "--store", store.path)
    assert shown.exit_code == 1
    assert "2 findings" in shown.stdout


def test_check_of_a_lock_file_says_whether_it_is_up_to_date(store, tmp_path) -> None:
    lock = tmp_path / "x.lock"
    pins.write(lock, pins.select(store.records()))
    command = ["check", "--store", store.path, "--stale", "any", "--lock", lock]
    assert run(*command).exit_code == 0
    store.put(one(3, 1, 5.0))
    found = run_json(*command, code=1)
    assert [each["kind"] for each in found["findings"]] == ["unpinned"]
    lock.write_text(lock.read_text().replace("3.9.0", "3.9.1"))
    found = run_json(*command, code=1)
    assert [each["kind"] for each in found["findings"]] == ["lock"]
    assert "digest" in found["findings"][0]["text"]


def test_gc_removes_nothing_unless_asked_and_then_what_it_said(store) -> None:
    before = content(store.path)
    command = ["gc", "--store", store.path, "--stale", "exact"]
    dry = run_json(*command)
    assert (len(dry["waste"]), dry["removed"], dry["freed_bytes"]) == (1, False, 0)
    assert "would be removed (--yes removes)" in run(*command).stdout
    assert content(store.path) == before
    wet = run_json(*command, "--yes")
    assert [each["toolchain"] for each in wet["waste"]] == [{"triton": "3.6.0"}]
    assert wet["freed_bytes"] == dry["waste"][0]["size_bytes"]
    assert set(DirectoryStore(store.path).records()) == {one(1, 1, 5.0), one(2, 1, 5.0)}


def test_gc_by_age_and_by_size(store) -> None:
    assert run_json("gc", "--store", store.path, "--older-than", "50d")["waste"] == []
    assert len(run_json("gc", "--store", store.path, "--older-than", "30d")["waste"]) == 3
    assert len(run_json("gc", "--store", store.path, "--max-size", "0")["waste"]) == 3
    assert run_json("gc", "--store", store.path, "--max-size", "1GB")["waste"] == []


def test_gc_that_cannot_reach_its_size_is_exit_1(store) -> None:
    result = run("gc", "--store", store.path, "--max-size", "0", "--grace", "10w", "--yes")
    assert result.exit_code == 1
    assert "within the grace time" in result.stderr
    assert len(list(store.records())) == 3


def test_gc_of_an_empty_place_makes_nothing(tmp_path) -> None:
    assert run("gc", "--store", tmp_path / "none", "--yes").exit_code == 0
    assert not (tmp_path / "none").exists()


def test_gc_cleans_the_layer_that_is_written(store, tmp_path) -> None:
    share = filled(tmp_path / "share", one(7, 1, 5.0))
    age(share, 40, NOW_S)
    before = content(share.path)
    place = f"ro:{share.path},{store.path}"
    assert len(run_json("gc", "--store", place, "--older-than", "1d", "--yes")["waste"]) == 3
    assert content(share.path) == before


def test_bad_use_is_exit_2_and_no_traceback(store, tmp_path) -> None:
    (tmp_path / "file").touch()
    for arguments in (
        ["check", "--store", tmp_path / "file"],
        ["check", "--store", store.path, "--stale", "some"],
        ["check", "--store", store.path, "--lock", tmp_path / "none.lock"],
        ["gc", "--store", "memory:"],
        ["gc", "--store", f"ro:{store.path}", "--yes"],
        ["gc", "--store", store.path, "--older-than", "soon"],
        ["gc", "--store", store.path, "--max-size", "-1"],
        ["gc", "--store", store.path, "--grace", "1"],
        ["gc", "--store", store.path, "--stale", "some"],
    ):
        before = content(tmp_path)
        assert run(*arguments).exit_code == 2, arguments
        assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "value"),
    [("90d", 7_776_000), ("12h", 43_200), ("1.5m", 90), ("2w", 1_209_600), ("0s", 0)],
)
def test_times_are_read_with_their_units(text, value) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("500MB", 500_000_000), ("2GiB", 2**31), ("1.5 kb", 1500), ("17", 17), ("10KiB", 10_240)],
)
def test_sizes_are_read_with_their_units(text, value) -> None:
    assert size_bytes(text) == value
