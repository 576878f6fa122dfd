"""Of which process and when a recording was made. A leaf."""

from __future__ import annotations

import os
from dataclasses import dataclass

from launchkit import clock, settings

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")


@dataclass(frozen=True)
class ProcessFacts:
    """A process and when its recording began.

    ``start_ns`` is on the clock of the recorded times, ``utc_ns`` the same moment in UTC; 0:
    unknown. ``end_ns`` is when it was ended or last read. ``rank``: as torchrun, MPI or Slurm say.
    """

    pid: int = 0
    rank: int | None = None
    start_ns: int = 0
    end_ns: int = 0
    utc_ns: int = 0


def of_this_process() -> ProcessFacts:
    """Return the facts of a recording that begins now in this process."""
    found = settings.foreign_variables(_RANKS)
    text = next((found[name] for name in _RANKS if name in found), "")
    rank = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    now_ns = clock.now_ns()
    return ProcessFacts(os.getpid(), rank, now_ns, now_ns, clock.utc_ns())
