"""Calls of the runtime and driver APIs, and what driver and profiler cost. Above the model."""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.model import CALL_KINDS, CALL_LAYERS, UNKNOWN
from launchkit.profiling.timeline.nsys import cleaning
from launchkit.profiling.timeline.nsys.owners import owner, thread
from launchkit.profiling.timeline.nsys.tables import Export
from launchkit.profiling.timeline.vocabulary import api_name, call_kind, call_layer

NO_NAME = "[unknown]"
"""The name of what has none in StringIds."""

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
OVERHEADS = "CUPTI_ACTIVITY_KIND_OVERHEAD"
OWN_OVERHEADS = "PROFILER_OVERHEAD"
_COLUMNS = dict.fromkeys(
    ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"), pl.Int64
)
_LAYERS = {0: "runtime", 1: "driver"}
_OVERHEAD_COLUMNS = dict.fromkeys(
    ("start", "end", "globalTid", "correlationId", "overheadType"), pl.Int64
)
_OVERHEAD_KINDS = {
    2: "jit",
    3: "flush",
    4: "instrumentation",
    5: "resource",
    6: "module_loading",
    7: "lazy_loading",
    8: "queue_full",
}
_UNNAMED = (0, 1)


def read_calls(export: Export) -> pl.DataFrame:
    """Return the API calls, in the columns of the model; owners stand for processes."""
    names = _Names(export)
    calls = pl.concat([_calls(export, piece, names) for piece in export.pieces(CALLS, _COLUMNS)])
    names.warn_of_unknown_launches()
    nameless, homeless = pl.col("name") == NO_NAME, pl.col("process") == UNKNOWN
    noted = calls.select(nameless.sum().alias("nameless"), homeless.sum().alias("homeless"))
    export.counts.add(
        CALLS,
        noted={
            "with a name that is not in StringIds": noted["nameless"].item(),
            "without a thread": noted["homeless"].item(),
        },
    )
    return calls


def _calls(export: Export, rows: pl.DataFrame, names: _Names) -> pl.DataFrame:
    rows = cleaning.intervals(_timed(rows), CALLS, export.counts)
    functions = names.of(rows)
    rows = rows.join(functions, on="nameId", how="left", maintain_order="left", nulls_equal=True)
    layer = pl.col("eventClass").replace_strict(_LAYERS, default=None, return_dtype=CALL_LAYERS)
    return rows.select(
        "process",
        "thread",
        "start_ns",
        "end_ns",
        "name",
        "kind",
        layer=pl.coalesce(layer, "layer"),
        correlation=correlation(),
        returned="returnValue",
    )


def read_overheads(export: Export) -> pl.DataFrame:
    """Return what CUPTI and Nsight Systems say of their own and the driver's time."""
    rows = _timed(export.read(OVERHEADS, _OVERHEAD_COLUMNS))
    rows = cleaning.intervals(rows, OVERHEADS, export.counts)
    known = [*_OVERHEAD_KINDS, *_UNNAMED]
    new = rows.filter(~pl.col("overheadType").is_in(known))["overheadType"].unique().to_list()
    if new:
        export.warn(
            f"overheads of types that are not known are kept as other: {sorted(new, key=str)}"
        )
    kind = pl.col("overheadType").replace_strict(
        _OVERHEAD_KINDS, default="other", return_dtype=pl.String
    )
    own = _timed(export.read(OWN_OVERHEADS, _OVERHEAD_COLUMNS))
    own = cleaning.intervals(own, OWN_OVERHEADS, export.counts)
    wanted = ["process", "thread", "start_ns", "end_ns"]
    return pl.concat(
        [
            rows.select(*wanted, kind=kind, correlation=correlation()),
            own.select(*wanted, kind=pl.lit("instrumentation"), correlation=pl.lit(None, pl.Int64)),
        ]
    )


def correlation() -> pl.Expr:
    """Return the correlation of a row: null where it is 0, which old exports have for none."""
    return pl.when(pl.col("correlationId") != 0).then("correlationId")


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    named = rows.with_columns(process=owner("globalTid"), thread=thread("globalTid"))
    return named.rename({"start": "start_ns", "end": "end_ns"}).drop("globalTid")


class _Names:
    """Name, kind and layer of every function that is called, found once each."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._known = _functions(pl.DataFrame(schema={"nameId": pl.Int64, "given": pl.String}))

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return ``nameId``, ``name``, ``kind`` and ``layer`` of the functions in ``rows`` and before."""
        ids = rows.select("nameId").unique(maintain_order=True)
        new = ids.join(
            self._known, on="nameId", how="anti", nulls_equal=True, maintain_order="left"
        )
        if new.height:
            given = _functions(self._export.named(new, "nameId", "given"))
            self._known = pl.concat([self._known, given])
        return self._known

    def warn_of_unknown_launches(self) -> None:
        """Name the functions that look like launches and are not in the vocabulary."""
        unknown = self._known.filter(pl.col("kind") == "unknown_launch")["name"].unique().sort()
        if len(unknown):
            listed = ", ".join(unknown.to_list())
            self._export.warn(f"API functions that look like launches and are not known: {listed}")


def _functions(ids: pl.DataFrame) -> pl.DataFrame:
    given = [name or NO_NAME for name in ids["given"].to_list()]
    return ids.select("nameId").with_columns(
        name=pl.Series([api_name(name) for name in given], dtype=pl.String),
        kind=pl.Series([call_kind(name) for name in given], dtype=CALL_KINDS),
        layer=pl.Series([call_layer(name) for name in given], dtype=CALL_LAYERS),
    )
