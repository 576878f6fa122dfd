"""Files of samples: stacks of a process with the ranges that were open. A leaf.

Written after a run under py-spy, from what py-spy saw and what each process noted of itself.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from launchkit.profiling import saved_file

if TYPE_CHECKING:
    from launchkit.profiling.sampling.schema import SamplesDocument

CAPTURE, SCHEMA = "py-spy", 1

_HEAD = re.compile(rb'\s*\{\s*"capture"\s*:\s*"py-spy"')


def is_samples(head: bytes) -> bool:
    """Tell whether a file that begins so, unpacked, is a file of samples."""
    # Keys are sorted: "capture" is the first.
    return _HEAD.match(head) is not None


def write(path: str | os.PathLike[str], members: dict[str, Any]) -> None:
    """Write a file of samples, compressed where its name ends in ``.gz``."""
    saved_file.write(path, {"capture": CAPTURE, "schema": SCHEMA, **members})


def read(path: str | os.PathLike[str]) -> SamplesDocument:
    """Return a file of samples, checked. Raises BadDocumentError for one that cannot be used."""
    from launchkit.profiling.sampling.schema import SamplesDocument

    return saved_file.checked(os.fspath(path), saved_file.read(path), SCHEMA, SamplesDocument)
