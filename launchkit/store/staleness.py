"""Which records' toolchains are behind: of another version of Triton than others of their kernel. Pure.

Only what is superseded counts: a kernel that was tuned on a device with a newer version as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from launchkit.configs import TunedRecord
from launchkit.errors import UsageError
from launchkit.keys import DeviceId

StalePolicy: TypeAlias = Literal["exact", "minor", "any"]
"""Which older versions are stale: every one, those of an older minor release, or none."""
STALE_POLICIES: tuple[str, ...] = get_args(StalePolicy)

_NUMBER = re.compile(r"[0-9]{1,9}")


def version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, its local part left out; empty where it has none."""
    return tuple(int(part) for part in _NUMBER.findall(text.partition("+")[0]))


class Staleness:
    """The newest version per kernel name and device, and which records are behind it.

    Raises UsageError for another policy.
    """

    def __init__(self, policy: StalePolicy) -> None:
        if policy not in STALE_POLICIES:
            raise UsageError(f"{policy!r} is no policy. Choose {', '.join(STALE_POLICIES)}.")
        self._parts = {"exact": None, "minor": 2, "any": 0}[policy]
        self._newest: dict[tuple[str, DeviceId], str] = {}

    def learn(self, records: Iterable[TunedRecord]) -> None:
        """Take note of these records' versions."""
        for record in records:
            place, text = (record.kernel.name, record.device), record.toolchain.triton
            known = self._newest.get(place)
            if known is None or version(text) > version(known):
                self._newest[place] = text

    def newer(self, record: TunedRecord) -> str | None:
        """Return the newer version that makes this record stale; None if it is not."""
        mine = version(record.toolchain.triton)
        newest = self._newest.get((record.kernel.name, record.device))
        if newest is None or not mine:
            return None
        behind = mine[: self._parts] < version(newest)[: self._parts]
        return newest if behind else None
