"""NVTX events of an export as ranges and marks, with domains and categories. Above the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import polars as pl

from launchkit.profiling.names import DOMAIN
from launchkit.profiling.timeline.model import RANGE_KINDS
from launchkit.profiling.timeline.nsys import cleaning
from launchkit.profiling.timeline.nsys.owners import owner, thread
from launchkit.profiling.timeline.nsys.tables import Export

TABLE = "NVTX_EVENTS"
_NUMBERS = ("uint64Value", "int64Value", "uint32Value", "int32Value")
_REALS = ("doubleValue", "floatValue")
_COLUMNS = {
    **dict.fromkeys(
        (
            "start",
            "end",
            "eventType",
            "category",
            "globalTid",
            "endGlobalTid",
            "textId",
            "domainId",
            *_NUMBERS,
        ),
        pl.Int64,
    ),
    **dict.fromkeys(_REALS, pl.Float64),
    **dict.fromkeys(("text", "jsonText"), pl.String),
}

# The ids are the same in every version seen; the names are those of ENUM_NSYS_EVENT_TYPE.
_ROLES: Mapping[str, tuple[str, int]] = {
    "NvtxCategory": ("category", 33),
    "NvtxMark": ("mark", 34),
    "NvtxThread": ("thread", 39),
    "NvtxPushPopRange": ("push_pop", 59),
    "NvtxStartEndRange": ("start_end", 60),
    "NvtxtCategory": ("category", 64),
    "NvtxtMark": ("mark", 65),
    "NvtxtPushPopRange": ("push_pop", 70),
    "NvtxtStartEndRange": ("start_end", 71),
    "NvtxDomainCreate": ("domain", 75),
    "NvtxDomainDestroy": ("domain_end", 76),
}
_NO_EVENTS = ("category", "thread", "domain", "domain_end")

# What PyTorch's emit_nvtx writes behind an op's name, different in every row.
_INSTANCE = r"(?s), (op_id|seq|sizes|input_op_ids) = .*$"
_SLACK_NS = 1_000


def read_ranges(export: Export, end_ns: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the ranges and marks, and the threads that NVTX names; owners stand for processes.

    ``end_ns``: when the capture ended. A push/pop or start/end range that has no end, or ends then,
    was never closed: old versions write the capture's end.
    """
    roles = _Roles(export)
    pieces = [_events(export, piece, roles) for piece in export.pieces(TABLE, _COLUMNS)]
    names, events = (
        pl.concat([names for names, _ in pieces]),
        pl.concat([each for _, each in pieces]),
    )
    del pieces
    roles.warn_of_unknown(export)
    export.counts.add(TABLE, read=names.height, used=names.height)
    events = cleaning.intervals(_closed(export, events, end_ns), TABLE, export.counts)
    _warn_of_dropped(export, events, names)
    events = _domains(export, events, names)
    threads = names.filter(pl.col("role") == "thread")
    return _columns(events), threads.select("process", "thread", name="text")


def _events(export: Export, rows: pl.DataFrame, roles: _Roles) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that only name something, and those that happened, in fewer columns."""
    rows = roles.known(rows).with_columns(process=owner("globalTid"), thread=thread("globalTid"))
    rows = _texts(export, rows)
    told = rows["role"].is_in(_NO_EVENTS)
    values = [pl.col(name).cast(pl.String) for name in (*_NUMBERS, *_REALS)]
    payload = pl.coalesce(*values, "jsonText")
    happened = _cleaned(rows.filter(~told)).with_columns(
        payload=payload, kind=pl.col("role").cast(RANGE_KINDS)
    )
    unused = [*_NUMBERS, *_REALS, "jsonText", "eventType", "globalTid"]
    return rows.filter(told).drop(unused), happened.drop(*unused, "role")


class _Roles:
    """What each event type stands for, and the types that are not known, with their rows."""

    def __init__(self, export: Export) -> None:
        columns = {"id": pl.Int64, "name": pl.String}
        named = export.read("ENUM_NSYS_EVENT_TYPE", columns).drop_nulls()
        self._of = {number: role for role, number in _ROLES.values()}
        self._of |= {
            number: _ROLES[name][0] for number, name in named.iter_rows() if name in _ROLES
        }
        self._unknown: Counter[int | None] = Counter()

    def known(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of known types, with their ``role``."""
        role = pl.col("eventType").replace_strict(
            list(self._of), list(self._of.values()), default=None, return_dtype=pl.String
        )
        rows = rows.with_columns(role=role)
        unknown = rows["role"].is_null()
        if unknown.any():
            self._unknown.update(rows.filter(unknown)["eventType"].to_list())
            rows = rows.filter(~unknown)
        return rows

    def warn_of_unknown(self, export: Export) -> None:
        """Count the rows of types that are not known, and name the types."""
        rows = self._unknown.total()
        export.counts.add(TABLE, read=rows, dropped={"of an unknown event type": rows})
        if rows:
            types = sorted(self._unknown, key=str)
            export.warn(f"{rows} NVTX events are of types that are not known: {types}")


def _texts(export: Export, rows: pl.DataFrame) -> pl.DataFrame:
    rows = export.named(rows, "textId", "registered")
    own = pl.when(pl.col("text") != "").then("text")
    dangling = rows.filter(
        pl.col("textId").is_not_null() & pl.col("registered").is_null() & own.is_null()
    )
    nameless = rows.filter(
        pl.col("textId").is_null() & own.is_null() & ~pl.col("role").is_in(_NO_EVENTS)
    )
    noted = {
        "with a name that is not in StringIds": dangling.height,
        "without a name": nameless.height,
    }
    export.counts.add(TABLE, noted=noted)
    return rows.with_columns(text=pl.coalesce(own, "registered", pl.lit(""))).drop(
        "registered", "textId"
    )


def _cleaned(events: pl.DataFrame) -> pl.DataFrame:
    # Exports of 2019 and 2020 have 0 or -1 where later ones have NULL.
    start, end = pl.col("start"), pl.col("end")
    end = pl.when(end.is_in([0, -1]) & (end < start)).then(None).otherwise(end)
    return events.with_columns(
        start_ns=start,
        end_ns=pl.when(pl.col("role") == "mark").then(start).otherwise(end),
        end_thread=pl.when(pl.col("endGlobalTid") > 0).then(thread("endGlobalTid")),
        domainId=pl.col("domainId").fill_null(0),
    ).drop("start", "end", "endGlobalTid")


def _closed(export: Export, events: pl.DataFrame, end_ns: int | None) -> pl.DataFrame:
    latest = events.select(pl.max_horizontal(pl.max("start_ns"), pl.max("end_ns"))).item()
    last_ns = latest if end_ns is None else end_ns
    end = pl.col("end_ns")
    open_ = end.is_null() if end_ns is None else end.is_null() | (end >= end_ns - _SLACK_NS)
    open_ = open_ & (pl.col("kind") != "mark")
    events = events.with_columns(closed=~open_)
    events = events.with_columns(
        end_ns=pl.when(end.is_null() & open_)
        .then(pl.max_horizontal("start_ns", pl.lit(last_ns)))
        .otherwise(end)
    )
    export.counts.add(TABLE, noted={"never closed": events.height - int(events["closed"].sum())})
    return events


def _domains(export: Export, events: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    made = _last(names, "domain", ["process", "domainId"], "domain")
    labels = _last(names, "category", ["process", "domainId", "category"], "category_name")
    events = events.join(made, on=["process", "domainId"], how="left", maintain_order="left")
    events = events.join(
        labels, on=["process", "domainId", "category"], how="left", maintain_order="left"
    )
    nameless = events["domain"].is_null() & (events["domainId"] != 0)
    export.counts.add(TABLE, noted={"in a domain without a name": int(nameless.sum())})
    number = pl.when(pl.col("category") != 0).then(pl.col("category").cast(pl.String))
    domain = (
        pl.when(pl.col("domainId") == 0)
        .then(pl.lit(""))
        .otherwise(pl.format("domain {}", "domainId"))
    )
    return events.with_columns(
        domain=pl.coalesce("domain", domain), category=pl.coalesce("category_name", number)
    )


def _warn_of_dropped(export: Export, events: pl.DataFrame, names: pl.DataFrame) -> None:
    """Warn where launchkit, or all programs, named a domain and nothing arrived in it."""
    created = names.filter(pl.col("role") == "domain")
    own = created.filter(pl.col("text") == DOMAIN)
    used = own.join(events, on=["process", "domainId"], how="semi").height
    if (own.height and not used) or (created.height and not events.height):
        what = "launchkit's domain" if own.height else "the NVTX domains"
        export.warn(
            f"no range arrived in {what}: this nsys drops those of Python's nvtx, as 2022 and 2023 do "
            "from nvtx 0.2.12 on, or none was opened (capture with a newer nsys; launchkit doctor "
            "names what fits)"
        )


def _last(names: pl.DataFrame, role: str, keys: list[str], name: str) -> pl.DataFrame:
    """Return the last name given to each of ``keys``: an id may be used again once it was destroyed."""
    rows = names.filter(pl.col("role") == role).with_columns(pl.col("domainId").fill_null(0))
    return rows.unique(keys, keep="last", maintain_order=True).select(
        *keys, pl.col("text").alias(name)
    )


def _columns(events: pl.DataFrame) -> pl.DataFrame:
    short = pl.col("text").str.replace(_INSTANCE, "")
    made = events.select(
        "process",
        "thread",
        "domain",
        "category",
        "start_ns",
        "end_ns",
        "closed",
        "end_thread",
        "kind",
        "payload",
        name=short,
        full_name=pl.when(short != pl.col("text")).then("text"),
    )
    return made if made["full_name"].count() else made.drop("full_name")
