"""Files of profiles: written from a tally, read and merged into one. Above the tally."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchkit.errors import BadDocumentError
from launchkit.profiling import saved_file
from launchkit.profiling.recording.calibration import Calibration, Cost
from launchkit.profiling.recording.tally import RangeNode, Tally
from launchkit.profiling.recording.visits import COLUMNS

if TYPE_CHECKING:
    from launchkit.profiling.profile.schema import ProfileDocument

FORMAT, SCHEMA = "launchkit-profile", 1
"""SCHEMA is raised when a reader of the last one could not use a file."""

_HEAD = re.compile(rb'\s*\{\s*"calibration"\s*:')


def write(path: str | os.PathLike[str], members: dict[str, Any]) -> None:
    """Write a profile, compressed where its name ends in ``.gz``."""
    saved_file.write(path, {"format": FORMAT, "schema": SCHEMA, **members})


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
    from launchkit.profiling.profile.schema import ProfileDocument

    source, found = os.fspath(path), saved_file.read(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadDocumentError(source, "it is not a profile that launchkit has saved")
    return saved_file.checked(source, found, SCHEMA, ProfileDocument)


def mean_calibration(documents: Sequence[ProfileDocument]) -> Calibration:
    """Return what recording cost in the mean of the files."""

    def cost(name: str) -> Cost:
        parts = [
            [document.calibration.get(f"{name}_{part}", 0.0) for document in documents]
            for part in ("ns", "uncertainty_ns")
        ]
        return Cost(*(sum(each) / len(each) for each in parts))

    return Calibration(*(cost(field.name) for field in dataclasses.fields(Calibration)))
