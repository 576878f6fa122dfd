"""Where results go: refused before measuring, written whole, and nothing of the user's is lost."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from launchkit.benchmarks.launch import bench as launch_bench
from launchkit.benchmarks.mamba import bench as mamba_bench
from launchkit.errors import UsageError
from launchkit.tools import bench, bench_mamba, cli
from launchkit.tools.output_files import check_output, replace_file, write

PLACES = ["missing/r.json", ".", "x" * 256, "/proc/self/zzz", "file/r.json", "loop", "socket"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "file").write_text("a file")
    (tmp_path / "loop").symlink_to("loop")
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_an_output_that_cannot_be_written_is_refused_before_measuring(place, folder, monkeypatch):
    for module in (launch_bench, mamba_bench):
        monkeypatch.setattr(module, "measure", lambda *_, **__: pytest.fail("measured"))
    before = sorted(folder.iterdir())
    for command in (bench.launch, bench_mamba.mamba):
        with pytest.raises(UsageError, match="Give a file in a directory that exists"):
            command(output=folder / place)
    assert sorted(folder.iterdir()) == before


def test_the_trial_leaves_a_new_name_unused_and_an_old_file_as_it_was(tmp_path):
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "link"
    old.write_text("kept")
    link.symlink_to("target")
    for output in (old, new, link, tmp_path / ("x" * 255)):
        check_output(output)
    assert old.read_text() == "kept"
    assert sorted(tmp_path.iterdir()) == [link, old]
    assert link.is_symlink()


def test_the_trial_does_not_open_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    check_output(tmp_path / "pipe")
    write(tmp_path / "pipe", b"result")
    assert os.read(reader, 100) == b"result"
    os.close(reader)


def test_a_result_replaces_a_file_behind_a_link_and_keeps_its_mode(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("target")
    write(link, b"new")
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert link.is_symlink()


def test_a_name_of_255_bytes_can_be_replaced(tmp_path):
    replace_file(tmp_path / ("x" * 255), b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]


def test_a_write_that_fails_leaves_the_result_so_far(tmp_path, monkeypatch):
    target = tmp_path / "r.json"
    target.write_bytes(b"so far")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UsageError, match="Give another file"):
        write(target, b"whole")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("r.json", b"so far")
    ]


def test_two_writers_of_one_file_share_no_temporary_one(tmp_path, monkeypatch):
    parts = []
    replace = os.replace

    def note(source, target):
        parts.append(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", note)
    for data in (b"one", b"two"):
        replace_file(tmp_path / "r.json", data)
    assert len(set(parts)) == 2
    assert (tmp_path / "r.json").read_bytes() == b"two"


def on_a_full_disk(*options, stderr=subprocess.PIPE):
    code = "from launchkit.tools.cli import main\nmain()"
    with open("/dev/full", "wb") as full:
        return subprocess.run(
            [sys.executable, "-c", code, *options],
            stdout=full,
            stderr=full if stderr is None else stderr,
            check=False,
        )


LAUNCH = ("bench", "launch", "--case", "noop_0", "--rounds", "2", "--launches", "5")


@pytest.mark.parametrize(
    "options",
    [LAUNCH, (*LAUNCH, "--json"), ("bench", "--help"), ("--version",)],
    ids=["table", "json", "help", "version"],
)
def test_a_full_disk_behind_stdout_is_a_message(options):
    result = on_a_full_disk(*options)
    assert result.returncode == 2
    said = " ".join(result.stderr.decode().split())
    assert said.startswith("launchkit: the system refused: [Errno 28]")
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def test_an_error_that_cannot_be_said_has_its_exit_code_still():
    assert on_a_full_disk("--version", stderr=None).returncode == 2
    assert on_a_full_disk("bench", "launch", "--rounds", "1", stderr=None).returncode == 2


def test_a_result_that_cannot_be_printed_is_still_written(tmp_path):
    target = tmp_path / "launch.json"
    assert on_a_full_disk(*LAUNCH, "--json", "-o", str(target)).returncode == 2
    assert b'"noop_0"' in target.read_bytes()


@pytest.mark.parametrize("command", [("run",), ("doctor",), ("bench", "copy"), ("bench", "mamba")])
def test_help_breaks_lines_where_the_terminal_ends(command):
    result = CliRunner().invoke(cli.app, [*command, "--help"], env={"COLUMNS": "80"})
    text, _, _ = result.stdout.partition("╭")
    for paragraph in text.split("\n \n")[1:]:
        lines = [line.split() for line in paragraph.splitlines() if line.strip()]
        for line, following in pairwise(lines):
            assert len(" ".join([*line, following[0]])) > 78, (line, following)
