"""What a store's directory can do without, and its removal. Used by the tools.

Nothing is removed that was written within a grace time, and nothing that changed since it was
looked at: each file is read again under its directory's lock, as every writer does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError, UsageError
from launchkit.store import document, files
from launchkit.store.directory import DirectoryStore
from launchkit.store.document import ConfigDocument
from launchkit.store.staleness import Staleness, StalePolicy

DAY_S = 86_400.0
_LOCK_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What may go. Raises UsageError for negative figures.

    Whatever the rest says, what was set aside and what killed writers left goes, and nothing that
    was written less than ``grace_s`` seconds ago.
    """

    older_than_s: float | None = None
    """Records that were tuned longer ago than this."""
    stale: StalePolicy = "any"
    """Records of toolchains that are behind; see ``staleness``."""
    max_bytes: int | None = None
    """The least valuable records, until the files have no more bytes than this."""
    grace_s: float = 3600.0

    def __post_init__(self) -> None:
        figures = [self.older_than_s or 0.0, self.max_bytes or 0, self.grace_s]
        if not all(each >= 0 for each in figures):
            raise UsageError(f"{min(figures)} is less than nothing. Give ages and sizes from 0 on.")


@dataclass(frozen=True, slots=True)
class Waste:
    """One record, or one file without records, that may go."""

    path: Path
    record: TunedRecord | None
    """None: the whole file goes."""
    reason: str
    age_s: float
    size_bytes: int
    """Of the file, or the record's share of its file."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed, and what stayed, with the reason."""

    removed: tuple[Waste, ...]
    stayed: tuple[tuple[Waste, str], ...]

    @property
    def freed_bytes(self) -> int:
        """Bytes of what was removed."""
        return sum(each.size_bytes for each in self.removed)


@dataclass(frozen=True, slots=True)
class Survey:
    """What is in a directory, and what of it may go."""

    waste: tuple[Waste, ...]
    records: int
    total_bytes: int
    """Of documents, and of what was set aside or left behind."""


def survey(store: DirectoryStore, rules: Rules, now_s: float) -> Survey:
    """Return what may go by the rules; nothing is changed. ``now_s``: seconds since 1970, UTC.

    Documents that cannot be read are left alone: a later launchkit may have written them.
    """
    litter = list(_litter(store.path, now_s))
    found = [each for path in store.paths() for each in _records(path, now_s)]
    stale = Staleness(rules.stale)
    stale.learn(each.record for each in found if each.record)
    judged = [_judged(each, rules, stale) for each in found]
    total = sum(each.size_bytes for each in (*litter, *found))
    waste = [each for each in (*litter, *judged) if each.reason and _may_go(each, rules, now_s)]
    if rules.max_bytes is not None:
        excess = total - sum(each.size_bytes for each in waste) - rules.max_bytes
        waste += _least_valuable(found, waste, excess, rules, now_s)
    return Survey(tuple(waste), len(found), total)


def remove(
    waste: Iterable[Waste],
    rules: Rules,
    now_s: float,
    done: Callable[[int], None] = lambda count: None,
) -> Removal:
    """Remove what a survey found, a file at a time and locked; ``done`` hears of every few.

    What has changed or was written meanwhile stays, and what the system does not let go.
    """
    removed: list[Waste] = []
    stayed: list[tuple[Waste, str]] = []
    for path, group in groupby(sorted(waste, key=attrgetter("path")), key=attrgetter("path")):
        mine = list(group)
        try:
            with files.locked(path.parent, _LOCK_PATIENCE_S):
                gone, kept = _remove_from(path, mine, rules, now_s)
        except (BadDocumentError, OSError) as error:
            gone, kept = [], [(each, str(error)) for each in mine]
        removed += gone
        stayed += kept
        done(len(mine))
    return Removal(tuple(removed), tuple(stayed))


def _litter(root: Path, now_s: float) -> Iterator[Waste]:
    for pattern, reason in (("*.bad-*", "set aside"), (".*.tmp-*", "left by a killed writer")):
        for path in sorted(root.glob(f"v1/*/*/{pattern}")):
            with suppress(OSError):
                status = path.lstat()
                yield Waste(path, None, reason, now_s - status.st_mtime, status.st_size)


def _records(path: Path, now_s: float) -> Iterator[Waste]:
    """Yield every record of a document, with no reason yet to remove it."""
    try:
        status = os.stat(path)
        loaded = document.read(path)
    except (BadDocumentError, OSError):
        return
    share = status.st_size // max(1, len(loaded.records))
    for record in loaded.records:
        yield Waste(path, record, "", now_s - _tuned_s(record, status.st_mtime), share)


def _tuned_s(record: TunedRecord, written_s: float) -> float:
    if record.tuned_at is None:
        return written_s
    moment = datetime.strptime(record.tuned_at, "%Y-%m-%dT%H:%M:%SZ")
    # A clock that was ahead must not keep a record for ever: it was tuned before it was written.
    return min(moment.replace(tzinfo=timezone.utc).timestamp(), written_s)


def _judged(found: Waste, rules: Rules, stale: Staleness) -> Waste:
    """Return it with the reason to remove it, if there is one."""
    reason = ""
    newer = stale.newer(found.record) if found.record else None
    if newer is not None:
        reason = f"older toolchain than {newer}"
    elif rules.older_than_s is not None and found.age_s > rules.older_than_s:
        reason = f"{found.age_s / DAY_S:.0f} days old"
    return Waste(found.path, found.record, reason, found.age_s, found.size_bytes)


def _may_go(each: Waste, rules: Rules, now_s: float) -> bool:
    return each.age_s >= rules.grace_s and not _in_grace(each.path, rules, now_s)


def _in_grace(path: Path, rules: Rules, now_s: float) -> bool:
    """Tell whether a file was written just now; one that is gone is nobody's to remove."""
    try:
        return now_s - path.lstat().st_mtime < rules.grace_s
    except OSError:
        return True


def _least_valuable(
    found: list[Waste], waste: list[Waste], excess: int, rules: Rules, now_s: float
) -> Iterator[Waste]:
    """Yield records until ``excess`` bytes are gone: superseded toolchains first, then the oldest."""
    going = {(each.path, each.record) for each in waste}
    behind = Staleness("exact")
    behind.learn(each.record for each in found if each.record)

    def value(each: Waste) -> tuple[bool, float]:
        return (each.record is None or behind.newer(each.record) is None, -each.age_s)

    for each in sorted(found, key=value):
        if excess <= 0:
            return
        if (each.path, each.record) in going or not _may_go(each, rules, now_s):
            continue
        excess -= each.size_bytes
        yield Waste(each.path, each.record, "to save space", each.age_s, each.size_bytes)


def _remove_from(
    path: Path, waste: list[Waste], rules: Rules, now_s: float
) -> tuple[list[Waste], list[tuple[Waste, str]]]:
    """Remove from one file, whose directory is locked; return what went and what stayed."""
    if _in_grace(path, rules, now_s):
        return [], [(each, "written meanwhile") for each in waste]
    if waste[0].record is None:
        path.unlink()
        return waste, []
    loaded = document.read(path)
    there = set(loaded.records)
    gone = [each for each in waste if each.record in there]
    dropped = {each.record for each in gone}
    _write(path, loaded, tuple(each for each in loaded.records if each not in dropped))
    return gone, [(each, "changed meanwhile") for each in waste if each.record not in there]


def _write(path: Path, loaded: ConfigDocument, left: tuple[TunedRecord, ...]) -> None:
    if not left:
        path.unlink()
    elif left != loaded.records:
        files.replace_file(path, document.dump(ConfigDocument(loaded.kernel, loaded.device, left)))
