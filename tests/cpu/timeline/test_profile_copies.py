"""launchkit profile scrub and slice: copies of captures that can be shared, and are small."""

from __future__ import annotations

import hashlib
import json
import random
import re
import sqlite3

import captures
import polars as pl
import pytest
import secret_export
from typer.testing import CliRunner

from launchkit.errors import TimelineError, UsageError
from launchkit.profiling.timeline import read_timeline
from launchkit.profiling.timeline.copies.export_rewriting import rewriting
from launchkit.profiling.timeline.copies.export_scrubbing import scrub_export
from launchkit.profiling.timeline.copies.export_slicing import range_bounds, slice_export
from launchkit.profiling.timeline.copies.scrubbed_text import Cleaner, without_paths
from launchkit.tools.profile import app


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "export.sqlite"
    secret_export.write_export(path)
    return path.read_bytes()


@pytest.fixture
def capture(tmp_path, written):
    path = tmp_path / "a capture?#%41.sqlite"  # a URI would read these otherwise
    path.write_bytes(written)
    return path


def rows(path, query):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_scrubbed_copy_holds_no_byte_of_what_is_secret(capture, tmp_path) -> None:
    assert all(secret in capture.read_bytes() for secret in secret_export.SECRETS)
    scrub_export(capture, tmp_path / "out.sqlite")
    data = (tmp_path / "out.sqlite").read_bytes()
    assert [secret for secret in secret_export.SECRETS if secret in data] == []


def test_scrubbed_copy_keeps_times_names_and_versions(capture, tmp_path) -> None:
    out = tmp_path / "out.sqlite"
    scrub_export(capture, out)
    times = "SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert rows(out, times) == secret_export.KERNELS
    assert rows(out, "SELECT start, end, eventType, textId FROM NVTX_EVENTS") == [
        (start, end, kind, string) for start, end, kind, _, string in secret_export.RANGES
    ]
    assert [text for (text,) in rows(out, "SELECT text FROM NVTX_EVENTS")] == [
        "step", None, "load model.py:12", "asked (url) of (hidden)", "mark",
        "ends with the capture", "launchkit",
    ]  # fmt: skip
    assert dict(rows(out, "SELECT id, value FROM StringIds")) == {
        1: "layer0", 2: "cudaLaunchKernel_v7000", 3: "my_kernel", 4: "python3"
    }  # fmt: skip
    assert rows(out, "SELECT name FROM META_DATA_EXPORT") == [
        ("EXPORT_SCHEMA_VERSION",), ("EXPORT_SCHEMA_VERSION_MAJOR",)
    ]  # fmt: skip
    assert rows(out, "SELECT pid, name FROM PROCESSES") == [(secret_export.PID, "python3")]
    assert rows(out, "SELECT name, uuid, smCount FROM TARGET_INFO_GPU") == [
        ("NVIDIA H200", None, 132)
    ]


def test_text_in_a_number_s_column_is_scrubbed(capture, tmp_path) -> None:
    connection = sqlite3.connect(capture)
    connection.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 'alice'")
    connection.commit()
    connection.close()
    scrub_export(capture, tmp_path / "out.sqlite")
    assert b"alice" not in (tmp_path / "out.sqlite").read_bytes()


def test_scrub_counts_every_row_it_leaves_out(capture, tmp_path) -> None:
    counts = scrub_export(capture, tmp_path / "out.sqlite")
    for table, of_table in counts:
        assert of_table.read == of_table.used + of_table.dropped.total(), table
        assert of_table.read == rows(capture, f"SELECT count(*) FROM {table}")[0][0]
    assert counts["OF_A_NEWER_EXPORT"].dropped == {"of a table that scrub does not keep": 1}
    assert counts["PROCESSES"].dropped == {"of another process": 1}


def test_slice_clips_what_crosses_its_edges_and_drops_only_what_is_outside(
    capture, tmp_path
) -> None:
    out = tmp_path / "out.sqlite"
    counts = slice_export(capture, out, 255, 600)
    assert rows(out, "SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL") == [
        (255, 500, 1), (500, 600, 2)
    ]  # fmt: skip
    assert rows(out, "SELECT start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME") == [(255, 260)]
    assert rows(out, "SELECT start, end, eventType FROM NVTX_EVENTS") == [
        (255, 600, 59), (255, 400, 59), (450, 600, 59), (500, 500, 34), (300, None, 60),
        (-50, None, 75),
    ]  # fmt: skip
    assert counts["CUPTI_ACTIVITY_KIND_KERNEL"].noted == {
        "clipped at the slice's start": 1,
        "clipped at the slice's end": 1,
    }
    assert counts["CUPTI_ACTIVITY_KIND_KERNEL"].dropped == {"outside the slice": 1}
    assert dict(rows(out, "SELECT * FROM META_DATA_EXPORT"))["LAUNCHKIT_SLICE_END_NS"] == "600"


def test_slice_has_the_busy_time_that_the_capture_has_in_it(capture, tmp_path) -> None:
    slice_export(capture, tmp_path / "out.sqlite", 300, 1000)
    found = rows(tmp_path / "out.sqlite", "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL")
    busy = {at for start, end in found for at in range(start, end)}
    wanted = {at for start, end, _ in secret_export.KERNELS for at in range(start, end)}
    assert busy == {at for at in wanted if 300 <= at < 1000}


def test_open_range_reaches_into_a_slice_and_stays_open(capture, tmp_path) -> None:
    slice_export(capture, tmp_path / "out.sqlite", 1000, 1100)
    ranges = rows(tmp_path / "out.sqlite", "SELECT start, end FROM NVTX_EVENTS WHERE eventType=60")
    assert ranges == [(1000, None), (1000, None)]


def test_slice_of_a_sample_is_read_with_its_ranges_clipped_and_closed(tmp_path) -> None:
    path = captures.nsys_sample()
    start_ns, end_ns = range_bounds(path, "step1")
    slice_export(path, tmp_path / "out.sqlite", start_ns, end_ns)
    whole, part = (read_timeline(each) for each in (path, tmp_path / "out.sqlite"))
    inside = whole.gpu.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns))
    edges = (pl.col("start_ns").clip(start_ns), pl.col("end_ns").clip(None, end_ns))
    assert part.gpu.select("start_ns", "end_ns", "name").equals(inside.select(*edges, "name"))
    steps = part.ranges.filter(pl.col("name") == "step1")
    assert steps.select("start_ns", "end_ns", "closed").rows() == [(start_ns, end_ns, True)]
    outer = part.ranges.filter(pl.col("name") == "worker")
    assert outer.select("start_ns", "end_ns", "closed").rows() == [(start_ns, end_ns, True)]


def test_scrubbed_sample_is_the_same_timeline(tmp_path) -> None:
    path = captures.nsys_sample()
    scrub_export(path, tmp_path / "out.sqlite")
    whole, scrubbed = (read_timeline(each) for each in (path, tmp_path / "out.sqlite"))
    for table in ("ranges", "calls", "gpu", "overheads", "threads", "devices", "processes"):
        assert getattr(scrubbed, table).equals(getattr(whole, table)), table


def test_slice_of_a_range_is_its_time(capture) -> None:
    assert range_bounds(capture, "layer0") == (150, 400)
    with pytest.raises(UsageError, match="1 ranges 'layer0'"):
        range_bounds(capture, "layer0", 2)


@pytest.mark.parametrize("command", ["scrub", "slice"])
def test_capture_is_never_written_to(command, capture, tmp_path) -> None:
    before, names = hashlib.sha256(capture.read_bytes()).digest(), set(tmp_path.iterdir())
    more = ["--range", "step", "--margin", "10ns"] if command == "slice" else []
    done = run(command, capture, tmp_path / "out.sqlite", *more, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"]["CUPTI_ACTIVITY_KIND_KERNEL"]["read"] == 3
    for output in (capture, tmp_path / "out.sqlite"):
        refused = run(command, capture, output, *more).exception
        assert isinstance(refused, UsageError)
        assert re.search("itself|exists", str(refused))
    assert hashlib.sha256(capture.read_bytes()).digest() == before
    assert set(tmp_path.iterdir()) - names == {tmp_path / "out.sqlite"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Give --from and --to, or --range"),
        (["--from", "1ms"], "Give --from and --to, or --range"),
        (["--from", "1", "--to", "2ms"], "is no time"),
        (["--from", "2ms", "--to", "1ms"], "is empty"),
        (["--range", "nowhere"], "0 ranges 'nowhere'"),
    ],
)
def test_slice_without_a_time_says_what_to_give(options, message, capture, tmp_path) -> None:
    done = run("slice", capture, tmp_path / "out.sqlite", *options)
    assert isinstance(done.exception, UsageError)
    assert re.search(message, str(done.exception))
    assert not (tmp_path / "out.sqlite").exists()


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"PK\x03\x04", b"not a database"])
def test_what_is_no_export_is_a_timeline_error_and_leaves_no_file(content, tmp_path) -> None:
    path = tmp_path / "odd.sqlite"
    path.write_bytes(content)
    with pytest.raises(TimelineError, match="nsys export"):
        scrub_export(path, tmp_path / "out.sqlite")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_export_is_copied_or_refused_and_leaves_no_file(seed, capture, tmp_path) -> None:
    whole, rng = capture.read_bytes(), random.Random(seed)
    path, out = tmp_path / "damaged.sqlite", tmp_path / "out.sqlite"
    refused = 0
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 5, 40])):
            data[rng.randrange(100, len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        for copy in (lambda: scrub_export(path, out), lambda: slice_export(path, out, 200, 600)):
            try:
                copy()
            except TimelineError:
                refused += 1
        assert {each.name for each in tmp_path.iterdir()} <= {capture.name, path.name, out.name}
    assert refused


def test_truncated_export_is_a_timeline_error_and_leaves_no_file(capture, tmp_path) -> None:
    capture.write_bytes(capture.read_bytes()[:9000])
    with pytest.raises(TimelineError, match="cannot be read as an export"):
        slice_export(capture, tmp_path / "out.sqlite", 0, 10)
    assert list(tmp_path.iterdir()) == [capture]


def test_changes_that_are_in_the_log_only_are_refused(capture, tmp_path) -> None:
    (tmp_path / (capture.name + "-wal")).write_bytes(b"x")
    with pytest.raises(TimelineError, match="changes that are not in it"):
        scrub_export(capture, tmp_path / "out.sqlite")


def test_failure_keeps_what_the_output_held(capture, tmp_path) -> None:
    out = tmp_path / "out.sqlite"
    out.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), rewriting(capture, out):
        raise ZeroDivisionError
    assert out.read_bytes() == b"before"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("/home/me/x.py", "x.py"),
        ("/home/me/My Files/x.py", "x.py"),
        ("load C:\\Users\\me\\x.py now", "load x.py now"),
        ("see file:///home/me/x.py", "see (url)"),
        ("~me/notes/x.txt", "x.txt"),
        ("\\\\server\\share\\x.bin", "x.bin"),
        ("layer/0/mixer", "layer/0/mixer"),
        ("a / b", "a / b"),
        ("mixer (src/model.py:3)", "mixer (src/model.py:3)"),
        ("call(/opt/x/y.so)", "call(y.so)"),
        ("µs/step 日本", "µs/step 日本"),
    ],
)
def test_paths_lose_their_directories_and_names_stay(text, cleaned) -> None:
    assert without_paths(text) == cleaned


def test_hosts_users_and_addresses_are_hidden_as_whole_words_only() -> None:
    cleaner = Cleaner(["box7", "ann", "root", "x"])
    assert cleaner.clean("rank 0 on BOX7 by ann@b.c") == "rank 0 on (hidden) by (address)"
    assert cleaner.clean("annotate root at 10.0.0.1:80, v1.2") == "annotate root at (address), v1.2"
