"""Real exports of four versions of Nsight Systems: every row is read and told."""

from __future__ import annotations

import hashlib

import captures
import polars as pl
import pytest

from launchkit.profiling.timeline import read_timeline

OLD = ["cpu_only_2022.4", "cpu_only_2023.4"]


@pytest.fixture(scope="module")
def h200():
    return read_timeline(captures.nsys_sample())


def test_the_source_says_version_schema_and_clock(h200):
    source = h200.source
    assert (source.format, source.version, source.schema) == ("nsys-sqlite", "2025.3.2.0", "3.20.3")
    assert (source.utc_epoch_ns, source.duration_ns) == (1795968447413515445, 301725457)
    assert not source.host_only


def test_every_row_is_used_or_dropped_by_reason(h200):
    for table, counts in h200.counts:
        assert counts.read == counts.used + counts.dropped.total(), table
    assert h200.counts["NVTX_EVENTS"].read == 91
    assert h200.counts["CUPTI_ACTIVITY_KIND_RUNTIME"].read == 5698


def test_launches_of_all_layers_and_graphs_are_counted(h200):
    launches = h200.calls.filter(pl.col("kind").is_in(["launch", "graph_launch"]))
    counted = dict(
        launches.group_by("name", "layer", "kind").len().select("name", "len").iter_rows()
    )
    assert counted == {
        "cuLaunchKernelEx": 1425,
        "cudaLaunchKernel": 144,
        "cudaLaunchKernelExC": 5,
        "cudaGraphLaunch": 5,
    }


def test_gpu_work_is_of_every_kind_and_has_its_short_and_full_name(h200):
    kinds = dict(h200.gpu.group_by("kind").len().iter_rows())
    assert kinds == {"kernel": 1574, "memcpy": 24, "memset": 1300, "graph": 5}
    copied = h200.gpu.filter(pl.col("kind") == "memcpy")
    assert copied["name"].unique().to_list() == ["[CUDA memcpy Device-to-Device]"]
    assert copied["bytes"].unique().to_list() == [33554432]
    gather = h200.gpu.filter(pl.col("name") == "vectorized_gather_kernel")
    assert gather["full_name"].str.starts_with("void at::native::vectorized_gather_kernel<").all()
    assert h200.gpu.filter(pl.col("kind") == "graph")["graph_id"].unique().to_list() == [1]


def test_gpu_work_before_its_calls_return_is_noted(h200):
    noted = [counts.noted["starting before its launch call returns"] for _, counts in h200.counts]
    pairs = h200.gpu.join(h200.calls, on=["process", "correlation"], suffix="_call")
    assert sum(noted) == pairs.filter(pl.col("start_ns") < pl.col("end_ns_call")).height == 15


def test_domains_categories_payloads_and_threads_are_kept(h200):
    step = h200.ranges.filter(pl.col("name") == "step2").row(0, named=True)
    assert (step["domain"], step["category"], step["payload"]) == ("launchkit", "step", "2")
    assert set(h200.ranges.filter(pl.col("name") == "copy")["domain"]) == {""}
    worker = h200.ranges.filter(pl.col("name") == "worker").row(0, named=True)
    assert (worker["process"], worker["thread"]) == (1162, 1215)
    mark = h200.ranges.filter(pl.col("kind") == "mark").row(0, named=True)
    assert (mark["name"], mark["start_ns"]) == ("mark", mark["end_ns"])


@pytest.mark.parametrize(
    ("sample", "names"),
    [(captures.H200, {"never closed"}), *((name, None) for name in OLD)],
)
def test_a_range_that_was_never_closed_is_told_though_the_file_gives_it_an_end(sample, names):
    timeline = read_timeline(captures.nsys_sample(sample))
    unclosed = timeline.ranges.filter(~pl.col("closed"))
    assert timeline.counts["NVTX_EVENTS"].noted["never closed"] == unclosed.height
    assert unclosed.height == (1 if names else 3)
    assert names is None or set(unclosed["name"]) == names
    assert unclosed["end_ns"].unique().to_list() == [timeline.source.duration_ns]


@pytest.mark.parametrize("sample", OLD)
def test_an_export_without_a_gpu_is_host_only(sample):
    timeline = read_timeline(captures.nsys_sample(sample))
    assert timeline.source.host_only
    assert timeline.calls.height == timeline.gpu.height == 0
    assert any("no CUDA API calls" in warning for warning in timeline.warnings)
    assert set(timeline.ranges["domain"]) == {"", "launchkit", "other"}
    assert "1.5" in timeline.ranges["payload"].to_list()


def test_what_nsight_systems_warned_of_is_a_warning(h200):
    assert "Nsight Systems warning: Not all CUDA events might have been collected." in h200.warnings


def test_reading_changes_nothing_on_disk(tmp_path):
    path = tmp_path / "capture.sqlite"
    path.write_bytes(captures.nsys_sample().read_bytes())
    before = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns
    tmp_path.chmod(0o500)
    try:
        read_timeline(path)
    finally:
        tmp_path.chmod(0o700)
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) == before
    assert [each.name for each in tmp_path.iterdir()] == ["capture.sqlite"]


def test_progress_is_told_by_table(h200):
    told = []
    read_timeline(captures.nsys_sample(), lambda *row: told.append(row))
    assert ("CUPTI_ACTIVITY_KIND_RUNTIME", 5698, 5698) in told


def test_a_stream_capture_is_told_from_a_lost_kernel():
    timeline = read_timeline(captures.public_sample("nsys", "public_2025.5_graph_trace.sqlite"))
    launches = timeline.calls.filter(pl.col("kind").is_in(["launch", "graph_launch"]))
    assert launches["captured"].to_list().count(True) == 1
    noted = timeline.counts["CUPTI_ACTIVITY_KIND_RUNTIME"].noted
    assert (launches.height, noted["launches without GPU work"]) == (6, 0)
    assert timeline.overheads.filter(pl.col("kind") == "lazy_loading").height == 1


def test_a_slice_of_two_processes_has_its_orphans_counted_by_process():
    timeline = read_timeline(captures.public_sample("nsys", "public_2026.2_h100_slice.sqlite"))
    assert timeline.processes.height == 2
    # By correlation alone 11 of the 1810 would find a call of the other process.
    assert timeline.counts["CUPTI_ACTIVITY_KIND_KERNEL"].noted["without its launch call"] == 1810
    assert timeline.counts["CUPTI_ACTIVITY_KIND_RUNTIME"].noted["launches without GPU work"] == 1714
    full = timeline.overheads.filter(pl.col("kind") == "queue_full")
    assert full.height == 198
    assert not timeline.ranges["name"].str.contains("op_id").any()
    assert timeline.ranges["full_name"].str.contains(", op_id = ").any()
