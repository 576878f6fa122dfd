"""Sample captures: the project's own, unpacked once a process, and others' where there are any."""

from __future__ import annotations

import atexit
import csv
import gzip
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[1] / "data" / "nsys"
H200 = "h200_2025.3_graph"
# At import: a test sees no variables of launchkit but its own.
_SAMPLES = os.environ.get("LAUNCHKIT_SAMPLES")


@lru_cache
def _folder():
    made = tempfile.mkdtemp(prefix="launchkit-captures-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


@lru_cache
def nsys_sample(name=H200):
    """The path of an own Nsight Systems export, unpacked."""
    path = _folder() / f"{name}.sqlite"
    path.write_bytes(gzip.decompress((DATA / f"{name}.sqlite.gz").read_bytes()))
    return path


def public_sample(*parts):
    """The path of a capture that others made, in the folder that LAUNCHKIT_SAMPLES names."""
    path = Path(_SAMPLES or "", *parts)
    if not _SAMPLES or not path.is_file():
        pytest.skip(f"LAUNCHKIT_SAMPLES names no folder with {'/'.join(parts)}")
    return path


def reported(name):
    """The rows of a report that NVIDIA's own tool made of the own export, as texts."""
    with (DATA / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
