"""read_timeline: what a path may be, and an error that says what to do where it is no capture."""

from __future__ import annotations

import errno
import gzip
import os
import sqlite3
from pathlib import Path

import captures
import nsys_exports as made
import polars as pl
import pytest

from launchkit.errors import TimelineError
from launchkit.profiling.timeline import read_timeline

TABLES = ("ranges", "calls", "gpu", "overheads", "processes", "threads", "devices")
LAUNCH = {"calls": [made.call(10, 20, correlation=1)], "kernels": [made.kernel(30, 40, 1)],
          "nvtx": [made.nvtx(0, 50, "step")]}  # fmt: skip
SQLITE = b"SQLite format 3\0"


def refused(path):
    with pytest.raises(TimelineError) as caught:
        read_timeline(path)
    assert caught.value.path.startswith(str(path))
    assert str(caught.value).endswith(caught.value.advice)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "reason", "advice"),
    [
        ("a.sqlite", b"", "it is empty", "again"),
        ("a.nsys-rep", b"\x00\x01report", "report of Nsight Systems", "nsys export -t sqlite"),
        ("a.qdrep", b"\x00\x01report", "report of Nsight Systems", "nsys export -t sqlite"),
        ("a.qdstrm", b"\x00\x01stream", "raw stream", "QdstrmImporter"),
        ("a.ncu-rep", b"NVR\0", "Nsight Compute", "nsys profile"),
        ("a.sqlite", b"\n <!DOCTYPE html><html>", "web page", "Download"),
        ("a.sqlite", gzip.compress(SQLITE + bytes(84)), "compressed export", "gunzip"),
        ("a.parquet", b"PAR1....", "one table", "parquetdir"),
        ("a.zip", b"PK\3\4....", "archive", "Unpack"),
        ("a.sqlite", b"\x7fELF\2\1", "no known format", "docs/profiling.md"),
        ("a.sqlite", SQLITE[:9], "no known format", "docs/profiling.md"),
        ("a.sqlite", SQLITE, "SQLite cannot read it", "export it again"),
        ("a.sqlite", SQLITE + bytes(4000), "SQLite cannot read it", "export it again"),
    ],
)
def test_what_is_no_capture_says_what_it_is_and_what_to_do(tmp_path, name, content, reason, advice):
    path = tmp_path / name
    path.write_bytes(content)
    said = refused(path)
    assert reason in said
    assert advice in said


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_an_export_that_was_cut_off_is_an_error(tmp_path, kept):
    whole = captures.nsys_sample().read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert "malformed" in refused(path)


def test_another_database_is_no_export(tmp_path):
    path = made.write_sqlite(tmp_path / "other.sqlite", {"users": [{"id": 1}]})
    assert "its tables: users" in refused(path)


def test_rows_in_the_log_beside_an_export_are_read_and_nothing_is_touched(tmp_path):
    path = made.export(tmp_path, **LAUNCH)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute(
        'INSERT INTO NVTX_EVENTS ("start", "end", eventType, text) VALUES (60, 70, 59, "x")'
    )
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert "export.sqlite-wal" in before
    assert read_timeline(path).ranges["name"].to_list() == ["x", "step"]
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    writer.close()


def test_an_export_that_says_it_has_a_log_is_read_without_it(tmp_path):
    path = made.export(tmp_path, **LAUNCH)
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.close()
    tmp_path.chmod(0o500)
    try:
        assert read_timeline(path).ranges.height == 1
    finally:
        tmp_path.chmod(0o700)
    assert [each.name for each in tmp_path.iterdir()] == ["export.sqlite"]


def test_a_locked_export_is_read(tmp_path):
    path = made.export(tmp_path, **LAUNCH)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert read_timeline(path).calls.height == 1
    holder.execute("ROLLBACK")
    holder.close()


@pytest.mark.parametrize("name", ["a b.sqlite", "50%25.sqlite", "it's?x=1.sqlite", '#1 "q".sqlite'])
def test_a_path_may_hold_what_means_something_in_a_uri(tmp_path, name):
    path = made.export(tmp_path, **LAUNCH)
    assert read_timeline(path.rename(tmp_path / name)).calls.height == 1
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_paths_that_lead_nowhere_are_errors(tmp_path):
    assert "No such file" in refused(tmp_path / "absent.sqlite")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "symbolic links" in refused(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    assert "pipe or a device" in refused(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    nothing = refused(tmp_path / "empty")
    assert "without .parquet or .arrow" in nothing
    assert "launchkit profile made" in nothing


def test_a_file_without_permission_is_an_error(tmp_path, monkeypatch):
    # Root, which tests may run as, may read every file.
    def denied(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    assert "Permission denied" in refused(made.export(tmp_path, **LAUNCH))


@pytest.mark.parametrize(
    ("suffix", "form"), [(".parquet", "nsys-parquet"), (".arrow", "nsys-arrow")]
)
def test_a_directory_of_tables_is_the_same_timeline(tmp_path, suffix, form):
    sample = captures.nsys_sample()
    folder = made.as_directory(sample, tmp_path / "tables", suffix)
    one, other = read_timeline(sample), read_timeline(folder)
    assert other.source.format == form
    for table in TABLES:
        assert getattr(one, table).equals(getattr(other, table)), table
    assert one.counts == other.counts
    assert one.warnings == other.warnings


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_directory_may_have_a_pattern_as_its_name(tmp_path, suffix):
    folder = made.as_directory(made.export(tmp_path, **LAUNCH), tmp_path / "[a]*?", suffix)
    assert read_timeline(folder).calls.height == 1


def test_tables_of_a_directory_may_have_other_types(tmp_path):
    folder = made.as_directory(made.export(tmp_path, **LAUNCH), tmp_path / "tables", ".parquet")
    path = folder / "CUPTI_ACTIVITY_KIND_RUNTIME.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(
        pl.col("globalTid").cast(pl.UInt64), pl.col("start").cast(pl.Float64)
    ).write_parquet(path)
    texts = folder / "StringIds.parquet"
    pl.read_parquet(texts).with_columns(pl.col("value").cast(pl.Categorical)).write_parquet(texts)
    (call,) = read_timeline(folder).calls.iter_rows(named=True)
    assert (call["start_ns"], call["thread"], call["name"]) == (10, made.TID, "cudaLaunchKernel")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1\0\0", b"no table", bytes(500)])
def test_a_damaged_table_of_a_directory_is_an_error_that_names_it(tmp_path, suffix, content):
    folder = made.as_directory(made.export(tmp_path, **LAUNCH), tmp_path / "tables", suffix)
    (folder / f"NVTX_EVENTS{suffix}").write_bytes(content)
    with pytest.raises(TimelineError, match="NVTX_EVENTS"):
        read_timeline(folder)


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    path = made.export(tmp_path, **LAUNCH)

    def interrupt(table, done, rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_timeline(path, interrupt)
    assert [each.name for each in tmp_path.iterdir()] == ["export.sqlite"]
