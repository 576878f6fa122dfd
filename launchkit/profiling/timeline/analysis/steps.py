"""Which ranges are the steps of a program: what figures per step divide by. Above the model."""

from __future__ import annotations

import difflib

import polars as pl

from launchkit.errors import UsageError

_STEP = (
    r"(?i)^(profilerstep#\d+"
    r"|([a-z]+[ _.-])?(step|iter|iteration)([ _#:.=-]*\d+)?)$"
)
_NUMBER = r"[ _#:.=-]*\d+$"


def steps_of(instances: pl.DataFrame, step_range: str | None = None) -> pl.DataFrame:
    """Return the closed ranges that are steps, in the order of their start.

    ``step_range`` is their name, or what their names begin with before a number; without it,
    names such as ``step``, ``step 3``, ``train_step`` and ``ProfilerStep#3`` are taken. Where
    such ranges nest, the outermost of a thread count; where several threads have some, those of
    the thread with most. Empty where there are none.

    Raises:
        UsageError: no closed range is called ``step_range``.
    """
    closed = instances.filter(pl.col("closed") & (pl.col("kind") != "mark"))
    name = pl.col("name")
    if step_range is None:
        found = closed.filter(name.str.contains(_STEP))
    else:
        stripped = name.str.replace(_NUMBER, "")
        found = closed.filter((name == step_range) | (stripped == step_range))
        if found.is_empty():
            raise _unknown(step_range, closed)
    return _outermost(found)


def _outermost(found: pl.DataFrame) -> pl.DataFrame:
    busiest = found.group_by("lane").len().sort("len", "lane", descending=[True, False])
    one = found.filter(pl.col("lane").is_in(busiest.get_column("lane").head(1).implode()))
    one = one.sort("start_ns", "end_ns", descending=[False, True])
    reached = pl.col("end_ns").cum_max().shift(1)
    return one.filter(reached.is_null() | (pl.col("start_ns") >= reached))


def _unknown(step_range: str, closed: pl.DataFrame) -> UsageError:
    names = closed.get_column("name").unique().sort().to_list()
    near = difflib.get_close_matches(step_range, names) or names[:5]
    return UsageError(
        f"no closed range is called {step_range!r}. Name one that is: "
        f"{', '.join(near) or 'the capture has none'}.",
        step_range=step_range,
        names=names,
    )


def step_table(steps: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each step: ``step``, its figures, ``period_ns`` and ``done_ns``.

    ``period_ns`` is the time to the next step's start (null for the last one), ``done_ns`` when
    the host and the step's GPU work were both done, after its start.
    """
    last = pl.max_horizontal("end_ns", "gpu_last_ns")
    return steps.with_row_index("step").with_columns(
        period_ns=pl.col("start_ns").shift(-1) - pl.col("start_ns"),
        done_ns=last - pl.col("start_ns"),
    )
