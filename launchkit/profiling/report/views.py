"""Which figures of a report people see, in the terminal and in HTML. Reads a document only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from launchkit.profiling.names import DOMAIN

Row = Mapping[str, Any]
Document = Mapping[str, Any]
Kind = Literal["text", "count", "us", "percent"]


@dataclass(frozen=True)
class Column:
    """A column of a table: ``value`` gives what a row has there, None for nothing.

    ``us``: the value is in ns and shown in µs; ``percent``: a share of 1. A column needs ``room``
    characters in a line, else it is left out; one that ``folds`` takes several lines for a long
    text.
    """

    title: str
    value: Callable[[Row], Any]
    kind: Kind = "us"
    room: int = 0
    folds: bool = False

    def text(self, row: Row) -> str:
        """Return what a row has in this column, for people."""
        value = self.value(row)
        if value is None:
            return ""
        if self.kind == "us":
            return microseconds(value)
        if self.kind == "percent":
            return f"{100 * value:.0f} %"
        return f"{value:,}" if self.kind == "count" else str(value)


@dataclass(frozen=True)
class View:
    """A table as people see it: ``rows`` are those of the document that stand in it."""

    key: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: Callable[[Document], list[Row]]


def microseconds(value_ns: float) -> str:
    """Return a time in µs, with three digits at least; in s from a second on."""
    us = value_ns / 1000
    if abs(us) >= 1e6:
        return f"{us / 1e6:,.2f} s"
    if abs(us) >= 100 or us == 0:
        return f"{us:,.0f}"
    return f"{us:.1f}" if abs(us) >= 10 else f"{us:.2f}"


def titled(row: Row) -> str:
    """Return a range's name, behind its domain where that is not launchkit's."""
    domain = row.get("domain")
    return f"{domain}:{row['name']}" if domain not in (None, "", DOMAIN) else str(row["name"])


def place_of(row: Row) -> str:
    """Return the range that a row of something else is in, as ``titled`` has it."""
    if row.get("range") is None:
        return "(outside any range)"
    return titled({"name": row["range"], "domain": row.get("domain")})


def _of(name: str) -> Callable[[Row], Any]:
    return lambda row: row.get(name)


def _each(name: str) -> Callable[[Row], Any]:
    """A total by occurrence."""

    def value(row: Row) -> float | None:
        total = row.get(name)
        return total / row["count"] if total is not None and row["count"] else None

    return value


def _process(row: Row) -> str:
    number = f"pid {row['process']}" if row["rank"] is None else f"rank {row['rank']}"
    return f"{number} {row['name']}".strip()


def _layer(row: Row) -> str:
    return "-" if row.get("layer") is None else str(row["layer"])


_HOST = (
    Column("Python", _each("inclusive_python_ns")),
    Column("calls", _each("api_ns")),
    Column("queue full", _each("stall_ns"), room=100),
    Column("cold", _each("cold_ns"), room=190),
    Column("waits", _each("sync_ns")),
)
_ON_GPU = (
    Column("GPU work", _each("gpu_ns"), room=130),
    Column("GPU busy", _each("gpu_busy_ns"), room=190),
    Column("GPU idle", _each("exposed_idle_ns")),
)
_QUANTILES = (
    Column("p50", _of("median_ns")),
    Column("p90", _of("p90_ns"), room=160),
    Column("p99", _of("p99_ns"), room=160),
)
_COUNT = Column("count", _of("count"), "count")
_TOTAL = Column("total", _of("total_ns"))

CHANGES = {
    "CachedLaunches": "cached launches", "OpPlan": "op plan", "CudaGraph": "CUDA graph",
    "Fused": "fused",
}  # fmt: skip
"""What people call the changes that are predicted."""

VIEWS = (
    View(
        "ranges", "Ranges",
        "µs of one, on average. calls include queue full and cold; waits are synchronizing calls.",
        (
            Column("range", titled, "text", folds=True),
            Column("verdict", _of("verdict"), "text"), _COUNT, Column("wall", _each("total_ns")),
            Column("p50", _of("median_ns"), room=112), *_QUANTILES[1:],
            Column("exclusive", _each("exclusive_ns"), room=190), *_HOST,
            Column("launches", lambda row: _rounded(_each("launches")(row)), "count", room=90),
            *_ON_GPU,
            Column("why", _of("reason"), "text", room=220, folds=True),
        ),
        lambda document: list(document["ranges"]),
    ),
    View(
        "launches", "Launches",
        "µs of the whole launch call, its driver call included; phases where they are known.",
        (
            Column("kernel", _of("name"), "text", folds=True), _COUNT, _TOTAL, *_QUANTILES,
            Column("find p50", _of("median_find_ns")), Column("grid p50", _of("median_grid_ns")),
            Column("driver p50", _of("median_driver_ns")),
        ),
        lambda document: list(document["launches"]),
    ),
    View(
        "idle", "Why the GPU was idle",
        "By what the launching thread did, and the range that it did it in.",
        (
            Column("range", place_of, "text", folds=True), Column("cause", _of("cause"), "text"),
            Column("gaps", _of("gaps"), "count"), Column("µs in all", _of("idle_ns")),
            Column("µs per step", _of("step_ns")),
        ),
        lambda document: list(document["idle"]),
    ),
    View(
        "processes", "Processes",
        "µs; late: a launch after the first process's same launch; last: how often it was the last.",
        (
            Column("process", _process, "text"),
            Column("launches", _of("count"), "count"), _TOTAL,
            Column("queue full", _of("stall_ns"), room=100),
            Column("p50", _of("launch_median_ns")), Column("GPU work", _of("gpu_ns")),
            Column("compared", _of("matched"), "count", room=130),
            Column("late p50", _of("late_median_ns")), Column("late p90", _of("late_p90_ns")),
            Column("late max", _of("late_max_ns"), room=100),
            Column("last", _of("last_share"), "percent"),
        ),
        lambda document: list(document["processes"]),
    ),
    View(
        "what_if", "What if",
        "µs per step, of the whole capture where there is none, predicted by replaying host and GPU; "
        "warm: with the host code that stays a quarter faster, as it was found to get; hidden: saved "
        "on the host, but the GPU takes as long.",
        (
            Column("range", _of("range"), "text", folds=True),
            Column("change", lambda row: CHANGES.get(row["change"], row["change"]), "text"),
            Column("measured", _of("measured_ns")), Column("replayed", _of("replayed_ns")),
            Column("predicted", _of("predicted_ns")), Column("warm", _of("warm_ns"), room=100),
            Column("saved", _of("saved_ns")),
            Column("hidden", _of("hidden_ns")),
            Column("but", lambda row: "; ".join(row["notes"]), "text", room=160, folds=True),
        ),
        lambda document: list(document["what_if"]),
    ),
    View(
        "layers", "Host time by layer and slot",
        "µs in all, of what no inner range takes: the rows add up.",
        (
            Column("layer", _layer, "text"), Column("slot", lambda row: row["slot"] or "-", "text"),
            _COUNT, _TOTAL, Column("Python", _of("python_ns")), Column("calls", _of("api_ns")),
            Column("waits", _of("sync_ns")), Column("launches", _of("launches"), "count"),
            Column("GPU work", _of("gpu_ns")),
        ),
        lambda document: [row for row in document["layers"] if row["slot"] or _layer(row) != "-"],
    ),
    View(
        "apis", "Calls of the CUDA API",
        "µs; stalled: launches that waited for the GPU to make room; queue full: how long in all, "
        "which is no launch cost; p50 without: with that taken off.",
        (
            Column("function", _of("name"), "text", folds=True), _COUNT, _TOTAL, *_QUANTILES,
            Column("stalled", _of("stalled"), "count"), Column("queue full", _of("stall_ns")),
            Column("p50 without", _of("launch_median_ns")),
        ),
        lambda document: list(document["apis"]),
    ),
    View(
        "kernels", "Kernels and graphs",
        "µs on the GPU; launch: of its call, queue: from the call's return to the start.",
        (
            Column("kernel", _of("name"), "text", folds=True),
            Column("slot", _of("slot"), "text", room=160),
            _COUNT, _TOTAL, *_QUANTILES, Column("launch p50", _of("launch_median_ns")),
            Column("queue p50", _of("queue_median_ns")),
        ),
        lambda document: list(document["kernels"]),
    ),
    View(
        "python", "Python by range",
        "Share of the samples taken in a range, inner ranges included; low and high: 95 % interval.",
        (
            Column("range", place_of, "text", folds=True), Column("doing", _of("name"), "text"),
            Column("samples", _of("count"), "count"), Column("of", _of("of"), "count", room=100),
            Column("share", _of("share"), "percent"), Column("low", _of("low"), "percent"),
            Column("high", _of("high"), "percent"),
        ),
        lambda document: list(document["python"]),
    ),
    View(
        "frames", "Frames by range",
        "The innermost Python frames of the samples, the most frequent of each range.",
        (
            Column("range", place_of, "text", folds=True),
            Column("frame", _of("name"), "text", folds=True),
            Column("doing", _of("bucket"), "text", room=130),
            Column("samples", _of("count"), "count"), Column("share", _of("share"), "percent"),
            Column("low", _of("low"), "percent", room=100),
            Column("high", _of("high"), "percent", room=100),
        ),
        lambda document: list(document["frames"]),
    ),
    View(
        "sync", "Waits for the GPU",
        "µs; GPU active: how much of it any GPU executed something.",
        (
            Column("call", _of("name"), "text", folds=True),
            Column("range", place_of, "text", folds=True), _COUNT, _TOTAL,
            Column("p50", _of("median_ns")), Column("GPU active", _of("gpu_active_ns")),
        ),
        lambda document: list(document["sync"]),
    ),
    View(
        "cold", "Cold launches",
        "µs; what loads or compiles, and each kernel's first launch in the capture. They are not in "
        "the steady figures.",
        (
            Column("kernel", lambda row: row["kernel"] or row["name"], "text", folds=True),
            Column("took", _of("cold_ns")), Column("loading", _of("loading_ns"), room=160),
            Column("steady p50", _of("steady_median_ns")), Column("excess", _of("excess_ns")),
        ),
        lambda document: list(document["cold"]),
    ),
)  # fmt: skip
"""The tables of a report, in their order."""


def _rounded(value: float | None) -> float | int | None:
    return None if value is None else round(value) if value == round(value) else round(value, 1)
