"""Samples by range: shares and intervals against plain Python, and whose sample each is."""

from __future__ import annotations

import math
import random
from collections import Counter

import polars as pl
import pytest
from handmade import rng, timeline

from launchkit.profiling.report.document import report_document
from launchkit.profiling.report.plots import figures
from launchkit.profiling.timeline import analyse
from launchkit.profiling.timeline.analysis.buckets import OWN_CODE, bucket_of
from launchkit.profiling.timeline.analysis.samples import bucket_table, frame_table, wilson
from launchkit.profiling.timeline.model import Source, Timeline

RUN = "JITFunction.run (triton/runtime/jit.py:720)"
MAIN = "<module> (train.py:1)"


def sampled(ranges, samples, **more):
    """A timeline of samples (time, frames) of thread 1."""
    rows = [{"process": 1, "thread": 1, "time_ns": at, "frames": frames, **more}
            for at, frames in samples]  # fmt: skip
    return timeline(ranges).with_tables(samples=rows)


def wilson_of(count, total, z=1.959963984540054):
    share = count / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total**2)) / (1 + z * z / total)
    return max(0.0, middle - half), min(1.0, middle + half)


@pytest.mark.parametrize(("count", "total"), [(0, 5), (5, 5), (1, 2), (37, 411), (9_999, 10_000)])
def test_interval_is_wilsons(count, total) -> None:
    low, high = wilson(pl.lit(count), pl.lit(total))
    found = pl.select(low.alias("low"), high.alias("high")).row(0)
    assert found == pytest.approx(wilson_of(count, total), abs=1e-12)
    assert 0 <= found[0] <= count / total <= found[1] <= 1


def test_a_sample_counts_for_each_range_around_it_once() -> None:
    """Random nested ranges, one of them inside another of its own name."""
    dice = random.Random(5)
    ranges = [
        rng("step", 0, 1000),
        rng("op", 100, 700),
        rng("op", 200, 300),
        rng("other", 800, 900),
    ]
    samples = [(dice.randrange(-50, 1100), dice.choice([[MAIN], [MAIN, RUN]])) for _ in range(700)]
    expected: Counter = Counter()
    for at, frames in samples:
        open_then = {each["name"] for each in ranges if each["start_ns"] <= at < each["end_ns"]}
        for name in open_then or {None}:
            expected[name, "Triton JITFunction" if RUN in frames else OWN_CODE] += 1
    table = bucket_table(sampled(ranges, samples))
    found = {(row["range"], row["name"]): row["count"] for row in table.iter_rows(named=True)}
    assert found == dict(expected)
    for row in table.iter_rows(named=True):
        whole = sum(count for (name, _), count in expected.items() if name == row["range"])
        assert row["of"] == whole
        assert row["share"] == row["count"] / whole
        assert (row["low"], row["high"]) == pytest.approx(wilson_of(row["count"], whole), abs=1e-9)


def test_a_sample_of_another_thread_or_process_is_in_no_range() -> None:
    for where in ({"thread": 2}, {"process": 2}, {"thread": -1}):
        table = bucket_table(sampled([rng("step", 0, 1000)], [(500, [MAIN])], **where))
        assert table["range"].to_list() == [None]


def test_a_stack_that_may_be_older_than_the_open_range_is_left_out() -> None:
    made = sampled([rng("a", 0, 100), rng("b", 100, 200)], [(50, [MAIN]), (150, [MAIN])])
    seen = made.samples.with_columns(seen_ns=pl.lit(50, dtype=pl.Int64))
    table = bucket_table(made.with_tables(samples=seen))
    assert table.select("range", "count").rows() == [("a", 1)]


def test_frames_are_ranked_without_their_lines_and_with_their_bucket() -> None:
    frames = [["f (x.py:1)"]] * 3 + [["f (x.py:2)"]] * 2 + [[MAIN, RUN]] * 4
    table = frame_table(sampled([rng("a", 0, 100)], [(at, each) for at, each in enumerate(frames)]))
    assert table.select("range", "name", "count", "bucket").rows() == [
        ("a", "f (x.py)", 5, OWN_CODE),
        ("a", "JITFunction.run (triton/runtime/jit.py)", 4, "Triton JITFunction"),
    ]


@pytest.mark.parametrize(
    ("frames", "bucket"),
    [
        ([MAIN], OWN_CODE),
        ([MAIN, RUN, "dynamic_func (<string>:5)"], "Triton binder"),
        ([MAIN, RUN, "compute_cache_key (triton/runtime/jit.py:590)"], "Triton binder"),
        ([MAIN, RUN, "<lambda> (train.py:9)"], "grid function"),
        ([MAIN, "work.<locals>.<lambda> (train.py:9)"], OWN_CODE),
        ([MAIN, "launch_autotuned (launchkit/dispatch/launcher.py:1)"], "launchkit"),
        ([MAIN, "Autotuner.run (/x/site-packages/triton/runtime/autotuner.py:1)"], "Autotuner"),
        ([MAIN, "CudaLauncher.__call__ (triton/backends/nvidia/driver.py:1)"], "Triton launcher"),
        ([MAIN, "ast_to_ttir (triton/compiler/code_generator.py:1)", "match (python3.11/re.py:4)"],
         "Triton compiler"),
        ([MAIN, "Module._call_impl (torch/nn/modules/module.py:1)"], "module call"),
        ([MAIN, "Module._call_impl (torch/nn/modules/module.py:1)", "forward (model.py:3)"], OWN_CODE),
        ([MAIN, "synchronize (torch/cuda/__init__.py:1)"], "driver: wait"),
        ([MAIN, "launch (train.py:4)", "cuLaunchKernelEx (libcuda.so.1)"], "driver: launch"),
        ([MAIN, "c10::cuda::CUDACachingAllocator::malloc (libc10_cuda.so)"], "torch allocator"),
        ([MAIN, "PyObject_Vectorcall (libpython3.11.so.1.0)"], OWN_CODE),
        ([MAIN, "Thread.run (/usr/lib/python3.11/threading.py:9)", "loop (train.py:3)"], OWN_CODE),
        (["Thread.run (/usr/lib/python3.11/threading.py:9)"], "standard library"),
        ([MAIN, "Event.wait (python3.11/threading.py:9)"], "waiting"),
        (["_find_and_load (<frozen importlib._bootstrap>:1)", "<module> (model.py:1)"], "imports"),
    ],
)  # fmt: skip
def test_bucket(frames, bucket) -> None:
    assert bucket_of(frames) == bucket


def test_a_report_of_samples_has_shares_and_no_time() -> None:
    made = sampled([rng("a", 0, 100)], [(5, [MAIN])] * 10)
    whole = Timeline(Source("x", "py-spy", calibration={"clock_uncertainty_ns": 200.0}))
    made = whole.with_tables(ranges=made.ranges, samples=made.samples)
    analysis = analyse(made)
    document = report_document(analysis)
    assert document["ranges"] == document["layers"] == document["steps"] == []
    assert [(row["range"], row["count"]) for row in document["python"]] == [("a", 10)]
    (plot,) = figures(document)
    assert (plot["id"], plot["data"][0]["name"], plot["data"][0]["y"]) == (
        "python",
        OWN_CODE,
        [100],
    )
    assert [row["name"] for row in document["frames"]] == ["<module> (train.py)"]
    assert any(warning.startswith("1 ranges are shorter") for warning in analysis.warnings)


def test_a_timeline_without_samples_has_empty_tables() -> None:
    document = report_document(analyse(timeline([rng("a", 0, 100)])))
    assert document["python"] == document["frames"] == []
