"""What several ranks know about one key, as one record that all of them use. Pure; no torch.

The rules, so that every rank comes to the same result from the same reports: a pinned choice goes
first, then the choice of the lowest rank that has measured one, then one that has no time; timings
of unlike ranks are never compared. A choice counts only where every rank that uses the kernel has
that config and none saw it fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from launchkit.configs import (
    IMPORTED,
    ConfigIdentity,
    TunedConfig,
    TunedRecord,
    choose,
    config_digest,
)

IN_USE = f"{IMPORTED}in use by a rank"
"""The method of a choice that a process launches with and did not measure."""


@dataclass(frozen=True)
class ConfigList:
    """A kernel on one rank: how it is measured, and ``config_digest`` of each of its configs."""

    method: str
    configs: frozenset[str]


@dataclass(frozen=True)
class Agreed:
    """One key's record after all ranks' knowledge was united.

    ``record`` is None where the ranks have no measured config in common. ``complete`` tells
    whether it has a result for every config that all ranks have; if not, a launch still tunes.
    """

    record: TunedRecord | None
    complete: bool


def agree(records: Mapping[int, TunedRecord], lists: Mapping[int, ConfigList | None]) -> Agreed:
    """Unite what ranks know of one key.

    Args:
        records: by rank, of those that have one; all of one identity. Not empty.
        lists: by rank, of those that use the kernel; None where it is not known yet.
    """
    holders = sorted(
        (records[rank] for rank in sorted(records)),
        key=lambda record: (not record.pinned, not record.winner.timed),
    )
    known = [each for each in lists.values() if each is not None]
    common = frozenset.intersection(*(each.configs for each in known)) if known else None
    failed = {tuned.config for record in holders for tuned in record.configs if not tuned.ok}

    def usable(tuned: TunedConfig) -> bool:
        return tuned.ok and (common is None or config_digest(tuned.config) in common)

    def undoubted(tuned: TunedConfig) -> bool:
        return usable(tuned) and tuned.config not in failed

    decided = _first(holders, undoubted) or _first(holders, usable)
    if decided is None:
        return Agreed(None, complete=False)
    record, winner = decided
    merged = with_choice(replace(record, configs=_united(holders)), winner)
    methods = {each.method for each in known}
    settled = record.pinned or winner.method == IN_USE
    return Agreed(merged, settled or _is_complete(merged, common, methods))


def with_choice(record: TunedRecord, winner: TunedConfig) -> TunedRecord:
    """Return a record that has chosen another of its results."""
    alike = [t for t in record.configs if t.ok and t.config == winner.config]
    method = winner.method if len(alike) > 1 else None
    return replace(record, chosen=winner.config, chosen_method=method)


def _is_complete(record: TunedRecord, common: frozenset[str] | None, methods: set[str]) -> bool:
    if common is None or methods != {record.winner.method}:
        return False
    return common <= {config_digest(config) for config in record.results(record.winner.method)}


def _united(holders: Sequence[TunedRecord]) -> tuple[TunedConfig, ...]:
    """Every config once a method: the first holder's time, or else the first holder's error."""
    results: dict[tuple[ConfigIdentity, str], TunedConfig] = {}
    for record in holders:
        for tuned in record.configs:
            known = results.get((tuned.config, tuned.method))
            if known is None or (tuned.ok and not known.ok):
                results[tuned.config, tuned.method] = tuned
    return tuple(results.values())


def _first(
    holders: Sequence[TunedRecord], fits: Callable[[TunedConfig], bool]
) -> tuple[TunedRecord, TunedConfig] | None:
    """Return the first holder's choice that fits, or else the best that one measured."""
    for record in holders:
        if fits(record.winner):
            return record, record.winner
    for record in holders:
        results = record.results(record.winner.method).values()
        best = choose(tuned for tuned in results if tuned.timed and fits(tuned))
        if best is not None:
            return record, best
    return None
