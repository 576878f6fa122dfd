"""Commands killed with SIGKILL halfway: nothing stored is lost, no file is half, all can go on."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

WORKER = pathlib.Path(__file__).with_name("sharing_worker.py")
KILLED = -9


@pytest.fixture
def play(tmp_path):
    """Run one scene of sharing_worker.py in a new directory, and return what it saw."""

    def run(scene: str, *arguments: object) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, WORKER, scene, tmp_path, *map(str, arguments)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("how", ["import", "merge"])
def test_a_killed_import_or_merge_loses_nothing_and_goes_on(play, how) -> None:
    written = {
        "before-replace-1": 0, "after-replace-1": 1, "before-fsync-9": 1, "after-replace-12": 12,
    }  # fmt: skip
    for point, seen in play("at_each", "brought", how, ",".join(written)).items():
        assert (seen["code"], seen["lost"]) == (KILLED, []), point
        assert (seen["halfway"]["strange"], seen["halfway"]["broken"]) == ([], [])
        assert 10 + written[point] <= seen["halfway"]["found"] < 40
        assert seen["after"] == {"strange": [], "broken": [], "found": 40}


def test_a_lock_file_is_old_or_new_when_pin_is_killed_and_never_half(play) -> None:
    expected = {
        "before-fsync-1": "old", "after-fsync-1": "old", "before-replace-1": "old",
        "after-replace-1": "new",
    }  # fmt: skip
    for point, seen in play("at_each", "pinned", ",".join(expected)).items():
        assert seen == {"code": KILLED, "halfway": expected[point]}, point


def test_a_killed_collection_loses_nothing_that_it_had_not_to_remove(play) -> None:
    points = "before-replace-1,after-replace-1,before-replace-3"
    for point, seen in play("at_each", "cleaned", points).items():
        assert (seen["code"], seen["lost"]) == (KILLED, []), point
        assert (seen["halfway"]["strange"], seen["halfway"]["broken"]) == ([], [])


def test_collections_beside_writers_lose_nothing_that_is_stored_meanwhile(play) -> None:
    assert play("beside_writers", 4) == {"codes": [0] * 5, "missing": [], "old": 0}
