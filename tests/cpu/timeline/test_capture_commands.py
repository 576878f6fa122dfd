"""Captures that are damaged, odd or none, through every command that takes one: an exit code and words."""

from __future__ import annotations

import gzip
import json
import os
import sys

import nsys_exports as made
import pytest

from launchkit.profiling.capturing import CAPTURED
from launchkit.tools import cli

PROFILE = json.dumps({"calibration": {}, "format": "launchkit-profile", "schema": 9}).encode()
SPEEDSCOPE = b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[]}'
LAUNCH = {"calls": [made.call(10, 20, correlation=1)], "kernels": [made.kernel(30, 40, 1)]}

# name, content, words of `launchkit report`, words of `launchkit profile scrub` and `slice`
NONE = [
    ("a.sqlite", b"", "is empty", "is empty"),
    ("a.nsys-rep", b"\x12\x34", "nsys export -t sqlite", "nsys export -t sqlite"),
    ("a.qdstrm", b"\x12\x34", "QdstrmImporter", "QdstrmImporter"),
    ("a.html", b"<!DOCTYPE html>", "web page", "web page"),
    ("a.sqlite", b"SQLite format 3\0" + bytes(90), "nsys export", "nsys export"),
    ("a.sqlite.gz", gzip.compress(b"SQLite format 3\0", mtime=0), "gunzip", "gunzip"),
    ("a.parquet", b"PAR1", "parquetdir", "parquetdir"),
    ("a.json", b'{"a": 1}', "no list traceEvents", "no list traceEvents"),
    ("a.json", PROFILE, "Upgrade launchkit", "Upgrade launchkit"),
    ("a.json", SPEEDSCOPE, "no samples", "samples of py-spy"),
    ("a.txt", b"hello", "no known format", "not JSON"),
]
WHOLE = [
    {},
    LAUNCH,
    {"nvtx": [made.nvtx(0, 9, None)], **LAUNCH},
    {"nvtx": [made.nvtx(0, 50, "a"), made.nvtx(5, 60, "b"), made.nvtx(7, 7, "c")], **LAUNCH},
    {"calls": LAUNCH["calls"], "kernels": [made.kernel(-5, 2**62 + 1, 1), made.kernel(1, 2, 77)]},
]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command as a shell would; returns its exit code and all that it printed."""
    monkeypatch.setenv("COLUMNS", "400")

    def ran(*arguments):
        monkeypatch.setattr(sys, "argv", ["launchkit", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as done:
            code = done.code
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return ran


def commands(path, folder):
    copy = folder / f"copy{path.suffix}"
    edges = ["--from", "0ns", "--to", "1s", "--force"]
    return {
        "report": ["report", path],
        "diff": ["diff", path, path],
        "scrub": ["profile", "scrub", path, copy, "--force"],
        "slice": ["profile", "slice", path, copy, *edges],
    }


@pytest.mark.parametrize(("name", "content", "reported", "copied"), NONE)
def test_what_is_no_capture_is_refused_by_every_command(
    run, tmp_path, name, content, reported, copied
):
    path = tmp_path / name
    path.write_bytes(content)
    for command, arguments in commands(path, tmp_path).items():
        code, text = run(*arguments)
        assert code == 2, (command, text)
        assert (reported if command in ("report", "diff") else copied) in text, command
        assert list(tmp_path.iterdir()) == [path]


def test_paths_that_lead_nowhere_are_refused_by_every_command(run, tmp_path):
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for path in (pipe, loop, tmp_path, tmp_path / "missing.sqlite"):
        for command, arguments in commands(path, tmp_path).items():
            code, text = run(*arguments)
            assert (code, "Traceback" in text) == (2, False), (command, path.name, text)
            assert text.startswith("launchkit: "), (command, text)


@pytest.mark.parametrize("tables", WHOLE, ids=range(len(WHOLE)))
def test_odd_exports_are_taken_by_every_command(run, tmp_path, tables):
    folder = tmp_path / "it's #1 100%25?"
    folder.mkdir()
    path = made.export(folder, **tables)
    before = path.read_bytes()
    for command, arguments in commands(path, tmp_path).items():
        code, text = run(*arguments)
        assert code == 0, (command, text)
        if command == "report":
            assert "Rows" in text
            assert ("there is no range" in text) == (not tables)
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]


def test_an_empty_trace_says_so(run, tmp_path):
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    code, text = run("report", tmp_path / "a.json")
    assert (code, "there is no range, call or GPU work" in text) == (0, True)


@pytest.mark.parametrize("name", CAPTURED.values())
def test_directory_that_launchkit_profile_made_stands_for_what_is_in_it(run, tmp_path, name):
    folder = tmp_path / "captured"
    folder.mkdir()
    exported = made.export(folder, **LAUNCH)
    exported.rename(folder / name.replace("*", "123"))
    (folder / "capture.nsys-rep").write_bytes(b"\x12\x34")
    for command, arguments in commands(folder, tmp_path).items():
        code, text = run(*arguments)
        assert code == 0, (command, text)


def test_directory_with_several_captures_is_one_report_and_no_side_of_a_comparison(run, tmp_path):
    exported = made.export(tmp_path, **LAUNCH)
    for number in (1, 2):
        (tmp_path / f"trace-{number}.json.gz").write_bytes(exported.read_bytes())
    exported.unlink()
    code, text = run("report", "--apart", tmp_path)
    assert (code, "trace-1.json.gz · " in text, "trace-2.json.gz · " in text) == (0, True, True)
    for command in ("diff", "scrub", "slice"):
        code, text = run(*commands(tmp_path, tmp_path)[command])
        assert (code, "Give one of them: trace-1.json.gz, trace-2.json.gz" in text) == (2, True)
