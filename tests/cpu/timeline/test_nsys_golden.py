"""Summaries of the H200 capture equal what Nsight Systems itself reports of it, to the last digit."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

import captures
import polars as pl
import pytest
from captures import reported

from launchkit.profiling.timeline import (
    api_summary,
    execution_summary,
    kernel_summary,
    range_kernel_summary,
    range_summary,
    read_timeline,
)

FIGURES = {
    "Avg (ns)": "mean_ns", "Med (ns)": "median_ns", "Min (ns)": "min_ns", "Max (ns)": "max_ns",
    "StdDev (ns)": "std_ns",
}  # fmt: skip
STYLES = {"PushPop": "push_pop", "StartEnd": "start_end"}


@pytest.fixture(scope="module")
def h200():
    return read_timeline(captures.nsys_sample())


def same(row, theirs, names):
    """Whether the figures of ``row`` are those of their row, as far as they print them."""
    for title, name in names.items():
        printed = Decimal(theirs[title])
        ours = Decimal(row[name]).quantize(printed, ROUND_HALF_UP)
        assert ours == printed, (title, theirs)


def by(frame, *keys):
    rows = {tuple(row[key] for key in keys): row for row in frame.iter_rows(named=True)}
    assert len(rows) == frame.height
    return rows


def test_ranges_equal_nvtx_sum(h200):
    theirs = reported("nvtx_sum")
    ours = by(range_summary(h200, unclosed=True), "domain", "name", "kind")
    assert len(ours) == len(theirs)
    for row in theirs:
        key = (*row["Range"].split(":"), STYLES[row["Style"]])
        same(ours[key], row, {"Total Time (ns)": "total_ns", "Instances": "count", **FIGURES})
        assert round(100 * ours[key]["share"], 1) == float(row["Time (%)"])


def test_an_unclosed_range_has_no_time_of_its_own_where_nvtx_sum_gives_it_all_that_was_left(h200):
    (row,) = (row for row in reported("nvtx_sum") if row["Range"] == "launchkit:never closed")
    ours = by(range_summary(h200), "name")["never closed",]
    assert (int(row["Instances"]), ours["count"], ours["unclosed"]) == (1, 0, 1)
    assert (ours["total_ns"], ours["mean_ns"]) == (0, None)
    whole = sum(int(each["Total Time (ns)"]) for each in reported("nvtx_sum"))
    assert range_summary(h200)["total_ns"].sum() == whole - int(row["Total Time (ns)"])


def test_api_functions_equal_cuda_api_sum(h200):
    theirs = reported("cuda_api_sum")
    ours = by(api_summary(h200), "name")
    assert len(ours) == len(theirs)
    for row in theirs:
        key = (re.sub(r"_v\d+$", "", row["Name"]),)
        same(ours[key], row, {"Total Time (ns)": "total_ns", "Num Calls": "count", **FIGURES})
        assert round(100 * ours[key]["share"], 1) == float(row["Time (%)"])


def test_kernels_equal_cuda_gpu_kern_sum(h200):
    theirs = reported("cuda_gpu_kern_sum")
    ours = by(kernel_summary(h200), "full_name")
    assert len(ours) == len(theirs)
    for row in theirs:
        same(
            ours[row["Name"],],
            row,
            {"Total Time (ns)": "total_ns", "Instances": "count", **FIGURES},
        )
        assert round(100 * ours[row["Name"],]["share"], 1) == float(row["Time (%)"])


def test_launches_and_queues_equal_cuda_kern_exec_sum(h200):
    theirs = reported("cuda_kern_exec_sum")
    ours = by(execution_summary(h200), "process", "thread", "device", "api", "full_name")
    assert len(ours) == len(theirs)
    names = {"Count": "count", "QCount": "queue_count"}
    for letter, prefix in {"T": "whole_", "A": "call_", "Q": "queue_", "K": ""}.items():
        names |= {f"{letter}{title}": f"{prefix}{name}" for title, name in FIGURES.items()}
    for row in theirs:
        numbers = (int(row[title]) for title in ("PID", "TID", "DevId"))
        key = (*numbers, re.sub(r"_v\d+$", "", row["API Name"]), row["Kernel Name"])
        same(ours[key], row, names)


def test_kernels_that_did_not_wait_are_left_out_of_the_queue_and_not_negative(h200):
    summed = execution_summary(h200)
    assert summed["queue_min_ns"].min() >= 0
    early = h200.gpu.filter(pl.col("kind") == "kernel").join(
        h200.calls, on=["process", "correlation"], suffix="_call"
    )
    early = early.filter(pl.col("start_ns") < pl.col("end_ns_call")).height
    assert summed["count"].sum() - summed["queue_count"].sum() == early > 0


def test_kernels_by_range_equal_nvtx_kern_sum(h200):
    theirs = reported("nvtx_kern_sum")
    ours = by(range_kernel_summary(h200), "domain", "name", "process", "thread", "full_name")
    assert len(ours) == len(theirs)
    names = {"NVTX Inst": "ranges", "Kern Inst": "count", "Total Time (ns)": "total_ns", **FIGURES}
    for row in theirs:
        key = (*row["NVTX Range"].split(":"), int(row["PID"]), int(row["TID"]), row["Kernel Name"])
        same(ours[key], row, names)
