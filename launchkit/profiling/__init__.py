"""Where host time goes: NVTX ranges and the launch recorder.

``annotate`` and the types of a profile need neither torch nor triton; ``profile_launches``
reaches the dispatcher and is imported on first use, so that a host without a GPU stack can
annotate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launchkit.profiling.profile.launch_profile import LaunchProfile
from launchkit.profiling.profile.rows import (
    GroupRow,
    LaunchRow,
    OpRow,
    PhaseFigures,
    ProcessRow,
    RangeRow,
    ThreadRow,
)
from launchkit.profiling.ranges import annotate
from launchkit.profiling.recording.calibration import Calibration, Cost

if TYPE_CHECKING:
    from launchkit.profiling.recorder import profile_launches

__all__ = [
    "Calibration",
    "Cost",
    "GroupRow",
    "LaunchProfile",
    "LaunchRow",
    "OpRow",
    "PhaseFigures",
    "ProcessRow",
    "RangeRow",
    "ThreadRow",
    "annotate",
    "profile_launches",
]


def _public(name: str) -> Any:
    if name == "profile_launches":
        from launchkit.profiling.recorder import profile_launches

        return profile_launches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not TYPE_CHECKING:
    # A type checker that saw it would take every misspelt name for a public one.
    __getattr__ = _public
