"""What ``launchkit doctor`` finds, one thing each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from launchkit.errors import LaunchkitError

OK, NOTE, FINDING = "ok", "note", "finding"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: str
    """``ok``; ``note``: good to know; ``finding``: it costs something, and can be mended."""
    says: str
    advice: str = ""
    """What to do; every finding has it."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def guarded(name: str, look: Callable[[], Iterator[Check]]) -> list[Check]:
    """Return what ``look`` finds; what it raises is a finding as well, and ends no other check."""
    found: list[Check] = []
    try:
        found.extend(look())
    except LaunchkitError as error:
        found.append(Check(name, FINDING, "it could not be looked at.", str(error)))
    except Exception as error:  # noqa: BLE001 - what is broken here may raise anything
        says = f"it could not be looked at: {type(error).__name__}: {error}."
        found.append(Check(name, FINDING, says, "Mend what raises that, and ask again."))
    return found
