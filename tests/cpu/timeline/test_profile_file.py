"""Saved profiles: what comes back, several together, as timelines, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from recording import known, launch, named

from launchkit.errors import BadDocumentError, TimelineError, UsageError
from launchkit.profiling import LaunchProfile, annotate, profile_launches
from launchkit.profiling.timeline import read_timeline

pytestmark = pytest.mark.usefixtures("host")


@pytest.fixture
def record(each_core, tmp_path, monkeypatch):
    def made(name="p.json", rank=None, times=5, kernel="scan"):
        launcher = known(named(kernel))
        if rank is not None:
            monkeypatch.setenv("RANK", str(rank))
        with profile_launches() as profile:
            for layer in range(2):
                with annotate("step"), annotate("mixer", layer=layer, op="ssd"):
                    launch(launcher, times)
            launch(launcher)
        path = tmp_path / name
        profile.save(path)
        return profile, path

    return made


def comparable(profile):
    """All that a file keeps: no µs of what the reader adds up in another order."""
    found = profile.to_dict()
    return {name: found[name] for name in found if name != "processes"}


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_a_loaded_profile_has_the_figures_of_the_saved_one(record, name):
    profile, path = record(name)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    loaded = LaunchProfile.load(path)
    assert comparable(loaded) == comparable(profile)
    assert [row.wall_us for row in loaded.by_step()] == [row.wall_us for row in profile.by_step()]
    assert [row.pid for row in loaded.processes] == [os.getpid()]


def test_profiles_of_ranks_merge_into_one(record):
    (first, one), (second, two) = (
        record("0.json", rank=0, times=3),
        record("1.json", rank=1, times=7),
    )
    merged = LaunchProfile.load(one, two)
    rows = {(row.path, row.layer): row for row in merged.rows}
    alone = [{(row.path, row.layer): row for row in profile.rows} for profile in (first, second)]
    assert {key: row.launches for key, row in rows.items()} == {
        key: alone[0][key].launches + alone[1][key].launches for key in alone[0]
    }
    for key, row in rows.items():
        assert row.total_us == pytest.approx(alone[0][key].total_us + alone[1][key].total_us)
    assert [(row.rank, row.launches) for row in merged.processes] == [(0, 7), (1, 15)]
    assert [row.thread for row in merged.threads] == ["rank 0, MainThread", "rank 1, MainThread"]
    assert len(merged.by_step()) == 4
    assert sum(row.launches for row in merged.by_step()) == 20
    with pytest.raises(UsageError, match="several processes"):
        merged.save("nowhere")


def test_a_saved_profile_is_a_timeline_of_its_launches_and_ranges(record):
    profile, path = record(rank=3)
    timeline = read_timeline(path)
    calls, ranges = timeline.calls, timeline.ranges
    assert calls["kind"].to_list() == ["launch"] * 11
    assert calls["name"].unique().to_list() == ["scan"]
    lasted = (calls["end_ns"] - calls["start_ns"]).sum() / 1000
    assert lasted == pytest.approx(sum(row.total_us for row in profile.rows), rel=0.01)
    assert sorted(ranges["name"]) == ["mixer"] * 2 + ["step"] * 2
    mixer = ranges.filter(name="mixer")
    assert (mixer["payload"].to_list(), mixer["category"].to_list()) == (["0", "1"], ["ssd"] * 2)
    for row in mixer.iter_rows(named=True):
        within = calls.filter(
            (calls["start_ns"] >= row["start_ns"]) & (calls["start_ns"] < row["end_ns"])
        )
        assert within.height == 5
    known_split = calls.drop_nulls("driver_ns")
    parts = known_split.select("find_ns", "grid_ns", "driver_ns").sum_horizontal()
    assert (parts <= known_split["end_ns"] - known_split["start_ns"] + 3).all()
    assert (known_split.height > 0) == any(row.driver_us is not None for row in profile.rows)
    assert timeline.processes.row(0) == (os.getpid(), "", 3)
    assert timeline.source.format == "launchkit"
    assert timeline.source.calibration["launch_ns"] == profile.calibration.launch.ns
    assert timeline.counts["launches"].used == 11
    assert any("host-only" in warning for warning in timeline.warnings)


def test_launches_that_were_only_counted_are_in_the_counts(each_core, tmp_path):
    kernel = known(named("k"))
    with profile_launches(samples_per_row=3) as profile, annotate("r"):
        launch(kernel, 10)
    profile.save(tmp_path / "p.json")
    timeline = read_timeline(tmp_path / "p.json")
    counts = timeline.counts["launches"]
    assert (counts.read, counts.used, counts.dropped) == (10, 3, {"kept as totals only": 7})
    assert timeline.calls.height == 3
    assert LaunchProfile.load(tmp_path / "p.json").rows[0].dropped == 7


def test_a_profile_saved_while_it_is_recorded_holds_what_there_is(each_core, tmp_path):
    kernel = known(named("k"))
    with profile_launches() as profile:
        launch(kernel, 4)
        profile.save(tmp_path / "p.json")
        launch(kernel, 4)
    assert LaunchProfile.load(tmp_path / "p.json").rows[0].launches == 4


def test_an_empty_profile_is_a_file_too(each_core, tmp_path):
    with profile_launches() as profile:
        pass
    profile.save(tmp_path / "p.json")
    assert LaunchProfile.load(tmp_path / "p.json").rows == ()
    assert read_timeline(tmp_path / "p.json").calls.height == 0


CHANGES = {
    "another schema": lambda d: d.update(schema=99),
    "a schema that is no number": lambda d: d.update(schema=True),
    "another format": lambda d: d.update(format="x"),
    "no threads": lambda d: d.pop("threads"),
    "a thread that is not there": lambda d: d["threads"].clear(),
    "columns of two lengths": lambda d: d["launches"][0]["each_ns"].pop(),
    "a range that is not there": lambda d: d["launches"][0].update(range=9),
    "a range around itself": lambda d: d["ranges"][0].update(parent=1),
    "a phase that is not there": lambda d: d["launches"][0].update(phase_at=[5, 6]),
    "more samples than launches": lambda d: d["launches"][0].update(launches=1),
    "nobody's launch": lambda d: d["launches"][0].update(kernel=None, op=None),
    "a time out of bounds": lambda d: d["ranges"][0].update(started_ns=[2**62]),
    "a text for a number": lambda d: d["process"].update(pid="7"),
    "no sample": lambda d: d.update(sample_every=0),
}


def test_a_file_of_the_first_schema_stays_readable():
    path = Path(__file__).parents[2] / "data" / "profile_v1.json"
    profile = LaunchProfile.load(path)
    (scan,), (replay,) = profile.rows, profile.ops
    assert (scan.path, scan.layer, scan.launches, scan.failed) == (("step",), 3, 2, 1)
    assert (scan.total_us, scan.median_us, scan.driver_us) == (1.7, 0.825, 1.35)
    assert (replay.op, replay.total_us, replay.median_us) == ("layer", 5.0, 3.0)
    assert [(row.calls, row.wall_us) for row in profile.ranges if row.calls] == [(2, 2.4)]
    assert [row.group for row in profile.by_op] == ["ssd", None]
    timeline = read_timeline(path)
    calls = timeline.calls.select("name", "thread", "start_ns", "end_ns", "find_ns", "driver_ns")
    assert calls.rows() == [("scan", 71, 200, 1050, 90, 700), ("scan", 71, 2150, 2950, 95, 650)]
    spans = timeline.ranges.select("name", "category", "payload", "start_ns", "end_ns").rows()
    assert spans == [
        ("step", "ssd", "3", 100, 1600),
        ("step", "ssd", "3", 2100, 3000),
        ("layer", "op replay", None, 4100, 7100),
    ]


class TestRefusals:
    @pytest.fixture
    def broken(self, c_core, tmp_path):
        launcher = known(named("k"))
        with profile_launches() as profile, annotate("r"):
            launch(launcher, 2)
        path = tmp_path / "p.json"
        profile.save(path)
        whole = json.loads(path.read_bytes())

        def made(change):
            document = json.loads(json.dumps(whole))
            change(document)
            path.write_text(json.dumps(document, sort_keys=True))
            return path

        return made

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_file_that_does_not_hold_together_is_refused(self, broken, change):
        path = broken(CHANGES[change])
        with pytest.raises(BadDocumentError, match=r"p\.json: ") as caught:
            LaunchProfile.load(path)
        assert caught.value.newer == (change == "another schema")
        with pytest.raises(TimelineError):
            read_timeline(path)

    def test_cut_and_damaged_files_are_refused(self, broken):
        path = broken(lambda document: None)
        whole = path.read_bytes()
        packed = gzip.compress(whole)
        for data in (whole[:-9], b"", packed[:-9], packed[:40] + b"\0" * 20 + packed[60:]):
            path.write_bytes(data)
            with pytest.raises(BadDocumentError):
                LaunchProfile.load(path)
            with pytest.raises(TimelineError):
                read_timeline(path)

    def test_what_is_no_file_is_refused(self, tmp_path):
        for path in (tmp_path, tmp_path / "absent", "a\0b"):
            with pytest.raises(BadDocumentError) as refused:
                LaunchProfile.load(path)
            assert "Delete" not in str(refused.value), "where there is no profile to delete"
        with pytest.raises(UsageError, match="no profile to load"):
            LaunchProfile.load()
