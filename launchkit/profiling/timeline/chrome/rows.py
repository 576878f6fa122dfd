"""Rows of the timeline from the events of a chrome trace. Above the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from launchkit.profiling.timeline.chrome.columns import Columns
from launchkit.profiling.timeline.chrome.values import (
    CALL,
    GPU,
    HOST,
    LEFT_OUT,
    OVERHEAD,
    ROLES,
    arguments,
    gpu_kind,
    integer,
    nanoseconds,
    overhead_kind,
    short_kernel_name,
    text,
)
from launchkit.profiling.timeline.model import UNKNOWN
from launchkit.profiling.timeline.vocabulary import api_name, call_kind, call_layer

# Kineto's ranges are on one stack a thread; Python's frames may cross them.
_DOMAINS = {"python_function": "python"}
_TORCH = {"cpu_op", "operator", "user_annotation"}

# Kineto's own marks: where its window begins and ends.
_OF_THE_PROFILER = ("Traces", "")

_FLOWS = ("s", "t", "f")
_INSTANTS = ("i", "I", "R", "n")
_Lane = tuple[int, int]


class Rows:
    """The tables while a trace is read; ``add`` takes its events in any order.

    Times are those of the trace in ns. ``dropped`` counts events by reason, ``noted`` those used
    that are remarkable.
    """

    def __init__(self) -> None:
        on_thread = ("process", "thread", "start_ns", "end_ns")
        self.ranges = Columns((*on_thread, "end_thread"), ("name", "domain", "category", "kind"))
        self.open_ends = Columns(("process", "thread", "start_ns"), ("name", "domain", "category"))
        """Ranges that the trace does not end."""
        self.calls = Columns((*on_thread, "correlation"), ("name", "kind", "layer"))
        self.gpu = Columns(
            ("lane", "device", "context", "stream", "start_ns", "end_ns", "correlation",
             "graph_id", "bytes"), ("name", "full_name", "kind"),
        )  # fmt: skip
        self.overheads = Columns(on_thread, ("kind",))
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self.names: dict[str, dict[_Lane, str]] = {"process_name": {}, "thread_name": {}}
        self._numbers: dict[str, int] = {}
        # By thread, or by name and id: (time, place in the file, None for an end, else its names).
        self.halves: dict[tuple[object, ...], list[tuple[int, int, Any]]] = {}

    @property
    def texts(self) -> Mapping[str, int]:
        """Processes and threads that the trace names by a text, and the numbers given to them."""
        return self._numbers

    @property
    def recognised(self) -> int:
        """Events that are of a kind that traces have, usable or not."""
        return self.read - self.dropped["that are no objects"] - self.dropped["of other phases"]

    def add(self, event: Any) -> None:
        """Take one event; what cannot be used is counted."""
        self.read += 1
        if not isinstance(event, dict):
            self.dropped["that are no objects"] += 1
            return
        phase = event.get("ph")
        if phase == "X":
            self._complete(event)
        elif phase == "M":
            self._metadata(event)
        elif phase in _FLOWS:
            self.dropped["arrows of flows"] += 1
        else:
            self._other(event, phase)

    def _other(self, event: Mapping[str, Any], phase: object) -> None:
        if phase in ("B", "E", "b", "e", "S", "F"):
            self._half(event, str(phase))
        elif phase in _INSTANTS:
            self._instant(event)
        elif phase == "C":
            self.dropped["counters"] += 1
        else:
            self.dropped["of other phases"] += 1

    def _complete(self, event: Mapping[str, Any]) -> None:
        category = _category(event)
        if category in LEFT_OUT:
            self.dropped[LEFT_OUT[category]] += 1
            return
        start_ns, lasted = nanoseconds(event.get("ts")), event.get("dur")
        if start_ns is None:
            self.dropped["without a usable time"] += 1
            return
        if isinstance(event.get("ts"), str):
            self.noted["with their time as text"] += 1
        length_ns = nanoseconds(lasted)
        if length_ns is None and lasted is not None:
            self.dropped["without a usable duration"] += 1
        elif length_ns is None:
            self._unended(event, category, start_ns)
        elif length_ns < 0:
            self.dropped["of negative duration"] += 1
        else:
            self._spans[self._role(event, category)](self, event, category, start_ns, length_ns)

    def _unended(self, event: Mapping[str, Any], category: str, start_ns: int) -> None:
        if self._role(event, category) != HOST:
            self.dropped["without a usable duration"] += 1
            return
        names = (text(event.get("name")), domain_of(category), category or None)
        self.open_ends.add((*self.lane(event), start_ns), names)

    @staticmethod
    def _role(event: Mapping[str, Any], category: str) -> str:
        known = ROLES.get(category)
        if known is not None:
            return known
        args = arguments(event)
        return GPU if "correlation" in args and "stream" in args and "device" in args else HOST

    def _host(self, event: Mapping[str, Any], category: str, start_ns: int, length_ns: int) -> None:
        self.ranges.add(
            (*self.lane(event), start_ns, start_ns + length_ns, None),
            (text(event.get("name")), domain_of(category), category or None, "push_pop"),
        )

    def _call(self, event: Mapping[str, Any], category: str, start_ns: int, length_ns: int) -> None:
        name = api_name(text(event.get("name")))
        layer = "driver" if "driver" in category else call_layer(name)
        correlation = integer(arguments(event).get("correlation"))
        self.calls.add(
            (*self.lane(event), start_ns, start_ns + length_ns, correlation or None),
            (name, call_kind(name), layer),
        )

    def _gpu(self, event: Mapping[str, Any], category: str, start_ns: int, length_ns: int) -> None:
        args = arguments(event)
        process, thread = self.lane(event)
        name = text(event.get("name"))
        kind = gpu_kind(category, name)
        device, stream = integer(args.get("device")), integer(args.get("stream"))
        self.gpu.add(
            (process, max(process, 0) if device is None else device, integer(args.get("context")),
             thread if stream is None else stream, start_ns, start_ns + length_ns,
             integer(args.get("correlation")) or None, integer(args.get("graph id")),
             integer(args.get("bytes"))),
            (short_kernel_name(name) if kind == "kernel" else name, name, kind),
        )  # fmt: skip

    def _overhead(
        self, event: Mapping[str, Any], category: str, start_ns: int, length_ns: int
    ) -> None:
        kind = overhead_kind(text(event.get("name")))
        self.overheads.add((*self.lane(event), start_ns, start_ns + length_ns), (kind,))

    _spans: Mapping[str, Callable[..., None]] = {
        HOST: _host,
        CALL: _call,
        GPU: _gpu,
        OVERHEAD: _overhead,
    }

    def _instant(self, event: Mapping[str, Any]) -> None:
        time_ns = nanoseconds(event.get("ts"))
        if time_ns is None:
            self.dropped["without a usable time"] += 1
        elif event.get("pid") in _OF_THE_PROFILER:
            self.dropped[LEFT_OUT["trace"]] += 1
        else:
            category = _category(event)
            names = (text(event.get("name")), domain_of(category), category or None, "mark")
            self.ranges.add((*self.lane(event), time_ns, time_ns, None), names)

    def _half(self, event: Mapping[str, Any], phase: str) -> None:
        time_ns = nanoseconds(event.get("ts"))
        if time_ns is None:
            self.dropped["without a usable time"] += 1
            return
        lane, category = self.lane(event), _category(event)
        key: tuple[object, ...] = lane
        if phase not in "BE":
            ident = event.get("id", event.get("id2"))
            key = (lane[0], category, str(ident), text(event.get("name")))
        names = (lane, text(event.get("name")), category) if phase in "BbS" else None
        half = (time_ns, self.read, names if names else lane[1])
        self.halves.setdefault(key, []).append(half)

    def _metadata(self, event: Mapping[str, Any]) -> None:
        kind, name = event.get("name"), arguments(event).get("name")
        if isinstance(kind, str) and kind in self.names and isinstance(name, str):
            self.names[kind][self.lane(event)] = text(name).strip()
        else:
            self.dropped["of metadata that say nothing here"] += 1

    def lane(self, event: Mapping[str, Any]) -> _Lane:
        """Return the event's process and thread as numbers; texts get negative ones."""
        return self._number(event.get("pid")), self._number(event.get("tid"))

    def _number(self, value: object) -> int:
        number = value if type(value) is int and value.bit_length() < 63 else integer(value)
        if number is not None:
            return number
        if not isinstance(value, str) or not value:
            return UNKNOWN
        return self._numbers.setdefault(text(value), -2 - len(self._numbers))


def _category(event: Mapping[str, Any]) -> str:
    category = event.get("cat")
    return text(category).lower() if isinstance(category, str) else ""


def domain_of(category: str) -> str:
    """Return the domain of ranges of a category: those of one domain nest on a thread."""
    return "torch" if category in _TORCH else _DOMAINS.get(category, "")
