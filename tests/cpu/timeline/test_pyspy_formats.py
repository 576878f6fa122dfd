"""py-spy's three formats, whole and damaged: stacks, or a clear refusal, and every row counted."""

from __future__ import annotations

import json

import pytest
from sampled import IDENT, MS, PID, event, frame, trace, written

from launchkit.errors import TimelineError
from launchkit.profiling.sampling import pyspy
from launchkit.profiling.timeline import read_timeline

MAIN, LEAF = frame("<module>"), frame("leaf", "/lib (x)/a b.py", 9)


def read(tmp_path, text, name="it"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return pyspy.read(path)


def test_chrometrace_gives_each_stretch_of_an_equal_stack(tmp_path) -> None:
    events = trace([(10, 20, [MAIN]), (20, 50, [MAIN, LEAF]), (50, 51, [MAIN])])
    stacks = pyspy.read(written(tmp_path / "t.json", events))
    outer, inner = "<module> (script.py:3)", "leaf (/lib (x)/a b.py:9)"
    assert [
        (each.start_ns, each.end_ns, stacks.stacks[each.stack]) for each in stacks.stretches
    ] == [
        (10_000, 20_000, (outer,)),
        (20_000, 50_000, (outer, inner)),
        (50_000, 51_000, (outer,)),
    ]
    assert {(each.process, each.thread) for each in stacks.stretches} == {(PID, IDENT)}
    assert not stacks.dropped


def test_the_frame_that_names_a_process_is_no_frame(tmp_path) -> None:
    named = frame('process 7:"python x.py"', "", 0)
    stacks = pyspy.read(written(tmp_path / "t.json", trace([(0, 9, [named, MAIN])])))
    assert stacks.stacks[stacks.stretches[0].stack] == ("<module> (script.py:3)",)


def test_events_that_are_none_are_counted(tmp_path) -> None:
    good = trace([(0, 5, [MAIN])])
    bad = [3, {"ph": "M"}, {**good[0], "ts": -1}, {**good[0], "ts": "1"}, {**good[0], "pid": True},
           event("E", MAIN, 9, tid=1), event("B", MAIN, 9, tid=2)]  # fmt: skip
    stacks = pyspy.read(written(tmp_path / "t.json", good + bad))
    assert stacks.read == len(good) + len(bad)
    assert dict(stacks.dropped) == {
        "that are no begin or end of a frame": 5,
        "that end a frame that did not begin": 1,
        "that begin a frame that does not end": 1,
    }
    assert len(stacks.stretches) == 1


def test_raw_lines_may_have_anything_in_their_names(tmp_path) -> None:
    text = (
        "<module> (a b (c).py:1);f (x.py:2) 3\r\n"
        'process 20070:"v/bin/python sub.py";thread (71): MainThread;g (y.py:1) 2\n'
        "0x7fdeb4e4524a (libc.so.6) 1\n"
        "no count\nzero (z.py:1) 0\nhalf (z.py:1) 1.5\n\n"
    )
    stacks = read(tmp_path, text, "x.raw")
    found = [(each.process, each.thread, stacks.stacks[each.stack], each.weight)
             for each in stacks.stretches]  # fmt: skip
    assert found == [
        (-1, -1, ("<module> (a b (c).py:1)", "f (x.py:2)"), 3),
        (20070, 71, ("g (y.py:1)",), 2),
        (-1, -1, ("0x7fdeb4e4524a (libc.so.6)",), 1),
    ]
    assert (stacks.read, stacks.dropped.total()) == (6, 3)


def speedscope(**changes):
    profile = {"type": "sampled", "name": 'Thread 13100 "MainThread"', "unit": "none",
               "samples": [[0, 1], [0]], "weights": [0.01, 0.01]}  # fmt: skip
    frames = [{"name": "main", "file": "m.py", "line": 4, "col": None}, {"name": "native"}]
    return {"$schema": "https://www.speedscope.app/file-format-schema.json",
            "profiles": [{**profile, **changes}], "shared": {"frames": frames}}  # fmt: skip


def test_speedscope_samples_are_counted_one_by_one(tmp_path) -> None:
    stacks = read(tmp_path, json.dumps(speedscope()), "s.json")
    assert [stacks.stacks[each.stack] for each in stacks.stretches] == [
        ("main (m.py:4)", "native"),
        ("main (m.py:4)",),
    ]
    assert {(each.thread, each.weight) for each in stacks.stretches} == {(13100, 1.0)}


@pytest.mark.parametrize(
    ("changes", "used", "dropped"),
    [
        ({"weights": [0.01]}, 1, 1),
        ({"samples": [[0], [2], [-1], [], "x"], "weights": [1] * 5}, 1, 4),
    ],
)
def test_uneven_speedscope_loses_only_what_is_wrong(tmp_path, changes, used, dropped) -> None:
    stacks = read(tmp_path, json.dumps(speedscope(**changes)), "s.json")
    assert (len(stacks.stretches), stacks.dropped.total(), stacks.read) == (
        used,
        dropped,
        used + dropped,
    )


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[{", '{"profiles": []}', "no count at all", "\0\0\0", "[1, 2]",
     json.dumps(speedscope(type="evented")), json.dumps(speedscope(samples=None))],
)  # fmt: skip
def test_a_file_without_samples_is_refused(tmp_path, text) -> None:
    with pytest.raises(TimelineError) as raised:
        read(tmp_path, text)
    assert str(raised.value).endswith("--py-spy -- ...")


def test_report_reads_each_format_by_what_is_in_it(tmp_path) -> None:
    texts = {
        "raw": "main (m.py:1);f (f.py:2) 40\n",
        "speedscope": json.dumps(speedscope()),
        "chrometrace": json.dumps(trace([(0, 20_000, [MAIN]), (20_000, 30_000, [LEAF])])),
    }
    for form, text in texts.items():
        path = tmp_path / "any name"
        path.write_text(text, encoding="utf-8")
        timeline = read_timeline(path)
        assert (timeline.source.format, timeline.source.schema) == ("py-spy", form)
        assert (
            timeline.samples["weight"].sum() == {"raw": 40, "speedscope": 2, "chrometrace": 3}[form]
        )
    assert timeline.samples["time_ns"].to_list() == [0, 20 * MS]
