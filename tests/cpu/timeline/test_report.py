"""Reports: the same figures in the terminal, in HTML and as JSON, and what was left out at the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import captures
import polars as pl
import pytest
from timelines import printed, small_timeline
from typer.testing import CliRunner

from launchkit.errors import TimelineError, UsageError
from launchkit.profiling.report import document as documents
from launchkit.profiling.report.document import report_document
from launchkit.profiling.report.html import html_report
from launchkit.profiling.report.plots import figures
from launchkit.profiling.report.views import VIEWS, microseconds
from launchkit.profiling.timeline import analyse, read_timeline, suggestions
from launchkit.tools.cli import app


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "220"}).invoke(app, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def small():
    return report_document(analyse(small_timeline()))


@pytest.fixture(scope="module")
def sample():
    return report_document(analyse(read_timeline(captures.nsys_sample())))


@pytest.mark.parametrize("table", ["ranges", "apis", "kernels"])
def test_tables_begin_with_name_count_and_total(table, sample) -> None:
    assert sample[table]
    for row in sample[table]:
        assert {"name", "count", "total_ns"} <= row.keys()
        assert isinstance(row["total_ns"], int)


def test_names_have_no_domain_no_version_and_no_arguments(sample) -> None:
    assert {row["name"]: row["domain"] for row in sample["ranges"]}["ssd_scan"] == "launchkit"
    names = [row["name"] for row in sample["apis"]]
    assert "cudaLaunchKernelExC" in names
    assert not [name for name in names if re.search(r"_v\d+$|_ptsz$", name)]
    assert "vectorized_gather_kernel" in [row["name"] for row in sample["kernels"]]


def test_ranges_of_a_known_timeline_have_its_figures(small) -> None:
    row = next(row for row in small["ranges"] if row["name"] == "layer0")
    assert (row["count"], row["total_ns"], row["launches"]) == (2, 600_000, 6)
    assert (row["api_ns"], row["inclusive_python_ns"]) == (36_000, 564_000)
    assert (row["gpu_ns"], row["verdict"]) == (120_000, "Python-bound")


def test_own_profile_has_launches_with_their_phases_and_no_calls_of_an_api() -> None:
    timeline = small_timeline()
    launches = timeline.calls.filter(pl.col("kind") == "launch").with_columns(
        find_ns=pl.lit(1_000), grid_ns=pl.lit(None, pl.Int64), driver_ns=pl.lit(2_000)
    )
    own = timeline.with_tables(calls=launches, gpu=[])
    own = replace(own, source=replace(own.source, format="launchkit", host_only=True))
    document = report_document(analyse(own))
    (row,) = document["launches"]
    assert (row["name"], row["count"], row["total_ns"]) == ("cuLaunchKernel", 12, 72_000)
    assert [row[f"median_{phase}_ns"] for phase in ("find", "grid", "driver")] == [
        1_000,
        None,
        2_000,
    ]
    assert document["apis"] == []
    assert re.search(r"find p50 +driver p50", printed(document))
    assert re.search(r"steady: driver call p50 2\.00 µs", printed(document))


def test_latency_of_a_capture_is_that_of_the_calls_in_its_tables(small) -> None:
    assert re.search(r"steady: p50 ", printed(report_document(analyse(small_timeline()))))


def test_room_of_columns_without_figures_is_that_of_others(small, sample) -> None:
    ranges = [{"process": 1, "name": "r", "start_ns": 0, "end_ns": 5, "kind": "push_pop"}]
    alone = report_document(analyse(small_timeline(ranges=ranges, calls=[], gpu=[])))
    assert re.search(r"count +wall +p50 +Python *$", printed(alone, width=100), re.MULTILINE)
    assert re.search(r"count +wall +Python +calls", printed(sample, width=100))


def test_narrow_terminal_shows_what_the_gpu_waits_and_how_good_the_replay_is(sample) -> None:
    replayed = analyse(small_timeline())
    ranges = printed(sample, width=80)
    replays = printed(report_document(replayed, suggestions(replayed)), width=80)
    assert re.search(r"^range .* wall .* calls +waits +GPU idle *$", ranges, re.MULTILINE)
    assert re.search(r"^range +change +measured +replayed +predicted", replays, re.MULTILINE)


def test_medians_of_ranges_have_the_room_of_waits_that_there_are_none_of(small, sample) -> None:
    assert re.search(r"^range .* wall +p50 +Python", printed(sample, width=112), re.MULTILINE)
    own = small["source"] | {"format": "launchkit", "host_only": True}
    quiet = small | {"source": own, "ranges": [
        row | dict.fromkeys(("sync_ns", "stall_ns", "exposed_idle_ns"), 0) for row in small["ranges"]
    ]}  # fmt: skip
    assert re.search(r"^range .* wall +p50 +Python", printed(quiet, width=100), re.MULTILINE)


def test_table_says_at_which_width_it_has_more_columns(sample) -> None:
    ranges = [
        re.sub(r"\s+", " ", printed(sample, width=width).split("\nWhy\n")[0])
        for width in (80, 100, 220)
    ]
    assert "More columns: COLUMNS=220." in ranges[0]
    assert "More columns: COLUMNS=220." in ranges[1]
    assert "More columns" not in ranges[2]


def test_document_is_json_and_says_which_rows_were_read(small) -> None:
    back = json.loads(json.dumps(small, allow_nan=False))
    assert back["rows"]["RUNTIME"]["dropped"] == {"without a start": 1}
    assert back["source"]["path"] == "small.sqlite"


def test_longer_tables_say_how_many_rows_they_leave_out(monkeypatch) -> None:
    monkeypatch.setattr(documents, "LONGEST", 3)
    document = report_document(analyse(small_timeline()))
    assert (len(document["gaps"]), document["omitted"]["gaps"]) == (3, 8)


def test_terminal_and_page_show_what_the_document_has(small) -> None:
    text, page = printed(small), html_report([small])
    for view in VIEWS:
        for row in view.rows(small)[:50]:
            for column in view.columns:
                if column.kind != "text" and column.value(row):
                    assert column.text(row) in text, (view.key, column.title)
                    assert f">{column.text(row)}<" in page, (view.key, column.title)


@pytest.mark.parametrize("form", ["text", "page"])
def test_every_report_ends_with_the_rows_of_the_capture(form, small) -> None:
    made = printed(small) if form == "text" else html_report([small]).split("<script>")[0]
    tail = made[made.rindex("Rows") :]
    assert "RUNTIME: 14 read, 13 used, dropped: 1 without a start" in tail


def test_verdicts_of_the_sample_reach_the_terminal(sample) -> None:
    lines = printed(sample).splitlines()
    for name, verdict in (
        ("backpressure", "GPU-bound"),
        ("sync", "sync-bound"),
        ("never closed", "never closed"),
    ):
        assert any(re.match(rf"{name} +{verdict} ", line) for line in lines), name
    assert any(re.match(r"ssd_scan +(Python|launch)-bound ", line) for line in lines)


@pytest.mark.parametrize("width", [80, 100, 130, 160, 190, 220])
def test_no_figure_is_cut_at_any_width(width, sample) -> None:
    text = printed(sample, width=width)
    shown = [view for view in VIEWS if view.rows(sample)]
    parts = re.split("|".join(f"^{view.title} *$" for view in shown), text, flags=re.MULTILINE)[1:]
    for view, part in zip(shown, parts, strict=True):
        words = set(re.split(r"  +|\n| (?=[\d-])", part))
        for row in view.rows(sample)[:50]:
            for column in view.columns:
                if column.room <= width and column.kind != "text" and column.value(row):
                    assert column.text(row) in words, (view.key, column.title)


def test_names_of_a_capture_are_no_markup_and_no_script(small) -> None:
    page = html_report([small])
    assert "&lt;/script&gt;&lt;b&gt;µ" in page
    assert "</script><b>µ" not in page
    assert "</script><b>µ" in printed(small)


def test_control_characters_do_not_reach_the_terminal() -> None:
    ranges = [{"process": 1, "name": "a\x1b[31mb", "start_ns": 0, "end_ns": 5, "kind": "push_pop"}]
    text = printed(report_document(analyse(small_timeline(ranges=ranges))))
    assert "\x1b" not in text
    assert "a\\x1b[31mb" in text


def test_page_asks_for_nothing_from_elsewhere(small) -> None:
    page = html_report([small])
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=\"(?!data:)", markup)
    assert "default-src 'none'" in markup
    own = page.rsplit("<script>", 1)[1]
    assert re.search(r'config = \{.*showSendToCloud: false, plotlyServerURL: ""\}', own)
    assert "figure.layout), config)" in own


def test_plots_add_up_to_the_tables(small) -> None:
    made = {figure["id"]: figure for figure in figures(small)}
    stacked = sum(sum(bars["y"]) for bars in made["host-time"]["data"])
    layers = [row for row in small["layers"] if row["layer"] is not None]
    assert stacked == pytest.approx(sum(row["total_ns"] for row in layers) / 1000)
    launches = sum(sum(bars["y"]) for bars in made["latency"]["data"])
    assert launches == small["launch_latency"]["count"] == 12
    idle = sum(sum(bars["y"]) for bars in made["idle"]["data"])
    assert idle == pytest.approx(sum(row["step_ns"] for row in small["idle"]) / 1000)


def test_plot_by_range_adds_up_to_exclusive_time_where_no_layers_are_known() -> None:
    plain = small_timeline()
    names = plain.ranges.with_columns(pl.col("name").str.replace("layer", "part "))
    document = report_document(analyse(plain.with_tables(ranges=names)))
    made = {figure["id"]: figure for figure in figures(document)}
    stacked = sum(sum(bars["y"]) for bars in made["host-time"]["data"])
    wanted = sum(row["exclusive_ns"] or 0 for row in document["ranges"])
    assert stacked == pytest.approx(wanted / 1000)


def test_latency_bins_hold_every_launch_where_it_belongs(small) -> None:
    found = small["launch_latency"]
    filled = [each for each in found["bins"] if each["steady"] or each["cold"]]
    assert all(each["from_ns"] <= 6_000 < each["to_ns"] for each in filled)
    assert (found["steady"], found["cold"], found["median_ns"]) == (11, 1, 6_000)


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0"),
        (1234, "1.23"),
        (12_345, "12.3"),
        (1_234_567, "1,235"),
        (12_345_678_900, "12.35 s"),
        (-5, "-0.01"),
    ],
)
def test_microseconds_have_three_digits_or_more(value_ns, text) -> None:
    assert microseconds(value_ns) == text


def test_command_writes_every_form_and_never_the_capture(tmp_path) -> None:
    capture = captures.nsys_sample()
    before = capture.read_bytes()
    outputs = [tmp_path / name for name in ("out.json", "out.html", "trace.json")]
    options = zip(("--json", "--html", "--perfetto"), outputs, strict=True)
    done = run(capture, *(part for option in options for part in option))
    assert done.exit_code == 0, done.output
    assert "GPU-bound" in done.stdout
    document = json.loads(outputs[0].read_bytes())
    assert document["ranges"][0]["name"] == "backpressure"
    assert "<title>launchkit report: h200" in outputs[1].read_text(encoding="utf-8")
    assert json.loads(outputs[2].read_bytes())["traceEvents"]
    assert capture.read_bytes() == before
    assert set(tmp_path.iterdir()) == set(outputs)


def test_files_are_whole_where_nobody_reads_the_text_to_its_end(tmp_path) -> None:
    page, tables = tmp_path / "report.html", tmp_path / "report.json"
    command = [sys.executable, "-m", "launchkit", "report", str(captures.nsys_sample()),
               "--html", str(page), "--json", str(tables)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reporting:
        reporting.stdout.close()
        errors = reporting.stderr.read()
        reporting.wait(120)
    assert b"Traceback" not in errors
    assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert json.loads(tables.read_bytes())["ranges"]


def test_changes_are_predicted_of_the_ranges_that_are_asked_for(tmp_path) -> None:
    options = ["--what-if", "ssd_scan", "--json", tmp_path / "out.json"]
    done = run(captures.nsys_sample(), *options)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "out.json").read_bytes())["what_if"]
    assert {row["range"] for row in rows} == {"ssd_scan"}
    assert {row["change"] for row in rows} >= {"OpPlan", "CudaGraph", "CachedLaunches"}
    assert all(row["predicted_ns"] < row["measured_ns"] for row in rows)
    assert re.search(r"ssd_scan +op plan ", done.stdout)


def test_json_goes_to_the_output_alone_where_it_is_a_dash() -> None:
    document = json.loads(run(captures.nsys_sample("cpu_only_2022.4"), "--json", "-").stdout)
    assert document["source"]["host_only"]
    assert document["kernels"] == []


def test_several_captures_are_one_report_each(tmp_path) -> None:
    names = ["cpu_only_2022.4", "cpu_only_2023.4"]
    paths = [captures.nsys_sample(name) for name in names]
    done = run(*paths, "--json", tmp_path / "out.json", "--html", tmp_path / "out.html")
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "out.json").read_bytes())
    assert [each["source"]["path"] for each in document["captures"]] == [
        path.name for path in paths
    ]
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert len(set(re.findall(r'class="plot" id="([^"]+)"', page))) == page.count('class="plot"')


@pytest.fixture
def ranks(tmp_path):
    """Traces of two ranks, the second 30 µs behind."""
    for rank in range(2):
        events = [
            {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 70, "tid": 70,
             "ts": 1000 + 100 * turn + 30 * rank, "dur": 5, "args": {"correlation": turn}}
            for turn in range(1, 9)
        ]  # fmt: skip
        head = {"baseTimeNanoseconds": 10**18, "distributedInfo": {"rank": rank}}
        trace = json.dumps({**head, "traceEvents": events})
        (tmp_path / f"rank{rank}.json").write_text(trace)
    return [tmp_path / "rank0.json", tmp_path / "rank1.json"]


def test_captures_of_one_time_are_one_report_with_a_row_for_each_rank(ranks, tmp_path) -> None:
    outputs = ["--json", tmp_path / "out.json", "--perfetto", tmp_path / "trace.json"]
    done = run(*ranks, *outputs)
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "out.json").read_bytes())
    assert document["source"]["path"] == "rank0.json, rank1.json"
    assert [(row["rank"], row["count"]) for row in document["processes"]] == [(0, 8), (1, 8)]
    assert [row["late_median_ns"] for row in document["processes"]] == [0, 30_000]
    assert re.search(r"rank 1 +8 .* 100 %", done.stdout)
    events = json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    assert len({event["pid"] for event in events if event["ph"] == "X"}) == 2


def test_captures_of_one_time_can_be_reported_apart(ranks, tmp_path) -> None:
    done = run(*ranks, "--apart", "--json", tmp_path / "out.json")
    assert done.exit_code == 0, done.output
    documents = json.loads((tmp_path / "out.json").read_bytes())["captures"]
    assert [document["processes"] for document in documents] == [[], []]
    refused = run(*ranks, "--apart", "--perfetto", tmp_path / "trace.json").exception
    assert isinstance(refused, UsageError)
    assert "Call it once for each" in str(refused)
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit", "0"], "--limit must be at least 1"),
        (["--step-range", "nothing"], "no closed range is called 'nothing'"),
        (["--json", "/nowhere/x.json"], "cannot be written"),
    ],
)
def test_bad_use_says_what_to_do(options, message) -> None:
    done = run(captures.nsys_sample("cpu_only_2022.4"), *options)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_output_may_not_be_the_capture(tmp_path) -> None:
    copy = tmp_path / "capture.sqlite"
    copy.write_bytes(captures.nsys_sample("cpu_only_2022.4").read_bytes())
    done = run(copy, "--html", copy)
    assert isinstance(done.exception, UsageError)
    assert "is the capture itself" in str(done.exception)


def test_what_is_no_capture_is_a_timeline_error(tmp_path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    assert isinstance(run(tmp_path / "x.txt").exception, TimelineError)


def test_a_missing_extra_is_named_and_help_needs_none() -> None:
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "from launchkit.tools.cli import main\n"
        "sys.argv = ['launchkit', 'report', *sys.argv[1:]]\nmain()"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    found = subprocess.run([*command, "x.sqlite"], capture_output=True, text=True, check=False)
    assert (found.returncode, "Traceback" in found.stderr) == (2, False)
    assert "launchkit-triton[profile]" in found.stderr
