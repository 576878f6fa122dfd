"""Real processes that miss the same key at once: one tunes it, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

WORKER = pathlib.Path(__file__).with_name("flight_worker.py")
KILLED = -9


@pytest.fixture
def play(tmp_path):
    """Run one scene of flight_worker.py on a new directory, and return what it saw."""

    def run(scene: str, *numbers: int) -> dict[str, Any]:
        command = [sys.executable, WORKER, scene, tmp_path / "store", *map(str, numbers)]
        paths = os.pathsep.join([str(WORKER.parent), *filter(None, sys.path)])
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_sixty_four_starters_on_one_cold_key_tune_once(play) -> None:
    assert play("starters", 64) == {"codes": [0] * 64, "tuned": 1, "missing": [], "left": []}


def test_each_of_several_keys_is_tuned_once(play) -> None:
    assert play("of_keys", 24, 4) == {
        "codes": [0] * 24, "tuned": [1] * 4, "missing": [], "left": [],
    }  # fmt: skip


def test_when_the_holder_is_killed_one_of_those_that_wait_tunes_and_nothing_is_lost(play) -> None:
    assert play("holder_killed", 6) == {
        "codes": [KILLED] + [0] * 6, "ended_early": [0] * 6, "tuned": 2, "missing": [], "left": [],
    }  # fmt: skip


def test_child_of_a_killed_holder_does_not_keep_the_key(play) -> None:
    said = play("child_of_holder")
    # The child lets go of what it inherited as soon as it runs, which a busy machine delays.
    assert said["outcomes"] in (["alone"], ["waited"])
    assert said["left"] == []
