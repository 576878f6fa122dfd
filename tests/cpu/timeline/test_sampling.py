"""What py-spy saw and what processes noted, put together: clocks, threads, and every row counted."""

from __future__ import annotations

import gzip
import itertools
import random

import pytest
from sampled import IDENT, MS, NATIVE, PID, frame, mark_frame, session, trace, written

from launchkit.errors import BadDocumentError, TimelineError
from launchkit.profiling.sampling import pyspy, samples_file
from launchkit.profiling.sampling.clock_marks import Mark, Seen, leave_marks, number_of, offset_of
from launchkit.profiling.sampling.combining import Sampler, combined
from launchkit.profiling.timeline import read_timeline

SAMPLER = Sampler("0.4.3", 1000, False, False, 10, 0)
START = 5_000 * MS
MAIN, INNER = frame("<module>"), frame("inner")


def late_sights(dice, offset_ns, interval_ns, number):
    """Marks as a sampler sees them: each edge at its first look behind it."""
    phase = dice.randrange(interval_ns)
    for each in range(number):
        start = 1_000_000 + each * 4 * interval_ns + dice.randrange(interval_ns)
        end = start + 2 * interval_ns + dice.randrange(interval_ns)
        edges = [phase + -((phase - edge) // interval_ns) * interval_ns for edge in (start, end)]
        yield Seen(Mark(each, start, end), edges[0] + offset_ns, edges[1] + offset_ns)


def test_offset_is_found_to_within_what_it_says() -> None:
    dice = random.Random(3)
    for _ in range(50):
        offset_ns = dice.randrange(-(10**12), 10**12)
        found = offset_of(list(late_sights(dice, offset_ns, 2 * MS, 24)), 2 * MS)
        assert found is not None
        assert found.marks == 24
        assert 0 <= found.offset_ns - offset_ns <= 8 * found.uncertainty_ns
        assert found.uncertainty_ns < MS
    assert offset_of([], MS) is None


def test_marks_run_in_functions_of_their_own_names_one_after_the_other() -> None:
    marks = leave_marks(100_000, first=30)
    assert [mark.number for mark in marks] == list(range(30, 30 + len(marks)))
    assert all(one.end_ns < other.start_ns for one, other in itertools.pairwise(marks))
    assert all(mark.end_ns - mark.start_ns >= 240_000 for mark in marks)
    assert number_of("launchkit_clock_mark_31 (x.py:1)") == 31
    assert number_of("not_launchkit_clock_mark_31 (x.py:1)") is None


def put_together(tmp_path, stretches, **noted):
    """The timeline of a file of samples: py-spy's clock is 3 ms behind the process's, less START."""
    marked = [(1_000, 3_000, [MAIN, mark_frame(0)]), (4_000, 7_000, [MAIN, mark_frame(1)]),
              (7_000, stretches[0][0], [frame("between")])]  # fmt: skip
    stacks = pyspy.read(written(tmp_path / "t.json", trace([*marked, *stretches])))
    marks = [(0, START + 4 * MS, START + 6 * MS), (1, START + 7 * MS, START + 10 * MS)]
    document = combined(stacks, [session(marks=marks, start_ns=START, **noted)], SAMPLER)
    path = tmp_path / "samples.json.gz"
    samples_file.write(path, document)
    return read_timeline(path)


def test_samples_stand_on_the_clock_and_thread_of_the_ranges(tmp_path) -> None:
    visits = [("step", START + 20 * MS, START + 30 * MS)]
    found = put_together(tmp_path, [(17_000, 22_000, [MAIN, INNER])], visits=visits)
    assert found.ranges.select("process", "thread", "name", "start_ns", "end_ns").rows() == [
        (PID, NATIVE, "step", 20 * MS, 30 * MS)
    ]
    inner = found.samples.filter(found.samples["frames"].list.last() == "inner (script.py:3)")
    assert inner.select("process", "thread", "time_ns", "seen_ns").rows() == [
        (PID, NATIVE, at * MS, seen * MS)
        for at, seen in ((20, 20), (21, 21), (22, 21), (23, 21), (24, 21))
    ]  # the last three may have been seen no more
    assert found.source.calibration["clock_uncertainty_ns"] == MS // 5
    assert found.counts["ranges"].used == 1
    counts = found.counts["samples"]
    assert counts.dropped["of the capture itself"] == 6
    assert counts.read == counts.used + counts.dropped.total() == found.samples.height + 6


def test_a_pthread_that_is_used_again_is_the_thread_of_its_time(tmp_path) -> None:
    threads = [{"ident": IDENT, "native_id": native, "name": "w", "since_ns": START + since,
                "range": [], "start_ns": [], "end_ns": []}
               for native, since in ((81, 0), (82, 20 * MS))]  # fmt: skip
    found = put_together(
        tmp_path,
        [(9_000, 10_000, [INNER]), (18_000, 19_000, [MAIN])],
        threads=threads,
    )
    times = found.samples.filter(found.samples["time_ns"] >= 12 * MS).select("time_ns", "thread")
    assert dict(times.rows())[12 * MS] == 81
    assert dict(times.rows())[21 * MS] == 82


def test_without_a_mark_no_range_is_claimed(tmp_path) -> None:
    stacks = pyspy.read(written(tmp_path / "t.json", trace([(0, 5_000, [MAIN])])))
    visits = [("step", START, START + MS)]
    samples_file.write(tmp_path / "s.json", combined(stacks, [session(visits)], SAMPLER))
    found = read_timeline(tmp_path / "s.json")
    assert found.ranges.is_empty()
    assert found.samples.height == 5
    assert found.counts["ranges"].dropped == {"not on the samples' clock": 1}
    assert any("clocks could not be set" in warning for warning in found.warnings)


def test_what_else_went_wrong_is_a_warning(tmp_path) -> None:
    stacks = pyspy.read(written(tmp_path / "t.json", trace([(0, 5_000, [MAIN])], pid=9)))
    sampler = SAMPLER._replace(samples=100, errors=4)
    samples_file.write(tmp_path / "s.json", combined(stacks, [session(lost=2)], sampler))
    found = read_timeline(tmp_path / "s.json")
    told = " ".join(found.warnings)
    assert "no time is taken from this run" in told
    assert "left no ranges (killed, forked, or without launchkit): 9" in told
    assert "could not read 4 of 104 samples" in told
    assert "fell behind. What it saw last stands for the time that it missed" in told
    assert found.counts["ranges"].dropped["that could not be kept"] == 2


def test_paths_are_cut_to_what_follows_a_librarys_folder(tmp_path) -> None:
    frames = [frame("a", "/home/me/v/lib/python3.11/site-packages/torch/x.py"),
              frame("b", "/usr/lib/python3.11/threading.py"), frame("c", "/home/me/own.py")]  # fmt: skip
    stacks = pyspy.read(written(tmp_path / "t.json", trace([(0, 5_000, frames)])))
    assert combined(stacks, [], SAMPLER)["frames"] == [
        "a (torch/x.py:3)", "b (python3.11/threading.py:3)", "c (/home/me/own.py:3)",
    ]  # fmt: skip


def test_stacks_without_times_are_refused(tmp_path) -> None:
    (tmp_path / "x.raw").write_text("f (x.py:1) 3\n")
    with pytest.raises(TimelineError, match="no times"):
        combined(pyspy.read(tmp_path / "x.raw"), [session()], SAMPLER)


def broken():
    document = {"clock": None, "sampler": SAMPLER._asdict(), "processes": [], "threads": [],
                "frames": ["f"], "stacks": [[0]], "names": [], "dropped": {}, "lost": 0,
                "samples": {"process": [1], "thread": [1], "time_ns": [1], "count": [1], "stack": [0]},
                "visits": {"process": [], "thread": [], "name": [], "start_ns": [], "end_ns": []},
                }  # fmt: skip
    yield "uneven columns", {**document, "samples": {**document["samples"], "stack": []}}
    yield "an unknown stack", {**document, "samples": {**document["samples"], "stack": [1]}}
    yield "an unknown frame", {**document, "stacks": [[1]]}
    yield "no samples", {name: part for name, part in document.items() if name != "samples"}
    yield "a count of 0", {**document, "samples": {**document["samples"], "count": [0]}}
    yield "text for a number", {**document, "lost": "1"}


@pytest.mark.parametrize("members", [pytest.param(made, id=what) for what, made in broken()])
def test_a_file_of_samples_that_does_not_fit_is_refused(tmp_path, members) -> None:
    path = tmp_path / "s.json"
    samples_file.write(path, members)
    with pytest.raises(BadDocumentError):
        samples_file.read(path)
    with pytest.raises(TimelineError):
        read_timeline(path)


def test_a_newer_or_damaged_file_of_samples_is_refused(tmp_path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(b'{"capture":"py-spy","schema":2}')
    with pytest.raises(TimelineError, match="Upgrade"):
        read_timeline(path)
    path.write_bytes(gzip.compress(b'{"capture":"py-spy","schema":1}')[:-9])
    with pytest.raises(TimelineError):
        read_timeline(path)
