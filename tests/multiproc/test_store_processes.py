"""Real processes on one directory: nothing is lost, nothing is seen half, no kill does harm."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

WORKER = pathlib.Path(__file__).with_name("store_worker.py")
KILLED = -9


@pytest.fixture
def play(tmp_path):
    """Run one scene of store_worker.py on a new directory, and return what it saw."""

    def run(scene: str, *numbers: object) -> dict[str, Any]:
        command = [sys.executable, WORKER, scene, tmp_path / "store", *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_sixteen_writers_of_different_keys_into_one_file_lose_nothing(play, tmp_path) -> None:
    assert play("writers", 16, 4) == {"codes": [0] * 16, "missing": []}
    assert [each.name for each in tmp_path.rglob("*.json")] == ["7f.json"]
    assert not list(tmp_path.rglob("*.tmp-*"))


def test_sixty_four_processes_store_one_cold_key(play) -> None:
    assert play("same_key", 64) == {"codes": [0] * 64, "missing": []}


@pytest.mark.parametrize(
    "point", ["before-fsync", "after-fsync", "before-replace", "after-replace", "after-makedirs"]
)
def test_a_writer_killed_at_any_step_loses_nothing_and_blocks_nobody(play, point: str) -> None:
    assert play("killed_at", point) == {"codes": [KILLED], "missing": [], "stored": True}


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(play, seed: int) -> None:
    seen = play("killed_anywhere", 60, seed)
    assert seen["acknowledged"] > 10
    assert seen["missing"] == []
    assert seen["counters"] == {}


def test_concurrent_readers_never_see_a_partial_file(play) -> None:
    assert play("readers", 3, 60) == {"codes": [0] * 5, "missing": []}


def test_a_corrupt_file_found_by_many_is_set_aside_once_and_costs_no_record(play) -> None:
    seen = play("corrupt_while_used", 16)
    assert seen == {"codes": [0] * 16, "missing": [], "aside": ["{ broken"]}
