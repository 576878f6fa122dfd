"""Copies of chrome traces, event by event from a file to its copy. Above the chrome reader."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from launchkit import jsonio
from launchkit.errors import UsageError
from launchkit.profiling.timeline.chrome.events import TraceEvents
from launchkit.profiling.timeline.chrome.text import pieces
from launchkit.profiling.timeline.copies.files import AnyPath, replacing
from launchkit.profiling.timeline.counts import RowCounts

Event = dict[str, Any]
Members = dict[str, Any]

TABLE = "events"
_BATCH = 5_000
_DEEPEST = 100


def copy_trace(
    path: AnyPath,
    output: AnyPath,
    counts: RowCounts,
    events: Callable[[Iterator[Any]], Iterable[Event]],
    members: Callable[[Members], Members],
) -> None:
    """Write what ``events`` and ``members`` make of a trace to ``output``, gzip if so it is named.

    The output is replaced as a whole, or not at all. Raises TimelineError for what is no trace.
    """
    source = os.fspath(path)
    trace = TraceEvents(source, pieces(source, lambda _: None))
    with replacing(source, output) as part, _opened(part) as file:
        file.write(b'{"traceEvents":[\n')
        made, separator = iter(events(iter(trace))), b""
        while batch := list(islice(made, _BATCH)):
            file.write(separator + _json(batch)[1:-1])
            separator = b",\n"
        file.write(b"\n]")
        for name, value in members(trace.members).items():
            file.write(b",\n" + _json(name) + b":" + _json(value))
        file.write(b"}\n")
    malformed = {"that are no JSON": trace.malformed}
    counts.add(TABLE, read=trace.malformed, dropped=malformed)


def _json(value: Any) -> bytes:
    try:
        return jsonio.dumps_exact(value)
    except UsageError:
        return jsonio.dumps_exact(_sound(value))


def _sound(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can hold it, where a damaged trace has what it cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, (list, dict)) and depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return [_sound(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {_sound(name): _sound(each, depth + 1) for name, each in value.items()}
    return value


def events_of(path: AnyPath) -> Iterator[Event]:
    """Yield the events of a trace that are objects."""
    source = os.fspath(path)
    for event in TraceEvents(source, pieces(source, lambda _: None)):
        if isinstance(event, dict):
            yield event


@contextmanager
def _opened(part: Path) -> Iterator[IO[bytes]]:
    with part.open("xb") as file:
        if part.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield file
