"""Captures of other programs that the project may read and not carry: LAUNCHKIT_SAMPLES names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def sample(name):
    """The path of a sample, by its name below the folder; the test is skipped where it is not."""
    folder = os.environ.get("LAUNCHKIT_SAMPLES")
    if not folder:
        pytest.skip("LAUNCHKIT_SAMPLES names no folder of sample captures")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"there is no sample {name} in LAUNCHKIT_SAMPLES")
    return path
