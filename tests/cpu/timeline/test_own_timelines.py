"""Saved profiles analysed: the figures of a timeline are those that the recorder has itself."""

from __future__ import annotations

import gzip
import json

import pytest
from recording import known, launch, named

from launchkit.profiling import annotate, profile_launches
from launchkit.profiling.recording import core, range_costs, slots
from launchkit.profiling.recording.calibration import Cost
from launchkit.profiling.timeline import analyse, read_timeline

pytestmark = pytest.mark.usefixtures("host")


def recorded(path, steps=3, layers=4, ops=5):
    kernel = known(named("k"))
    with profile_launches() as profile:
        for _ in range(steps):
            with annotate("step"):
                for layer in range(layers):
                    with annotate("layer", layer=layer):
                        for _ in range(ops):
                            with annotate("op", op="ssd"):
                                launch(kernel)
                        launch(kernel)
    profile.save(path)
    return profile


@pytest.mark.usefixtures("each_core")
class TestEachCore:
    def test_every_launch_is_in_the_ranges_around_it_and_none_cross(self, tmp_path):
        recorded(tmp_path / "p.json")
        found = analyse(read_timeline(tmp_path / "p.json"))
        launches = dict(found.ranges.select("name", "launches").iter_rows())
        assert launches == {"step": 72, "layer": 72, "op": 60}
        assert dict(found.ranges.select("name", "own_launches").iter_rows())["layer"] == 12
        assert found.steps["launches"].to_list() == [24] * 3
        assert not any("cross" in warning for warning in found.warnings)

    def test_times_of_ranges_are_without_the_recorders_share(self, tmp_path, monkeypatch):
        # Where a share is more than a time, the time is 0, in rows of the one and sums of the other.
        for module in (range_costs, core, slots):
            monkeypatch.setattr(module, "cost_of", lambda rounds: Cost(min(rounds) / 2, 1.0))
        profile = recorded(tmp_path / "p.json")
        timeline = read_timeline(tmp_path / "p.json")
        ranges = {row["name"]: row for row in analyse(timeline).ranges.iter_rows(named=True)}
        for name, row in ranges.items():
            own = [each for each in profile.ranges if each.path[-1] == name]
            # Times are whole ns in the file, one rounding for each launch.
            near = {"rel": 0.01, "abs": 0.3}
            assert row["count"] == sum(each.calls for each in own)
            for figure, mine in (
                ("total_ns", "wall_us"),
                ("exclusive_ns", "exclusive_us"),
            ):
                assert row[figure] / 1000 == pytest.approx(
                    sum(getattr(each, mine) for each in own), **near
                ), (name, figure)
        real = timeline.ranges["end_ns"] - timeline.ranges["start_ns"]
        recorder = timeline.ranges["recorder_ns"]
        assert (recorder > 0).all()
        outer = timeline.ranges["name"] == "step"
        # 24 inner ranges in each step took time that is no part of it.
        assert recorder.filter(outer).min() > 24 * profile.calibration.nested.ns - 24
        assert (real >= recorder).all()

    def test_a_range_shorter_than_what_is_not_known_of_recording_it_is_too_short(self, tmp_path):
        profile = recorded(tmp_path / "p.json.gz")
        key = "range_uncertainty_ns"
        document = json.loads(gzip.decompress((tmp_path / "p.json.gz").read_bytes()))
        assert document["calibration"][key] == profile.calibration.range.uncertainty_ns
        found = {}
        for limit_ns in (0, 10**11):
            document["calibration"][key] = float(limit_ns)
            (tmp_path / "p.json").write_text(json.dumps(document))
            verdicts = analyse(read_timeline(tmp_path / "p.json")).verdicts
            found[limit_ns] = set(verdicts["verdict"])
        assert "too short" not in found[0]
        assert found[10**11] == {"too short"}


def test_the_report_says_what_recording_took(tmp_path):
    from launchkit.profiling.report.document import report_document
    from launchkit.profiling.report.lines import recorder_line

    recorded(tmp_path / "p.json")
    line = recorder_line(report_document(analyse(read_timeline(tmp_path / "p.json"))))
    assert line.startswith("Recording took ")
    assert line.count(" ± ") == 2
    assert recorder_line({"source": {"calibration": {}}}) == ""


def test_launches_of_a_replayed_op_are_within_its_replay(c_core, tmp_path):
    import sample_kernels
    import torch
    from sample_ops import counted

    import launchkit

    x = torch.empty(100)

    def copying(x, out, *rest, **options):
        between = torch.empty_like(x)
        for _ in range(12):
            launchkit.launch(sample_kernels.copy, (7,), x, between, 100, 1, BLOCK=16)
        launchkit.launch(sample_kernels.copy, (7,), between, out, 100, 1, BLOCK=16)

    op, _ = counted(copying)
    while op.op_plans.replays < 2:
        op(x, x)
    with profile_launches() as profile, annotate("layer"):
        for _ in range(20):
            op(x, x)
    profile.save(tmp_path / "p.json")
    timeline = read_timeline(tmp_path / "p.json")
    found = analyse(timeline)
    launches = {row["name"]: row["launches"] for row in found.ranges.iter_rows(named=True)}
    (name,) = set(launches) - {"layer"}
    assert launches == {"layer": 260, name: 260}
    replays = found.instances.filter(name=name)
    assert replays["launches"].to_list() == [13] * 20
    assert replays["wall_ns"].sum() / 1000 <= profile.ops[0].total_us + 1


def test_a_profile_without_the_recorders_share_is_read_as_the_first_ones_were(tmp_path):
    recorded(tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_bytes())
    for part in document["ranges"]:
        del part["recorder_ns"]
    (tmp_path / "p.json").write_text(json.dumps(document))
    timeline = read_timeline(tmp_path / "p.json")
    assert timeline.ranges["recorder_ns"].sum() == 0
    lasted = {part["name"]: part["length_ns"] for part in document["ranges"]}
    step = timeline.ranges.filter(name="step")
    assert (step["end_ns"] - step["start_ns"]).to_list() == lasted["step"]


@pytest.mark.parametrize("every", [1, 3])
def test_first_launch_of_a_sample_is_not_cold_as_it_may_be_any(every, tmp_path):
    kernel = known()
    with profile_launches(sample_every=every) as profile:
        launch(kernel, 100)
    profile.save(tmp_path / "p.json")
    found = analyse(read_timeline(tmp_path / "p.json"))
    assert found.calls.height > 10
    assert found.cold.height == (1 if every == 1 else 0)
