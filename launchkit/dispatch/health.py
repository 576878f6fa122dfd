"""What stands between this process and fast launches, for the doctor. Above launcher.py."""

from __future__ import annotations

from dataclasses import dataclass

from launchkit.dispatch import launcher as _launcher
from launchkit.dispatch.native import extension

__all__ = ["CoreHealth", "core_health"]


@dataclass(frozen=True)
class CoreHealth:
    """Whether launches take the C core, and what it can do here."""

    obstacle: str | None
    """Why launches take the Python core; None: they take the C core."""
    tensor_reader: str | None
    """How tensors are read; None without a C core."""
    reads_directly: bool
    """Whether that is the fastest way."""
    makes_op_plans: bool
    """Whether planned ops can be replayed."""


def core_health() -> CoreHealth:
    """Return the state of the launch core in this process."""
    obstacle = extension.obstacle()
    if obstacle is None and _launcher.recording_extension() is None:
        obstacle = "it was switched off when launchkit was imported"
    reader = extension.tensor_reader() if obstacle is None else None
    return CoreHealth(
        obstacle,
        reader,
        reader == extension.DIRECTLY,
        obstacle is None and extension.makes_op_plans(),
    )
