"""``launchkit bench import``: the synthetic export is read whole, and both stages are measured."""

from __future__ import annotations

import pytest

from launchkit.benchmarks.captures import bench, export
from launchkit.errors import LaunchkitError, UsageError
from launchkit.profiling.timeline import range_kernel_summary, read_timeline
from launchkit.tools import bench_import


@pytest.fixture(scope="module")
def document():
    told = []
    found = bench.measure(rows=3_000, repeats=1, advance=told.append)
    assert sum(told) >= 6_000
    return found


def test_the_import_is_measured_in_a_process_of_its_own(document):
    assert document["rows"] >= 3_000
    assert document["rows_used"] >= document["rows"]
    assert 0 < document["import_s"] + document["summaries_s"] <= document["process_s"]
    assert document["summaries_peak_bytes"] >= document["import_peak_bytes"] > 2**20
    assert document["analysis_peak_bytes"] >= document["summaries_peak_bytes"]
    assert document["import_cpu_s"] > 0
    assert document["analysis_cpu_s"] > 0


def test_the_export_is_one_without_a_fault(tmp_path):
    rows = export.write(tmp_path / "export.sqlite", 3_000)
    timeline = read_timeline(tmp_path / "export.sqlite")
    counted = [counts for table, counts in timeline.counts if table != "PROCESSES"]
    assert sum(counts.used for counts in counted) == rows
    assert not any(counts.dropped or counts.noted for counts in counted)
    assert timeline.warnings == ()
    # A step, a layer and an op are around each kernel.
    kernels = timeline.counts["CUPTI_ACTIVITY_KIND_KERNEL"].used
    assert range_kernel_summary(timeline)["count"].sum() == 3 * kernels


def test_an_import_that_dies_says_so(tmp_path):
    with pytest.raises(LaunchkitError, match="No such file"):
        bench._imported(tmp_path / "absent.sqlite")
    with pytest.raises(UsageError):
        bench.measure(rows=0)


def test_the_table_has_a_line_for_each_stage(document, capsys):
    bench_import.show(document)
    shown = capsys.readouterr().out
    assert "rows a second" in shown
    assert [line.split()[0] for line in shown.splitlines()[3:6]] == [
        "import",
        "summaries",
        "analysis",
    ]
