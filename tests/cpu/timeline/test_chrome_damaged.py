"""Damaged and odd trace files: read as far as they can be with a warning, or refused plainly."""

from __future__ import annotations

import gzip
import json
import os

import pytest

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.chrome import text
from launchkit.profiling.timeline.chrome.reader import read_chrome

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": f"op {n} é", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5}
    for n in range(40)
]
WHOLE = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "t"})


@pytest.fixture(params=[3, 64, 1 << 20], ids=lambda size: f"pieces of {size}")
def read(request, monkeypatch, tmp_path):
    monkeypatch.setattr(text, "PIECE_BYTES", request.param)

    def made(data, name="trace.json"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_chrome(path)

    return made


def names(timeline):
    return timeline.ranges["name"].to_list()


ALL = [event["name"] for event in EVENTS]


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        json.dumps(EVENTS),
        json.dumps(EVENTS)[:-1],
        json.dumps(EVENTS)[:-1] + ",\n",
        WHOLE.replace("}]", "},]"),
        WHOLE.replace('"traceName"', '"x": NaN, "y": -Infinity, "traceName"'),
        WHOLE.replace(" é", "\t\x01é").replace("\\u00e9", "é"),
    ],
    ids=["whole", "bare list", "open list", "open list, comma", "trailing comma", "NaN", "control"],
)
def test_these_are_whole_traces(read, text):
    timeline = read(text)
    assert len(names(timeline)) == len(ALL)
    assert timeline.warnings == ()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_any_unicode_encoding_is_read(read, encoding):
    timeline = read(json.dumps({"traceEvents": EVENTS}, ensure_ascii=False).encode(encoding))
    assert names(timeline) == ALL
    assert timeline.warnings == ()


def test_bytes_that_are_no_text_are_replaced_and_counted(read):
    timeline = read(WHOLE.replace("op 3 ", "op \udc9c ").encode("utf-8", "surrogateescape"))
    assert len(names(timeline)) == len(ALL)
    assert timeline.warnings == ("1 characters are not utf-8: they stand as \ufffd",)


@pytest.mark.parametrize("cut", [60, 200, 1000, len(WHOLE) - 22])
def test_a_truncated_file_keeps_its_whole_events_and_says_so(read, cut):
    timeline = read(WHOLE[:cut])
    kept = names(timeline)
    assert kept == ALL[: len(kept)]
    assert len(kept) >= WHOLE[:cut].count("}") - 1
    assert any("cut off" in warning for warning in timeline.warnings)


def test_an_event_that_is_no_json_is_skipped_and_counted(read):
    timeline = read(
        WHOLE.replace('"op 5 \\u00e9"', '"op "5" quoted"').replace('"ts": 90', '"ts": x')
    )
    assert names(timeline) == [name for n, name in enumerate(ALL) if n not in (5, 9)]
    counts = timeline.counts["events"]
    assert counts.dropped == {"that are no JSON": 2}
    assert (counts.read, counts.used) == (40, 38)


def test_numbers_beyond_any_type_do_no_harm(read):
    huge = WHOLE.replace('"ts": 90', '"ts": ' + "9" * 5000).replace(
        '"dur": 5}, {"ph"', '"dur": 1e999999}, {"ph"', 1
    )
    timeline = read(huge)
    assert len(names(timeline)) == 38
    assert sum(timeline.counts["events"].dropped.values()) == 2


def test_gzip_members_are_read_on_and_what_follows_them_is_named(read):
    half = len(WHOLE) // 2
    data = gzip.compress(WHOLE[:half].encode()) + gzip.compress(WHOLE[half:].encode())
    assert names(read(data, "t.json.gz")) == ALL
    timeline = read(data + b"junk", "t.json.gz")
    assert names(timeline) == ALL
    assert "behind its gzip data" in timeline.warnings[0]


def test_what_follows_the_json_is_named(read):
    timeline = read(WHOLE + " {}")
    assert names(timeline) == ALL
    assert timeline.warnings == ("what stands behind its JSON was not read",)


def test_a_gz_that_is_none_is_read_as_it_is(read):
    timeline = read(WHOLE, "t.json.gz")
    assert names(timeline) == ALL
    assert timeline.warnings == ("its name ends in .gz, but it is not compressed",)


def test_cut_or_damaged_gzip_is_read_up_to_there(read):
    data = gzip.compress(WHOLE.encode(), 0)
    assert any("cut off" in warning for warning in read(data[: len(data) // 2]).warnings)
    timeline = read(data[:-8] + b"\0" * 8)
    assert names(timeline) == ALL
    assert any("damaged" in warning for warning in timeline.warnings)


def test_a_gzip_bomb_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(text, "BOMB_FREE_BYTES", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * (8 << 20)))
    with pytest.raises(TimelineError, match="more than 300 times its size"):
        read_chrome(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"<html>", "it is not JSON"),
        (b"\0\1\2", "it is not JSON"),
        (b"{}", "has no list traceEvents"),
        (b'{"traceEvents": {"a": 1}}', "has no list traceEvents"),
        (b'{"profiles": [1', "has no list traceEvents"),
        (b"[1, {}]", "not of trace events"),
        (b"[", "not of trace events"),
    ],
)
def test_what_is_no_trace_is_refused(read, data, reason):
    with pytest.raises(TimelineError, match=reason) as caught:
        read(data)
    assert caught.value.advice


def test_deep_nesting_is_no_traceback(read):
    timeline = read('{"traceEvents": [' + "[" * 50_000)
    assert names(timeline) == []
    with pytest.raises(TimelineError):
        read('{"a": ' + "[" * 50_000)


def test_one_endless_value_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("launchkit.profiling.timeline.chrome.events.MAX_VALUE_CHARACTERS", 10_000)
    monkeypatch.setattr(text, "PIECE_BYTES", 1000)
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"name": "' + "x" * 40_000)
    with pytest.raises(TimelineError, match="more than 10000 characters"):
        read_chrome(path)


@pytest.mark.parametrize("name", ["a b'\"?#%.json", "é.json"])
def test_any_file_name_is_taken(read, name):
    assert names(read(WHOLE, name)) == ALL


def test_what_is_no_readable_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in [("", "regular file"), ("fifo", "regular file"), ("loop", "symbolic links"),
                         ("absent", "No such file"), ("a\0b", "null")]:  # fmt: skip
        with pytest.raises(TimelineError, match=reason):
            read_chrome(f"{tmp_path}/{name}")


def test_progress_ends_at_the_files_size(tmp_path):
    path, seen = tmp_path / "t.json", []
    path.write_text(WHOLE)
    read_chrome(path, lambda *told: seen.append(told))
    assert seen[-1] == ("events", len(WHOLE), len(WHOLE))
