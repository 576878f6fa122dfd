"""Two ranks on two GPUs agree on their configs over NCCL's process group; needs two GPUs."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
WORKER = SUPPORT / "rank_gpu_worker.py"
KILLED = -9

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """How both ranks ended, and what they saw; one start for all tests here."""
    place = tmp_path_factory.mktemp("ranks")
    paths = os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-W", "ignore", WORKER, place]
    ranks = [
        subprocess.Popen([*command, str(rank)], env=env, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, KILLED], errors
    return [json.loads((place / f"said{rank}").read_text()) for rank in range(2)]


def test_each_key_is_tuned_on_one_gpu_and_both_launch_the_same_configs(seen):
    zero, one = (each["together"] for each in seen)
    assert zero["measured"] + one["measured"] == 3 * 2
    assert zero["blocks"] == one["blocks"]
    assert (zero["digest"], zero["keys"]) == (one["digest"], 3)
    assert zero["ok"] == one["ok"] == [True] * 4


def test_collectives_of_the_group_work_afterwards(seen):
    assert [each["together"]["reduced"] for each in seen] == [[3.0] * 5] * 2


def test_when_a_rank_is_killed_while_it_tunes_the_other_tunes_and_is_told(seen):
    assert seen[0]["rank_1_killed"] == {
        "ok": True, "silent": [1], "measured": 2, "taken_over": 1,
    }  # fmt: skip
    assert "rank_1_killed" not in seen[1]
