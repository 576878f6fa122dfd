"""What differs between two sets of tuned records: winners gained, lost and changed. Pure; for tools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from launchkit.configs import TunedRecord
from launchkit.store.merge import incomparable


@dataclass(frozen=True, slots=True)
class ChangedWinner:
    """One identity whose chosen config is another one afterwards."""

    before: TunedRecord
    after: TunedRecord
    ratio: float | None
    """The new winner's median ÷ the old one's: below 1 it is faster; None: they do not compare."""
    together: bool
    """Whether both times are of the later measurement, not of one each."""
    incomparable: str | None
    """Why there is no ratio."""


@dataclass(frozen=True, slots=True)
class StoreDiff:
    """What the second of two sets of records has otherwise than the first."""

    added: tuple[TunedRecord, ...]
    removed: tuple[TunedRecord, ...]
    changed: tuple[ChangedWinner, ...]
    same: int
    """Identities with the same winner in both, whatever its time."""

    @property
    def differs(self) -> bool:
        """Whether there is any difference."""
        return bool(self.added or self.removed or self.changed)


def compare(before: Iterable[TunedRecord], after: Iterable[TunedRecord]) -> StoreDiff:
    """Return what is added, removed and won by another config in ``after``."""
    old = {record.identity: record for record in before}
    new = {record.identity: record for record in after}
    both = [(record, new[identity]) for identity, record in old.items() if identity in new]
    changed = [changed_winner(*pair) for pair in both if pair[0].chosen != pair[1].chosen]
    return StoreDiff(
        added=tuple(record for identity, record in new.items() if identity not in old),
        removed=tuple(record for identity, record in old.items() if identity not in new),
        changed=tuple(changed),
        same=len(both) - len(changed),
    )


def changed_winner(before: TunedRecord, after: TunedRecord) -> ChangedWinner:
    """Return how another winner compares: in the later measurement if it has both, else across."""
    new_us = after.winner.median_us
    old = next((tuned for tuned in after.configs if tuned.config == before.chosen), None)
    if old is not None and old.median_us and new_us and old.method == after.winner.method:
        return ChangedWinner(before, after, new_us / old.median_us, True, None)
    why, old_us = incomparable(before, after), before.winner.median_us
    if why is not None or old_us is None or new_us is None:
        return ChangedWinner(before, after, None, False, why)
    return ChangedWinner(before, after, new_us / old_us, False, None)
