"""The timeline's tables: columns, types, order and ids whatever rows they are made of."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from launchkit.errors import MissingExtraError, UsageError
from launchkit.profiling.timeline import (
    TABLES,
    RowCounts,
    Source,
    Timeline,
    empty_table,
    table_of,
)

RANGE = {"process": 7, "name": "step", "kind": "push_pop"}


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_has_the_models_columns_and_types(table):
    assert dict(empty_table(table).schema) == {
        name: pl.DataFrame(schema={name: dtype})[name].dtype
        for name, dtype in TABLES[table].items()
    }
    assert table_of(table, []).equals(empty_table(table))


def test_rows_are_sorted_the_longer_first_and_numbered():
    rows = [
        {**RANGE, "name": name, "process": process, "start_ns": start, "end_ns": end}
        for name, process, start, end in [
            ("inner", 7, 5, 9), ("late", 7, 8, 9), ("outer", 7, 5, 20), ("first", 3, 30, 31)
        ]
    ]  # fmt: skip
    table = table_of("ranges", rows)
    assert table["name"].to_list() == ["first", "outer", "inner", "late"]
    assert table["range_id"].to_list() == [0, 1, 2, 3]
    assert table["thread"].to_list() == [-1] * 4
    assert table["closed"].all()
    assert table["domain"].to_list() == [""] * 4
    assert table["payload"].null_count() == 4


def test_a_null_where_the_model_has_none_becomes_the_default():
    table = table_of("calls", [{"process": 1, "thread": None, "outermost": None, "name": None}])
    assert table.select("thread", "outermost", "name").row(0) == (-1, True, "")


def test_columns_that_the_model_does_not_know_stand_behind_its_own():
    rows = [
        {"find_ns": 40, "process": 1, "start_ns": 0, "end_ns": 9, "name": "k", "kind": "launch"}
    ]
    table = table_of("calls", rows)
    assert table.columns == [*TABLES["calls"], "find_ns"]
    assert table["find_ns"].to_list() == [40]


def test_an_unknown_table_is_refused():
    with pytest.raises(UsageError, match=r"no table 'kernels'. It has: ranges, calls"):
        empty_table("kernels")


def test_a_timeline_spans_from_its_first_start_to_its_last_end():
    empty = Timeline(Source("a", "chrome"))
    assert empty.span_ns() == (0, 0)
    ranges = pl.DataFrame([{**RANGE, "start_ns": 40, "end_ns": 90}])
    gpu = pl.DataFrame([{"process": 7, "start_ns": 50, "end_ns": 120, "kind": "kernel"}])
    assert empty.with_tables(ranges=ranges, gpu=gpu).span_ns() == (40, 120)


def test_a_warning_is_kept_once():
    timeline = Timeline(Source("a", "chrome"), warnings=("one",)).warned("two", "one")
    assert timeline.warnings == ("one", "two")


def test_counts_add_up_and_can_be_told():
    counts, other = RowCounts(), RowCounts()
    counts.add("calls", read=5, used=4, dropped={"before the capture": 1, "never": 0})
    other.add("calls", read=2, used=1, dropped={"before the capture": 1}, noted={"captured": 1})
    counts.update(other)
    assert counts["calls"].to_dict() == {
        "read": 7,
        "used": 5,
        "dropped": {"before the capture": 2},
        "noted": {"captured": 1},
    }
    assert counts["gpu"].read == 0
    assert counts.sentences() == [
        "calls: 7 read, 5 used, 2 dropped (2 before the capture); 1 captured"
    ]


def test_without_polars_the_extra_is_named():
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "import launchkit.profiling.timeline as timeline\n"
        "try: timeline.Timeline\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{MissingExtraError.__name__} " + (
        "polars is not installed. It comes with an extra: pip install 'launchkit-triton[profile]'."
    )
