"""launchkit profile scrub and slice of launchkit's own profiles."""

from __future__ import annotations

import json

import pytest
from recording import known, launch, named
from typer.testing import CliRunner

from launchkit.errors import TimelineError, UsageError
from launchkit.profiling import LaunchProfile, annotate, profile_launches
from launchkit.profiling.timeline import analyse, read_timeline
from launchkit.profiling.timeline.copies import bounds_of_range, scrub_capture, slice_capture
from launchkit.tools.profile import app

pytestmark = pytest.mark.usefixtures("host")


@pytest.fixture
def capture(tmp_path):
    kernel = known(named("k"))
    with profile_launches(samples_per_row=50) as profile:
        for _ in range(3):
            with annotate("step"):
                for layer in range(2):
                    with annotate("load /home/mallory/model.py", layer=layer, op="ssd"):
                        launch(kernel, 4)
    path = tmp_path / "p.json.gz"
    profile.save(path)
    return path


def test_scrubbed_profile_has_every_figure_and_no_path(capture, tmp_path):
    out = tmp_path / "out.json"
    counts = scrub_capture(capture, out)
    assert b"mallory" not in out.read_bytes()
    assert counts["ranges"].noted == {"names were shortened": 2}
    one, other = (LaunchProfile.load(path).to_dict() for path in (capture, out))
    names = {row["path"][-1] for row in other["ranges"]}
    assert names == {"step", "load model.py"}
    for before, after in zip(one["ranges"], other["ranges"], strict=True):
        assert {**before, "path": after["path"]} == after


def test_slice_of_a_step_has_that_step_and_its_launches_alone(capture, tmp_path):
    out = tmp_path / "out.json.gz"
    start_ns, end_ns = bounds_of_range(capture, "step", 2)
    counts = slice_capture(capture, out, start_ns, end_ns)
    assert (counts["launches"].read, counts["launches"].used) == (24, 8)
    whole, part = analyse(read_timeline(capture)), analyse(read_timeline(out))
    assert part.steps["wall_ns"].to_list() == whole.steps["wall_ns"].to_list()[1:2]
    assert part.steps["launches"].to_list() == [8]
    assert part.ranges.filter(name="step")["exclusive_ns"].item() == pytest.approx(
        whole.instances.filter(name="step")["exclusive_ns"][1], abs=3
    )
    (row,) = [row for row in LaunchProfile.load(out).ranges if row.path == ("step",)]
    recorded = LaunchProfile.load(capture).by_step("step")[1]
    assert (row.calls, row.launches) == (1, recorded.launches)
    assert row.wall_us == pytest.approx(recorded.wall_us, abs=0.01)


def test_what_crosses_the_edge_of_a_slice_is_clipped(capture, tmp_path):
    out = tmp_path / "out.json"
    low, high = bounds_of_range(capture, "step", 2)
    middle = (low + high) // 2
    slice_capture(capture, out, middle, high + 10**9)
    ranges = read_timeline(out).ranges
    steps = ranges.filter(name="step").sort("start_ns")
    assert steps["start_ns"].to_list()[0] == middle
    assert steps["end_ns"].to_list()[0] == high
    assert steps.height == 2
    assert (ranges["start_ns"] >= middle).all()


def test_launches_kept_as_totals_are_counted_as_left_out(tmp_path):
    kernel = known(named("k"))
    with profile_launches(samples_per_row=3) as profile:
        launch(kernel, 10)
    profile.save(tmp_path / "p.json")
    counts = slice_capture(tmp_path / "p.json", tmp_path / "out.json", 0, 10**12)
    assert counts["launches"].dropped == {"kept as totals only": 7}
    assert [row.launches for row in LaunchProfile.load(tmp_path / "out.json").rows] == [3]


def test_commands_copy_profiles_and_never_write_to_them(capture, tmp_path):
    before, runner = capture.read_bytes(), CliRunner()
    for arguments in (["scrub"], ["slice", "--range", "step", "--margin", "1us"]):
        name, *options = arguments
        out = tmp_path / f"{name}.json.gz"
        done = runner.invoke(app, [name, str(capture), str(out), *options, "--json"])
        assert done.exit_code == 0, done.output
        rows = json.loads(done.stdout)["rows"]
        assert all(each["read"] >= each["used"] > 0 for each in rows.values())
        assert out.read_bytes()[:2] == b"\x1f\x8b"
    assert capture.read_bytes() == before
    with pytest.raises(UsageError, match="3 ranges 'step'"):
        bounds_of_range(capture, "step", 4)
    with pytest.raises(UsageError, match="such as 'step'"):
        bounds_of_range(capture, "step 1")
    with pytest.raises(UsageError, match="is empty"):
        slice_capture(capture, tmp_path / "x.json", 5, 5)


def test_a_profile_that_is_damaged_is_a_timeline_error_and_leaves_no_file(capture, tmp_path):
    document = json.dumps({"calibration": {}, "format": "launchkit-profile", "schema": 1})
    capture.with_name("bad.json").write_text(document)
    with pytest.raises(TimelineError, match="Save the profile again"):
        scrub_capture(tmp_path / "bad.json", tmp_path / "out.json")
    assert {path.name for path in tmp_path.iterdir()} == {"p.json.gz", "bad.json"}
