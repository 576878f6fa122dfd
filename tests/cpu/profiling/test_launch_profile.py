"""LaunchProfile and the tally below it: figures, bounds, and what is said about both."""

from __future__ import annotations

import io
import json
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from launchkit.profiling import LaunchProfile, LaunchRow, RangeRow
from launchkit.profiling.profile.percentiles import percentile
from launchkit.profiling.recording import tally
from launchkit.profiling.recording.calibration import Calibration, Cost
from launchkit.profiling.recording.series import Times
from launchkit.profiling.recording.tally import MORE_RANGES, Batch, RangeNode, Subject, Tally

LIMIT = 1000


def add(
    counts: Tally, node: RangeNode, kernel: str, *times_ns: int, host_only: bool = False
) -> None:
    for elapsed_ns in times_ns:
        times = Times(1, elapsed_ns, array("q", [elapsed_ns]))
        counts.add(node, Batch(Subject(kernel, None), counts.thread(), times, host_only=host_only))


def fail(counts: Tally, node: RangeNode, kernel: str) -> None:
    counts.add(node, Batch(Subject(kernel, None), counts.thread(), Times(1), failed=True))


def profile(counts: Tally) -> LaunchProfile:
    return LaunchProfile(counts, Calibration(Cost(50), Cost(700)))


def printed(result: LaunchProfile, width: int = 120) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(result.table())
    return text.getvalue()


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=50),
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0]),
)
def test_percentiles_are_numpys(values: list[int], fraction: float) -> None:
    found = percentile(sorted(values), fraction)
    assert found == pytest.approx(float(np.percentile(values, fraction * 100)), rel=1e-12, abs=1e-9)


def test_interactive_python_shows_what_a_profile_has_and_how_to_see_its_table() -> None:
    counts = Tally(LIMIT)
    add(counts, counts.root, "scan", 1000, 2000)
    add(counts, counts.child(counts.root, "ssd", 3), "scan", 1000)
    add(counts, counts.root, "copy", 1000)
    shown = repr(profile(counts))
    assert shown == "<LaunchProfile of 4 launches, 2 kernels; print() shows its table>"


class TestRows:
    def test_a_row_has_the_figures_of_its_launches(self) -> None:
        counts = Tally(LIMIT)
        times_ns = [5000, 1000, 2000, 3000, 14000]
        add(counts, counts.child(counts.root, "ssd", 3), "scan", *times_ns)
        (row,) = profile(counts).rows
        assert row == LaunchRow(
            path=("ssd",),
            layer=3,
            kernel="scan",
            op=None,
            launches=5,
            failed=0,
            dropped=0,
            total_us=pytest.approx(sum(times_ns) / 1000),
            median_us=pytest.approx(3.0),
            p10_us=pytest.approx(np.percentile(times_ns, 10) / 1000),
            p90_us=pytest.approx(np.percentile(times_ns, 90) / 1000),
            p99_us=pytest.approx(np.percentile(times_ns, 99) / 1000),
            phases=dict.fromkeys(("find", "grid", "driver")),
        )

    def test_no_figure_falls_below_zero(self) -> None:
        counts = Tally(LIMIT)
        add(counts, counts.root, "k", -10, -20)
        (row,) = profile(counts).rows
        assert (row.total_us, row.median_us, row.p10_us, row.p90_us) == (0, 0, 0, 0)

    def test_the_layer_is_that_of_the_innermost_range_with_one(self) -> None:
        counts = Tally(LIMIT)
        block = counts.child(counts.root, "block", 7)
        add(counts, counts.child(block, "norm", None), "k", 1000)
        add(counts, counts.child(block, "expert", 2), "k", 1000)
        layers = {row.path: row.layer for row in profile(counts).rows}
        assert layers == {("block", "norm"): 7, ("block", "expert"): 2}

    def test_equal_path_layer_and_kernel_are_one_row(self) -> None:
        counts = Tally(LIMIT)
        for outer in (1, 2):
            block = counts.child(counts.root, "block", outer)
            add(counts, counts.child(block, "expert", 0), "k", 1000 * outer)
        (row,) = profile(counts).rows
        assert (row.path, row.layer, row.launches, row.total_us) == (("block", "expert"), 0, 2, 3.0)

    def test_rows_come_with_the_most_time_first(self) -> None:
        counts = Tally(LIMIT)
        add(counts, counts.root, "short", 1000)
        add(counts, counts.root, "long", 9000)
        add(counts, counts.root, "also_short", 1000)
        assert [row.kernel for row in profile(counts).rows] == ["long", "also_short", "short"]

    def test_a_range_holds_the_launches_of_the_ranges_inside_it(self) -> None:
        counts = Tally(LIMIT)
        block = counts.child(counts.root, "block", 1)
        ssd = counts.child(block, "ssd", None)
        add(counts, counts.root, "k", 1000)
        add(counts, block, "k", 2000)
        add(counts, ssd, "k", 3000)
        add(counts, ssd, "other", 7000)
        fail(counts, ssd, "other")
        outer, inner = profile(counts).ranges
        assert outer == RangeRow(
            ("block",),
            1,
            3,
            1,
            0,
            12.0,
            3.0,
            pytest.approx(2.2),
            pytest.approx(6.2),
            pytest.approx(6.92),
        )
        assert (inner.path, inner.launches, inner.total_us) == (("block", "ssd"), 2, 10.0)

    def test_a_kernel_that_only_failed_has_no_percentiles(self) -> None:
        counts = Tally(LIMIT)
        fail(counts, counts.root, "k")
        (row,) = profile(counts).rows
        assert (row.launches, row.failed, row.total_us, row.median_us) == (0, 1, 0.0, None)


class TestBounds:
    def test_beyond_the_sample_limit_counts_and_totals_go_on_and_dropped_says_so(self) -> None:
        counts = Tally(samples_per_row=3)
        add(counts, counts.root, "k", 1000, 2000, 3000, 50_000, 50_000)
        (row,) = profile(counts).rows
        assert (row.launches, row.dropped, row.total_us) == (5, 2, 106.0)
        assert (row.median_us, row.p90_us) == (2.0, pytest.approx(2.8))

    def test_samples_are_bounded_over_all_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tally, "MAX_SAMPLES", 3)
        counts = Tally(LIMIT)
        add(counts, counts.root, "a", 1000, 1000)
        add(counts, counts.root, "b", 1000, 1000)
        assert {row.kernel: row.dropped for row in profile(counts).rows} == {"a": 0, "b": 1}

    def test_ranges_beyond_the_limit_are_counted_together(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tally, "MAX_RANGES", 2)
        counts = Tally(LIMIT)
        for step in range(5):
            node = counts.child(counts.root, f"step {step}", None)
            add(counts, counts.child(node, "inner", None) if step > 2 else node, "k", 1000)
        launches = {row.path: row.launches for row in profile(counts).rows}
        assert launches == {("step 0",): 1, ("step 1",): 1, (MORE_RANGES,): 3}

    def test_launches_that_return_after_the_end_do_not_count(self) -> None:
        counts = Tally(LIMIT)
        add(counts, counts.root, "k", 1000)
        counts.close()
        add(counts, counts.root, "k", 1000, host_only=True)
        fail(counts, counts.root, "k")
        result = profile(counts)
        assert [(row.launches, row.failed) for row in result.rows] == [(1, 0)]
        assert not result.host_only


class TestOutput:
    def example(self, host_only: bool) -> LaunchProfile:
        counts = Tally(samples_per_row=2)
        ssd = counts.child(counts.child(counts.root, "block", 1), "ssd", None)
        add(counts, ssd, "scan", 1000, 3000, 5000, host_only=host_only)
        add(counts, counts.root, "[bold]k", 2000)
        fail(counts, counts.root, "[bold]k")
        return profile(counts)

    def test_the_dictionary_is_json_and_holds_every_row(self) -> None:
        result = self.example(host_only=True)
        found: dict[str, Any] = json.loads(json.dumps(result.to_dict()))
        assert found["schema"] == 2
        assert (found["mode"], found["host_only_launches"]) == ("host-only", 3)
        assert (found["overhead_us"], found["added_us"]) == (0.05, 0.7)
        assert found["rows"][0] == {
            "path": ["block", "ssd"],
            "layer": 1,
            "kernel": "scan",
            "op": None,
            "phases": dict.fromkeys(("find", "grid", "driver")),
            "launches": 3,
            "failed": 0,
            "dropped": 1,
            "total_us": 9.0,
            "median_us": 2.0,
            "p10_us": pytest.approx(1.2),
            "p90_us": pytest.approx(2.8),
            "p99_us": pytest.approx(2.98),
            "driver_us": None,
            "python_us": None,
        }
        assert [row["path"] for row in found["ranges"]] == [["block"], ["block", "ssd"]]
        assert len(found["rows"]) == 2

    def test_the_table_shows_figures_and_names_as_they_are(self) -> None:
        lines = printed(self.example(host_only=False)).splitlines()
        (scan,) = (line for line in lines if "block/ssd" in line)
        assert [cell.strip() for cell in scan.split()] == [
            "block/ssd", "1", "scan", "3", "9.00", "2.00", "1.20", "2.80",
        ]  # fmt: skip
        (outside,) = (line for line in lines if "(no range)" in line)
        assert "[bold]k" in outside

    @pytest.mark.parametrize(("columns", "widest"), [(50, 80), (80, 80), (200, 200)])
    def test_the_printed_table_fits_the_terminal_and_cuts_nothing(
        self, columns: int, widest: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        counts, letters = Tally(LIMIT), "".join(map(chr, range(0x400, 0x450)))
        add(counts, counts.child(counts.root, "ssd", 3), letters, 1000)
        text = str(profile(counts))
        assert max(map(len, text.splitlines())) <= widest
        assert (letters in text) == (widest == 200)
        assert "".join(each for each in text if each in letters) == letters

    def test_the_table_says_what_was_subtracted_and_left_out(self) -> None:
        text = " ".join(printed(self.example(host_only=False), width=200).split())
        assert "0.05 µs of the recorder subtracted" in text
        assert "1 launches beyond the sample limit" in text
        assert "1 launches failed" in text
        assert "host-only" not in text

    def test_host_only_figures_are_labelled(self) -> None:
        result = self.example(host_only=True)
        assert result.host_only
        assert "host-only: no driver was called" in printed(result)
        assert not self.example(host_only=False).host_only
        assert self.example(host_only=False).to_dict()["mode"] == "cuda"
