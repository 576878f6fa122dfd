"""Files of profiles: written from a tally, read and merged into one. A leaf."""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchkit import jsonio
from launchkit.errors import BadDocumentError
from launchkit.profiling.calibration import Calibration, Cost
from launchkit.profiling.tally import RangeNode, Tally
from launchkit.profiling.visits import COLUMNS

if TYPE_CHECKING:
    from pydantic import ValidationError

    from launchkit.profiling.profile_schema import ProfileDocument

FORMAT, SCHEMA = "launchkit-profile", 1
"""SCHEMA is raised when a reader of the last one could not use a file."""

LIMIT_BYTES = 1 << 30
"""Size of a file, unpacked: some 25 million launches."""

_GZIP = b"\x1f\x8b"
_HEAD = re.compile(rb'\s*\{\s*"calibration"\s*:')


def write(path: str | os.PathLike[str], members: dict[str, Any]) -> None:
    """Write a profile, compressed where its name ends in ``.gz``."""
    data = jsonio.dumps_compact({"format": FORMAT, "schema": SCHEMA, **members})
    name = os.fspath(path)
    with open(name, "wb") as file:
        file.write(gzip.compress(data, 6, mtime=0) if name.endswith(".gz") else data)


def tally_members(tally: Tally) -> dict[str, Any]:
    """Return the members of a file that come from a tally."""
    nodes = tally.nodes
    return {
        "host_only_launches": tally.host_only_launches,
        "lost": tally.lost,
        "seen": tally.seen,
        "threads": [
            {
                name: getattr(total, name)
                for name in ("name", "native_id", "launches", "failed", "total_ns")
            }
            for total in tally.by_thread()
        ],
        "ranges": [_range(node) for node in nodes if node.parent is not None],
        "launches": [each for node in nodes for each in _launches(node)],
    }


def _range(node: RangeNode) -> dict[str, Any]:
    visits = node.visits
    return {
        "parent": node.parent.number if node.parent else 0,
        "name": node.path[-1],
        "layer": node.layer,
        "op": node.op,
        "calls": visits.count,
        "ns": visits.ns,
        "within_ns": visits.within_ns,
        **{name: getattr(visits, name).tolist() for name in COLUMNS},
    }


def _launches(node: RangeNode) -> list[dict[str, Any]]:
    return [
        {
            "range": node.number,
            "kernel": subject.kernel,
            "op": subject.op,
            "launches": series.launches,
            "failed": series.failed,
            "ns": float(series.total.ns),
            "phases": {
                name: {
                    "launches": times.launches,
                    "ns": float(times.ns),
                    "each_ns": times.samples.tolist(),
                }
                for name, times in series.phases.items()
            },
            "started_ns": series.started_ns.tolist(),
            "each_ns": series.total.samples.tolist(),
            "thread": series.thread.tolist(),
            "phase_at": series.phase_at.tolist(),
        }
        for subject, series in list(node.series.items())
    ]


def is_profile(head: bytes) -> bool:
    """Tell whether a file that begins so, unpacked, is a profile."""
    # Keys are sorted: "calibration" is the first.
    return _HEAD.match(head) is not None


def read(path: str | os.PathLike[str]) -> ProfileDocument:
    """Return a profile file, checked. Raises BadDocumentError for one that cannot be used."""
    from pydantic import ValidationError

    from launchkit.profiling.profile_schema import ProfileDocument

    source = os.fspath(path)
    try:
        data = jsonio.read_limited(path, LIMIT_BYTES)
    except (OSError, ValueError) as error:
        if isinstance(error, BadDocumentError):
            raise
        raise BadDocumentError(source, f"it cannot be opened ({error})") from None
    found = jsonio.loads(_unpacked(source, data), source=source, limit_bytes=LIMIT_BYTES)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadDocumentError(source, "it is not a profile that launchkit has saved")
    schema = found.get("schema")
    if schema != SCHEMA or type(schema) is not int:
        newer = type(schema) is int and schema > SCHEMA
        raise BadDocumentError(source, f"its schema is {schema!r}, not {SCHEMA}", newer=newer)
    try:
        return ProfileDocument.model_validate(found)
    except ValidationError as error:
        raise BadDocumentError(source, _first_error(error)) from None


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    place = "/".join(map(str, first["loc"]))
    return f"{place or 'it'}: {first['msg']}"


def _unpacked(source: str, data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    inflater = zlib.decompressobj(wbits=31)
    try:
        found = inflater.decompress(data, LIMIT_BYTES)
    except zlib.error as error:
        raise BadDocumentError(source, f"its gzip data are damaged ({error})") from None
    if not inflater.eof:
        reason = f"it is cut off, or unfolds to more than {LIMIT_BYTES} bytes"
        raise BadDocumentError(source, reason)
    return found


def mean_calibration(documents: Sequence[ProfileDocument]) -> Calibration:
    """Return what recording cost in the mean of the files."""

    def cost(name: str) -> Cost:
        parts = [
            [document.calibration.get(f"{name}_{part}", 0.0) for document in documents]
            for part in ("ns", "uncertainty_ns")
        ]
        return Cost(*(sum(each) / len(each) for each in parts))

    return Calibration(*(cost(field.name) for field in dataclasses.fields(Calibration)))
