"""A copy of a chrome trace that can be shared. Above the copies of traces.

As with exports it says what to keep: times, ids and other numbers, names, and few texts by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from launchkit.profiling.timeline.copies.files import AnyPath
from launchkit.profiling.timeline.copies.scrubbed_text import Cleaner, file_name
from launchkit.profiling.timeline.copies.trace_rewriting import TABLE, Event, Members, copy_trace
from launchkit.profiling.timeline.counts import RowCounts

_FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s")
_TEXTS = frozenset(
    {"kernel", "kind", "cuda_sync_kind", "name", "labels", "dtype", "Collective name"}
)
"""Arguments of an event whose text is kept, as names are; of the others, numbers only."""
_MEMBERS = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds")
_DEVICE_TEXTS = ("name",)
_MOST = 2**63


def scrub_trace(path: AnyPath, output: AnyPath) -> RowCounts:
    """Write a copy of the chrome trace ``path`` that says nothing of the machine to ``output``.

    Kept are phases, categories, times, ids, names without paths, addresses and hosts, and numbers
    among the arguments. Stacks, inputs as text, file names and members of other kinds are left
    out. Raises TimelineError for what is no trace.
    """
    counts = RowCounts()
    scrubbing = _TraceScrubbing(counts)
    copy_trace(path, output, counts, scrubbing.events, scrubbing.members)
    return counts


class _TraceScrubbing:
    def __init__(self, counts: RowCounts) -> None:
        self._counts = counts
        self._clean = Cleaner().clean

    def events(self, found: Iterator[Any]) -> Iterator[Event]:
        """Yield each event as it may be shared."""
        read = used = shortened = 0
        for event in found:
            read += 1
            if isinstance(event, dict):
                used += 1
                kept, left_out = self._event(event)
                shortened += left_out
                yield kept
        dropped, noted = read - used, {"without some of their arguments": shortened}
        self._counts.add(
            TABLE, read=read, used=used, dropped={"that are no objects": dropped}, noted=noted
        )

    def _event(self, event: Mapping[str, Any]) -> tuple[Event, bool]:
        kept = {name: self._field(event[name]) for name in _FIELDS if name in event}
        args = event.get("args")
        if not isinstance(args, dict):
            return kept, False
        chosen = {
            name: made
            for name, value in args.items()
            if (made := self._argument(name, value, event)) is not None
        }
        kept["args"] = chosen
        return kept, len(chosen) < len(args)

    def _field(self, value: Any) -> Any:
        return self._clean(value) if isinstance(value, str) else _number(value)

    def _argument(self, name: str, value: Any, event: Mapping[str, Any]) -> Any:
        if self._clean(name) != name:
            return None
        if isinstance(value, str) and name in _TEXTS:
            of_process = event.get("name") == "process_name"
            return self._clean(file_name(value) if of_process else value)
        return _numbers(value)

    def members(self, found: Members) -> Members:
        """Return what is kept of the members beside the events."""
        kept = {name: self._field(found[name]) for name in _MEMBERS if name in found}
        devices = found.get("deviceProperties")
        if isinstance(devices, list):
            kept["deviceProperties"] = [
                self._named_numbers(each, _DEVICE_TEXTS)
                for each in devices
                if isinstance(each, dict)
            ]
        if isinstance(found.get("distributedInfo"), dict):
            kept["distributedInfo"] = self._named_numbers(found["distributedInfo"], ("backend",))
        left_out = found.keys() - kept.keys()
        self._counts.add("members", read=len(found), used=len(kept),
                         dropped={"say where it ran, or are not known": len(left_out)})  # fmt: skip
        return kept

    def _named_numbers(self, values: Mapping[str, Any], texts: tuple[str, ...]) -> Members:
        made = {
            name: self._clean(value)
            if isinstance(value, str) and name in texts
            else _numbers(value)
            for name, value in values.items()
            if self._clean(name) == name
        }
        return {name: value for name, value in made.items() if value is not None}


def _number(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, int) and -_MOST <= value < _MOST):
        return value
    return value if isinstance(value, Decimal) and value.is_finite() else None


def _numbers(value: Any) -> Any:
    """Return a number, or a list of nothing but such; None for all else."""
    if not isinstance(value, list):
        return _number(value)
    made = [_numbers(each) for each in value]
    return None if any(each is None for each in made) else made
