"""Predictions held to steps that were run: the steps host-only, the comparison on a capture of an H200."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from pathlib import Path

import captures
import pytest
from typer.testing import CliRunner

import launchkit
from launchkit import hostonly
from launchkit.benchmarks.mamba.cases import MambaCase
from launchkit.benchmarks.mode import measuring
from launchkit.benchmarks.pinned_configs import pinned
from launchkit.benchmarks.predict import bench, comparing, process
from launchkit.benchmarks.predict.steps import (
    BASELINE,
    OPS,
    PLANNED,
    RECORDED,
    VARIANTS,
    make_layers,
    make_steps,
    recorded_range,
    step_range,
)
from launchkit.errors import LaunchkitError, UsageError
from launchkit.profiling.timeline import analyse, read_timeline
from launchkit.tools import bench as commands
from launchkit.tools import bench_predict

CAPTURE = "h200_2025.3_ssd_layers"
LAYERS, STEPS = 6, 4
CASE = MambaCase("Nemotron-3-Nano", sequences=3, tokens=70, initial_states=False)


@pytest.fixture(scope="module")
def timeline():
    """Four steps of six layers in each variant, and as many while the recorder was on."""
    return read_timeline(captures.nsys_sample(CAPTURE))


@pytest.fixture(scope="module")
def profile():
    """What the recorder of the captured process said."""
    return launchkit.LaunchProfile.load(captures.DATA / f"{CAPTURE}.profile.json.gz")


@pytest.fixture(scope="module")
def events():
    """Ranges of the capture as SQLite has them: (name, start, end)."""
    with sqlite3.connect(captures.nsys_sample(CAPTURE)) as rows:
        return rows.execute(
            "SELECT coalesce(n.text, s.value), start, end FROM NVTX_EVENTS n"
            " LEFT JOIN StringIds s ON s.id = n.textId WHERE end IS NOT NULL ORDER BY start"
        ).fetchall()


@pytest.fixture(scope="module")
def predicted(timeline):
    rows = comparing.predictions(timeline, 1, saves_ns=40_000)
    return {(row["variant"], row["parameters"].get("saves_ns")): row for row in rows}


def test_each_variant_launches_the_kernels_of_the_baseline_in_its_order():
    with measuring(record=True) as cuda, pinned():
        steps = make_steps(make_layers(CASE, 3, cuda), cuda)
        assert tuple(steps) == VARIANTS[:-1]
        launched = {}
        for variant, step in steps.items():
            step()
            hostonly.clear()
            step()
            launched[variant] = [(each.kernel, each.grid) for each in hostonly.launches()]
    assert len(launched[BASELINE]) == 3 * 5
    assert all(each == launched[BASELINE] for each in launched.values())


def test_process_times_every_step_and_saves_what_the_recorder_saw(tmp_path):
    saved = tmp_path / "profile.json"
    task = {"model": CASE.model, "sequences": 3, "tokens": 70, "layers": 2, "rounds": 2,
            "steps": 3, "profile": str(saved)}  # fmt: skip
    found = process.run(task)
    assert found["mode"] == "host-only"
    assert set(found["step_us"]) == set(VARIANTS[:-1])
    assert all([len(turn) for turn in turns] == [3, 3] for turns in found["step_us"].values())
    assert min(min(turn) for turns in found["step_us"].values() for turn in turns) > 0
    calls = Counter()
    for row in launchkit.LaunchProfile.load(saved).ranges:
        calls[row.path] += row.calls
    assert calls == {
        (recorded_range(variant), *op): 3 * 2 if op else 1
        for variant in RECORDED
        for op in ((), *((each,) for each in OPS))
    }


def test_recorder_and_nvtx_agree_within_a_twentieth_for_each_op(timeline, profile):
    rows = comparing.agreement(timeline, profile)
    assert [(row["variant"], row["op"]) for row in rows] == [
        (v, op) for v in RECORDED for op in OPS
    ]
    for row in rows:
        assert row["recorder_calls"] == row["nvtx_calls"] == LAYERS * STEPS
        assert 0.95 < row["ratio"] < 1.05, row


def test_nvtx_time_is_that_of_the_ranges_inside_the_recorded_steps(timeline, profile, events):
    for row in comparing.agreement(timeline, profile):
        ((start, end),) = [e[1:] for e in events if e[0] == recorded_range(row["variant"])]
        inside = [e for e in events if e[0] == row["op"] and start <= e[1] <= end]
        assert row["nvtx_us"] == round(sum(e[2] - e[1] for e in inside) / 1e3, 3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_time_of_a_captured_step_leaves_the_first_one_out(variant, timeline, events):
    _, *steps = [e[1:] for e in events if e[0] == step_range(variant, 0)]
    assert len(steps) == STEPS - 1
    wanted = (steps[-1][1] - steps[0][0]) / len(steps) / 1e3
    assert comparing.captured_us(timeline, variant, 0) == wanted


def test_turn_that_the_capture_lacks_has_no_time(timeline):
    assert comparing.captured_us(timeline, BASELINE, 7) is None


def test_predictions_stand_beside_what_was_run(predicted, timeline):
    assert list(predicted) == [
        ("launch_autotuned", None), ("launch_autotuned", 40_000), (PLANNED, None),
        ("cuda_graph", None),
    ]  # fmt: skip
    for (variant, _), row in predicted.items():
        assert row["measured_us"] == round(comparing.captured_us(timeline, variant, 0), 3)
        assert row["error"] == round(row["predicted_us"] / row["measured_us"] - 1, 4)
        assert row["predicted_share"] == round(row["predicted_us"] / row["baseline_us"], 4)
        assert row["saved_us"] == pytest.approx(row["replayed_us"] - row["predicted_us"], abs=0.01)


def test_what_was_run_lies_between_the_predictions_of_launch_autotuned(predicted):
    most, measured = predicted["launch_autotuned", None], predicted["launch_autotuned", 40_000]
    assert most["predicted_us"] < most["measured_us"] < measured["predicted_us"]


def test_op_plan_and_graph_lie_near_their_predictions(predicted):
    """What this capture gave; the committed result has the figures of longer runs."""
    for variant in (PLANNED, "cuda_graph"):
        row = predicted[variant, None]
        assert abs(row["error"]) < 0.2
        assert row["warm_us"] <= row["predicted_us"] < 0.3 * row["baseline_us"]
        assert abs(row["warm_error"]) < 0.2


def test_scans_of_the_captured_baseline_are_bound_by_python(timeline):
    analysis = analyse(timeline, step_range=step_range(BASELINE, 0))
    (row,) = analysis.verdicts.filter(name="ssd_scan").rows(named=True)
    assert row["verdict"] == "Python-bound"


def test_medians_are_of_what_is_known():
    assert comparing.shares([1.0, None, 3.0], [2.0, 2.0, None]) == [0.5, None, None]
    assert comparing.middle([None, 3.0, 1.0, 2.25]) == 2.25
    assert comparing.middle([None]) is None


def test_table_shows_each_batch_with_its_predictions(timeline, profile, predicted, capsys):
    case = CASE.name
    steps = [
        {"variant": v, "captured_us": 1234.0, "plain_us": 1.0, "plain_share": 0.5} for v in VARIANTS
    ]
    document = {
        "mode": "cuda",
        "machine": {"gpu": "NVIDIA H200", "triton": "3.6.0"},
        "method": {"model": CASE.model, "layers": LAYERS},
        "steps": [{"case": case} | row for row in steps],
        "predictions": [{"case": case} | row for row in predicted.values()],
        "agreement": [{"case": case} | row for row in comparing.agreement(timeline, profile)],
    }
    bench_predict.show(document)
    shown = capsys.readouterr().out
    assert "6 layers of Nemotron-3-Nano" in shown
    assert re.search(r"S3/T70, baseline +1,234", shown)
    for words in ("cached, all", "cached, 40 µs", "op_plan"):
        assert words in shown
    # Of a terminal of 80 columns, whole.
    assert max(map(len, shown.splitlines())) <= 80
    for name in ("error", "warm_error"):
        assert f"{predicted[PLANNED, None][name]:+.0%}" in shown


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--steps", "1"], "--steps must be at least 2"),
        (["--layers", "0"], "--layers must be at least 1"),
        (["--model", "none"], "no model named none"),
        (["--keep", "/"], "/ exists"),
        ([], "there is none"),
    ],
)
def test_bad_use_is_told_before_anything_is_run(options, told):
    result = CliRunner().invoke(commands.app, ["predict", *options])
    assert isinstance(result.exception, UsageError)
    assert told in str(result.exception)


def test_directory_that_cannot_be_made_is_told_before_anything_is_run(monkeypatch):
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(bench.shutil, "which", lambda _name: "/bin/nsys")
    with pytest.raises(UsageError, match="cannot be made: Not a directory") as raised:
        bench.measure(CASE.model, 1, 1, 2, Path(__file__) / "x")
    assert "--keep" in str(raised.value)


def test_process_that_fails_is_told_with_what_it_said(tmp_path):
    task = {"model": "none", "sequences": 1, "tokens": 1, "result": str(tmp_path / "none")}
    with pytest.raises(LaunchkitError, match="KeyError") as raised:
        bench._run(task, ())
    assert raised.value.fields["returncode"] == 1
