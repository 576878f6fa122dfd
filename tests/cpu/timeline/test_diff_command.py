"""launchkit diff: what became slower, with exit codes for CI."""

from __future__ import annotations

import io
import json
import random
import re
from dataclasses import replace

import captures
import polars as pl
import pytest
from rich.console import Console
from timelines import small_timeline
from typer.testing import CliRunner

from launchkit.errors import TimelineError, UsageError
from launchkit.profiling.report.differences import difference_document, difference_renderables
from launchkit.profiling.timeline import analyse, compare
from launchkit.tools import diff
from launchkit.tools.cli import app


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["diff", *map(str, arguments)])


def capture(factor: float, seed: int = 0, **calibration: float):
    """Forty ranges of about 100 us times ``factor``, each with a launch."""
    rng, at, ranges, calls = random.Random(seed), 0, [], []
    for number in range(40):
        lasts = round(100_000 * factor * rng.uniform(0.97, 1.03))
        on = {"process": 1, "thread": 1}
        ranges.append(
            {**on, "name": "op", "kind": "push_pop", "start_ns": at, "end_ns": at + lasts}
        )
        calls.append({**on, "name": "cuLaunchKernel", "kind": "launch", "layer": "driver",
                      "start_ns": at + 10, "end_ns": at + 5_010, "correlation": number})  # fmt: skip
        at += lasts + 1_000
    timeline = small_timeline(ranges=ranges, calls=calls, gpu=[])
    source = replace(timeline.source, calibration=calibration, path=f"x{factor}.sqlite")
    return replace(timeline, source=source)


@pytest.fixture
def command(monkeypatch):
    """Run the command on timelines in place of files."""

    def give(before, after, *options):
        known = {"before": before, "after": after}
        monkeypatch.setattr(diff, "analysed", lambda path: analyse(known[path.name]))
        return run("before", "after", *options)

    return give


@pytest.mark.parametrize(
    ("factor", "options", "code"),
    [(1.5, [], 0), (1.5, ["--fail-over", "10%"], 1), (1.5, ["--fail-over", "0.6"], 0),
     (1.0, ["--fail-over", "10%"], 0), (0.5, ["--fail-over", "10%"], 0)],
)  # fmt: skip
def test_exit_code_is_1_where_something_is_over_what_is_allowed(
    factor, options, code, command
) -> None:
    done = command(capture(1.0), capture(factor, seed=1), *options)
    assert done.exit_code == code, done.output


@pytest.mark.parametrize(("paths", "told"), [
    (("a/capture.sqlite", "b/capture.sqlite"), ("a/capture.sqlite", "b/capture.sqlite")),
    (("x/a/c/f.gz", "x/b/c/f.gz"), ("a/c/f.gz", "b/c/f.gz")),
    (("x/a.gz", "y/b.gz"), ("a.gz", "b.gz")), (("a.gz", "a.gz"), ("a.gz", "a.gz")),
])  # fmt: skip
def test_captures_of_one_name_are_told_apart_by_their_folders(command, paths, told):
    sides = [
        replace(each, source=replace(each.source, path=path))
        for each, path in zip((capture(1.0), capture(1.0)), paths, strict=True)
    ]
    done = command(*sides)
    assert done.stdout.startswith(f"{told[0]} → {told[1]}\n")
    assert f"Rows of {told[1]}\n" in done.stdout


def test_links_to_captures_are_told_by_their_own_names(command, tmp_path):
    sides = []
    for name in ("before", "after"):
        (tmp_path / f"target-of-{name}").write_bytes(b"")
        link = tmp_path / f"{name}.sqlite"
        link.symlink_to(tmp_path / f"target-of-{name}")
        side = capture(1.0)
        sides.append(replace(side, source=replace(side.source, path=str(link))))
    assert command(*sides).stdout.startswith("before.sqlite → after.sqlite\n")


def test_what_became_slower_is_named_with_its_interval(command, tmp_path) -> None:
    options = ["--fail-over", "10%", "--json", tmp_path / "out.json"]
    done = command(capture(1.0), capture(1.5, seed=1), *options)
    assert "Over 10 %" in done.stdout
    document = json.loads((tmp_path / "out.json").read_bytes())
    row = next(row for row in document["over"] if row["metric"] == "wall_ns")
    assert (row["name"], row["change"]) == ("op", "slower")
    assert 1.45 < row["low"] < row["ratio"] < row["high"] < 1.55
    assert document["failed"] is True
    assert document["fail_over"] == 0.1
    assert f"{row['ratio']:.3f}" in done.stdout


def test_check_that_passes_says_so_and_without_one_nothing_is_judged(command) -> None:
    assert (
        "Nothing is over 10 %." in command(capture(1.0), capture(1.0), "--fail-over", "10%").stdout
    )
    assert "over" not in command(capture(1.0), capture(1.5)).stdout.lower()


def test_launches_that_are_more_fail_as_more_however_seldom_the_range_was_there(command) -> None:
    one, more = (capture(1.0) for _ in range(2))
    once = [one.ranges.head(1), more.ranges.head(1).with_columns(end_ns=pl.lit(150_000))]
    sides = (
        each.with_tables(ranges=ranges) for each, ranges in zip((one, more), once, strict=True)
    )
    done = command(*sides, "--fail-over", "20%")
    assert done.exit_code == 1
    failed = done.stdout.partition("Over 20 %")[2].partition("Rows of")[0]
    assert re.search(r"op +launches +1/1 +1 +2 .* more", failed), done.stdout
    assert "too few" not in failed


@pytest.mark.parametrize(("turned", "said"), [(False, "more"), (True, "fewer")])
def test_launches_become_more_or_fewer_and_not_slower(turned, said, command) -> None:
    one, two = capture(1.0), capture(1.0)
    doubled = pl.concat([two.calls, two.calls.with_columns(correlation=pl.col("correlation") + 40)])
    sides = [one, two.with_tables(calls=doubled.sort("start_ns"))]
    shown = command(*(sides[::-1] if turned else sides)).stdout
    assert re.search(rf"op +launches +40/40 +\d +\d .* {said} *$", shown, re.MULTILINE), shown
    assert re.search(rf"Comparisons: .*1 {said}", shown)


def test_a_slower_machine_is_divided_out(command) -> None:
    machines = capture(1.0, clock_ns=40.0), capture(1.5, seed=1, clock_ns=60.0)
    done = command(*machines, "--fail-over", "10%")
    assert done.exit_code == 0, done.output
    assert "divided by 1.500" in done.stdout


def test_report_ends_with_the_rows_of_both(command) -> None:
    done = command(capture(1.0), capture(1.5, seed=1))
    tail = done.stdout[done.stdout.index("Rows of x1.0.sqlite") :]
    assert tail.count("RUNTIME: 14 read, 13 used, dropped: 1 without a start") == 2


def test_names_of_a_capture_are_no_markup_and_no_control_characters() -> None:
    sides = [analyse(capture(factor)) for factor in (1.0, 2.0)]
    document = difference_document(compare(*sides), *sides, None)
    for row in document["rows"]:
        row["name"] = "[bold]\x1b[31m"
    console = Console(file=io.StringIO(), width=200)
    for part in difference_renderables(document):
        console.print(part)
    assert "[bold]\\x1b[31m" in console.file.getvalue()


def test_of_what_one_side_lacks_one_row_is_printed_and_all_are_in_the_json() -> None:
    before, after = capture(1.0), capture(1.0)
    after = after.with_tables(ranges=after.ranges.with_columns(name=pl.lit("other")))
    sides = analyse(before), analyse(after)
    document = difference_document(compare(*sides), *sides, None)
    assert len([row for row in document["rows"] if row["change"] == "only after"]) > 1
    console = Console(file=io.StringIO(), width=200)
    for part in difference_renderables(document):
        console.print(part)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert [words[:2] for words in lines if words[-2:] == ["only", "after"]] == [["other", "wall"]]


@pytest.mark.parametrize("share", ["ten", "-5%", "10 percent", ""])
def test_share_that_is_none_says_what_to_give(share) -> None:
    path = captures.nsys_sample("cpu_only_2022.4")
    done = run(path, path, f"--fail-over={share}")
    assert isinstance(done.exception, UsageError)
    assert "such as 10%" in str(done.exception)


def test_files_are_compared_and_json_goes_to_the_output_alone() -> None:
    path = captures.nsys_sample("cpu_only_2022.4")
    document = json.loads(run(path, path, "--json", "-", "--fail-over", "1%").stdout)
    assert document["failed"] is False
    assert {row["ratio"] for row in document["rows"]} <= {1.0, None}


def test_what_is_no_capture_is_a_timeline_error(tmp_path) -> None:
    (tmp_path / "x").write_text("hello")
    path = captures.nsys_sample("cpu_only_2022.4")
    assert isinstance(run(path, tmp_path / "x").exception, TimelineError)
