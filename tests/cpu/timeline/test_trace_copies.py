"""launchkit profile scrub and slice of chrome traces."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import captures
import pytest
from typer.testing import CliRunner

from launchkit.errors import TimelineError, UsageError
from launchkit.profiling.timeline import read_timeline
from launchkit.profiling.timeline.copies import bounds_of_range, scrub_capture, slice_capture
from launchkit.tools.profile import app

EPOCH_US = 1_795_968_447_413_515
SECRETS = (b"gpu-box-17", b"alice", b"/home/", b"hunter2", b"10.1.2.3", b"secret_arg")


def at(us: int, ns: int = 0) -> Decimal:
    return Decimal(EPOCH_US + us) + Decimal(ns) / 1000


def complete(name, start, lasts, cat="cpu_op", **more):
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": at(start), "dur": lasts,
        **more,
    }  # fmt: skip


EVENTS = [
    complete("step", 0, 900, "user_annotation"),
    complete("aten::mul", 100, 200, args={"External id": 3, "Call stack": "/home/alice/a.py(3): f"}),
    complete("/home/alice/model.py(12): forward", 100, 50, "python_function"),
    complete("cuLaunchKernel", 150, 10, "cuda_driver", args={"correlation": 5, "secret_arg": "x"}),
    complete("kernel_a", 170, 400, "kernel", args={"correlation": 5, "stream": 7, "device": 0,
                                                   "grid": [4, 1, 1], "src": "hunter2"}),
    {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "/home/alice/bin/python3"}},
    {"ph": "B", "name": "half", "cat": "x", "pid": 7, "tid": 7, "ts": at(200, 1), "args": {"a": 1}},
    {"ph": "E", "pid": 7, "tid": 7, "ts": at(800)},
    {"ph": "E", "pid": 7, "tid": 9, "ts": at(800)},
    {"ph": "i", "name": "now at 10.1.2.3", "pid": 7, "tid": 7, "ts": at(300), "s": "t"},
    {"ph": "B", "name": "never ended", "pid": 8, "tid": 8, "ts": at(700)},
]  # fmt: skip
MEMBERS = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": 5,
    "traceName": "/home/alice/trace.json",
    "host": "gpu-box-17",
    "distributedInfo": {"rank": 2, "world_size": 4, "hostname": "gpu-box-17"},
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "uuid": "hunter2"}],
}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "a trace.json.gz"
    data = json.dumps({**MEMBERS, "traceEvents": EVENTS}, default=lambda value: f"@{value}@")
    path.write_bytes(gzip.compress(data.replace('"@', "").replace('@"', "").encode()))
    return path


def read(path):
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return json.loads(data, parse_float=Decimal)


def spans(trace):
    """name -> (start, end) in ns from the epoch of the test."""
    return {
        event["name"]: (
            round((event["ts"] - EPOCH_US) * 1000),
            round((event["ts"] - EPOCH_US + event["dur"]) * 1000),
        )
        for event in trace["traceEvents"]
        if event["ph"] == "X"
    }


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_scrubbed_trace_holds_no_byte_of_what_is_secret(name, trace, tmp_path) -> None:
    assert all(secret in gzip.decompress(trace.read_bytes()) for secret in SECRETS)
    scrub_capture(trace, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert data.startswith(b"\x1f\x8b") == name.endswith(".gz")
    data = gzip.decompress(data) if name.endswith(".gz") else data
    assert [secret for secret in SECRETS if secret in data] == []


def test_scrubbed_trace_keeps_times_ids_and_names(trace, tmp_path) -> None:
    counts = scrub_capture(trace, tmp_path / "out.json")
    made = read(tmp_path / "out.json")
    assert [event.get("ts") for event in made["traceEvents"]] == [
        event.get("ts") for event in EVENTS
    ]
    by_name = {event.get("name"): event for event in made["traceEvents"]}
    assert by_name["kernel_a"]["args"] == {
        "correlation": 5,
        "stream": 7,
        "device": 0,
        "grid": [4, 1, 1],
    }
    assert by_name["process_name"]["args"] == {"name": "python3"}
    assert "model.py(12): forward" in by_name
    assert made["distributedInfo"] == {"rank": 2, "world_size": 4}
    assert made["deviceProperties"] == [{"id": 0, "name": "NVIDIA H200"}]
    assert counts["events"].read == counts["events"].used == len(EVENTS)
    assert counts["events"].noted == {"without some of their arguments": 3}
    assert counts["members"].dropped == {"say where it ran, or are not known": 2}


def test_sliced_trace_is_clipped_to_the_ns(trace, tmp_path) -> None:
    counts = slice_capture(trace, tmp_path / "out.json", 155_500, 300_250)
    assert spans(read(tmp_path / "out.json")) == {
        "step": (155_500, 300_250),
        "aten::mul": (155_500, 300_000),
        "cuLaunchKernel": (155_500, 160_000),
        "kernel_a": (170_000, 300_250),
        "half": (200_001, 300_250),
    }
    found = counts["events"]
    assert found.read == found.used + found.dropped.total() == len(EVENTS)
    assert found.dropped == {"outside the slice": 2, "ends without a begin": 1}
    assert (
        found.noted["clipped at the slice's start"],
        found.noted["clipped at the slice's end"],
    ) == (3, 3)


def test_begin_without_an_end_reaches_into_a_slice(trace, tmp_path) -> None:
    slice_capture(trace, tmp_path / "out.json", 800_000, 900_000)
    begun = [event for event in read(tmp_path / "out.json")["traceEvents"] if event["ph"] == "B"]
    assert [(event["name"], event["ts"]) for event in begun] == [("never ended", at(800))]


def test_slice_of_a_named_event(trace) -> None:
    assert bounds_of_range(trace, "aten::mul") == (100_000, 300_000)
    with pytest.raises(UsageError, match="1 ranges 'aten::mul'"):
        bounds_of_range(trace, "aten::mul", 2)


def test_slice_of_an_own_range_takes_the_name_that_a_report_has(tmp_path) -> None:
    path = tmp_path / "trace.json"
    own = {**complete("launchkit:mixer [layer=3 op=ssd]", 0, 0), "ts": 100, "dur": 40}
    path.write_text(json.dumps({"traceEvents": [{**own, "name": "first", "ts": 90}, own]}))
    assert bounds_of_range(path, "mixer") == (10_000, 50_000)


def test_commands_take_traces(trace, tmp_path) -> None:
    before = trace.read_bytes()
    for number, words in enumerate((["scrub"], ["slice", "--range", "step"])):
        output = tmp_path / f"{number}.json"
        done = CliRunner().invoke(app, [words[0], str(trace), str(output), *words[1:], "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"]["events"]["read"] == len(EVENTS)
    assert trace.read_bytes() == before


def test_text_that_json_cannot_hold_does_not_stop_a_copy(tmp_path) -> None:
    path = tmp_path / "odd.json"
    odd = '{"ph": "X", "name": "a\\ud800b", "ts": 1, "dur": 2, "args": {"big": 123456789012345678901234}}'
    path.write_text(f"[{odd}]")
    slice_capture(path, tmp_path / "out.json", 0, 10_000)
    event = read(tmp_path / "out.json")["traceEvents"][0]
    assert (event["name"], event["args"]["big"]) == ("a?b", "123456789012345678901234")
    scrub_capture(path, tmp_path / "scrubbed.json")
    assert read(tmp_path / "scrubbed.json")["traceEvents"][0]["args"] == {}


@pytest.mark.parametrize("content", [b"", b"[]", b"hello", b'{"a": 1}', b"\x1f\x8bxx"])
def test_what_is_no_trace_is_a_timeline_error_and_leaves_no_file(content, tmp_path) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(TimelineError):
        slice_capture(path, tmp_path / "out.json", 0, 10)
    assert list(tmp_path.iterdir()) == [path]


def test_scrubbed_public_trace_is_the_same_timeline(tmp_path) -> None:
    path = captures.public_sample("chrome", "hta_triton_example.json.gz")
    scrub_capture(path, tmp_path / "out.json.gz")
    whole, scrubbed = (read_timeline(each) for each in (path, tmp_path / "out.json.gz"))
    for table in ("ranges", "calls", "gpu"):
        own = [name for name in getattr(whole, table).columns if name != "name"]
        assert getattr(scrubbed, table).select(own).equals(getattr(whole, table).select(own)), table
