"""Two sets of tuned records into one, by a declared policy, with a report. Between base and tools.

Records of one identity meet. Where they chose the same config there is nothing to decide but whose
times stay; where they did not, that is a conflict, which the policy decides or leaves open. Results
of unlike measuring methods (single launches, a CUDA graph, a cold cache) are never compared: a
graph's time says nothing about a single launch's. They stand beside each other in the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, TypeAlias, get_args

from launchkit.configs import Identity, TunedRecord, merge_records
from launchkit.errors import UsageError
from launchkit.store.base import ConfigStore

Policy: TypeAlias = Literal["faster", "newer", "ours", "theirs", "error"]
"""Whose choice stays: that with the lesser median, that made later, the target's, the source's, or
nobody's: every conflict is then an error, and nothing is written."""
POLICIES: tuple[str, ...] = get_args(Policy)

Side: TypeAlias = Literal["ours", "theirs"]
Outcome: TypeAlias = Literal["added", "same", "kept", "extended", "replaced"]
"""What became of a record of theirs: new here; equal to ours; given up for ours; given up for ours
but for results of configs that ours has not; put in our record's place."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two records of one identity that chose unlike configs, and which of them stays."""

    ours: TunedRecord
    theirs: TunedRecord
    stays: Side
    undecided: str | None
    """Why the policy could not decide, so that ours stays; None: it did."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What one record of theirs leads to."""

    record: TunedRecord
    """What is to be stored; ours, where nothing changes."""
    outcome: Outcome
    conflict: Conflict | None = None


def decide(ours: TunedRecord | None, theirs: TunedRecord, policy: Policy) -> Decision:
    """Return what becomes of a record of theirs where ours (None: nothing) is stored.

    Raises UsageError for records of unlike identities, and for another policy.
    """
    if policy not in POLICIES:
        raise UsageError(f"{policy!r} is no policy. Choose one of {', '.join(POLICIES)}.")
    if ours is None:
        return Decision(theirs, "added")
    if ours.identity != theirs.identity:
        raise UsageError(
            f"records of {ours.kernel.name} for unlike keys. Merge those of one key.",
        )
    if ours == theirs:
        return Decision(ours, "same")
    stays, undecided = _side(ours, theirs, policy)
    unlike = ours.chosen != theirs.chosen
    conflict = Conflict(ours, theirs, stays, undecided) if unlike else None
    merged = _merged(ours, theirs, stays)
    if stays == "theirs":
        return Decision(merged, "replaced", conflict)
    return Decision(merged, "kept" if merged == ours else "extended", conflict)


def incomparable(one: TunedRecord, other: TunedRecord) -> str | None:
    """Return why the times of two records' winners do not compare; None: they do."""
    for record in (one, other):
        if record.winner.median_us is None:
            return f"{record.winner.text} has no time"
    if one.winner.method != other.winner.method:
        return f"measured as {one.winner.method!r} and as {other.winner.method!r}, never compared"
    return None


def _side(ours: TunedRecord, theirs: TunedRecord, policy: Policy) -> tuple[Side, str | None]:
    """Return whose choice stays, and why the policy could not say."""
    if policy == "faster":
        return _faster(ours, theirs)
    if policy == "newer":
        return _newer(ours, theirs)
    if policy == "error":
        return "ours", "the policy is to decide nothing"
    if policy == "theirs" and ours.winner.timed and not theirs.winner.timed:
        return "ours", f"{theirs.winner.text} has no time, and takes the place of none that has"
    return policy, None


def _faster(ours: TunedRecord, theirs: TunedRecord) -> tuple[Side, str | None]:
    if ours.winner.timed != theirs.winner.timed:
        return ("ours" if ours.winner.timed else "theirs"), None
    why = incomparable(ours, theirs)
    our_us, their_us = ours.winner.median_us, theirs.winner.median_us
    if why is not None or our_us is None or their_us is None:
        return "ours", why
    return ("theirs" if their_us < our_us else "ours"), None


def _newer(ours: TunedRecord, theirs: TunedRecord) -> tuple[Side, str | None]:
    if ours.tuned_at is None or theirs.tuned_at is None:
        whose = "ours" if ours.tuned_at is None else "theirs"
        return "ours", f"{whose} does not say when it was tuned"
    newer = theirs.tuned_at > ours.tuned_at and (theirs.winner.timed or not ours.winner.timed)
    return ("theirs" if newer else "ours"), None


def _merged(ours: TunedRecord, theirs: TunedRecord, stays: Side) -> TunedRecord:
    """Return what a store has of both, when it is given what the winning side makes of them."""
    if stays == "theirs":
        return merge_records(ours, theirs)
    if theirs.winner.timed and not ours.winner.timed:
        return ours  # any store would let a choice with a time decide
    return merge_records(ours, merge_records(theirs, ours))


@dataclass
class Merging:
    """What merging records into a store does or would do; ``plan`` makes one, ``apply`` does it."""

    policy: Policy
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    conflicts: list[Conflict] = field(default_factory=list)
    unwritten: list[TunedRecord] = field(default_factory=list)
    """Records that the store could not keep for later processes."""
    staged: dict[Identity, TunedRecord] = field(default_factory=dict)
    """What is to be stored, by identity."""

    @property
    def undecided(self) -> list[Conflict]:
        """The conflicts that the policy could not decide; ours stays."""
        return [conflict for conflict in self.conflicts if conflict.undecided is not None]

    @property
    def refused(self) -> bool:
        """Whether the policy forbids to write anything."""
        return self.policy == "error" and bool(self.conflicts)

    def add(self, decision: Decision) -> None:
        """Count a decision, and stage what it changes."""
        self.outcomes[decision.outcome] += 1
        if decision.conflict is not None:
            self.conflicts.append(decision.conflict)
        if decision.outcome not in ("same", "kept"):
            self.staged[decision.record.identity] = decision.record


def plan(store: ConfigStore, records: Iterable[TunedRecord], policy: Policy) -> Merging:
    """Return what merging ``records`` into ``store`` would do; nothing is written or mended.

    Of several records of one identity each meets what the ones before it left.
    """
    merging, stored = Merging(policy), _Stored(store)
    for record in records:
        theirs = replace(record, pinned=False)
        ours = merging.staged.get(theirs.identity) or stored.get(theirs)
        merging.add(decide(ours, theirs, policy))
    return merging


def apply(
    merging: Merging, store: ConfigStore, done: Callable[[int], None] = lambda count: None
) -> None:
    """Write what was planned, unless the policy forbids it; ``done`` hears of every few records.

    The store merges each record into what it has by then: a result that came meanwhile stays.
    """
    if merging.refused:
        return
    for records in _by_file(merging.staged.values()):
        merging.unwritten += store.put_all(records)
        done(len(records))


def _by_file(records: Iterable[TunedRecord]) -> Iterator[list[TunedRecord]]:
    """Group records that a store may keep together, so that they cost it one write."""

    def place(record: TunedRecord) -> tuple[str, str, str]:
        return (record.device.slug, record.kernel.slug, record.key.digest[:2])

    for _, group in groupby(sorted(records, key=place), key=place):
        yield list(group)


class _Stored:
    """What a store has, read a kernel name at a time: ``get`` might set broken files aside."""

    def __init__(self, store: ConfigStore) -> None:
        self._store = store
        self._name: str | None = None
        self._records: dict[Identity, TunedRecord] = {}

    def get(self, wanted: TunedRecord) -> TunedRecord | None:
        if wanted.kernel.name != self._name:
            self._name = wanted.kernel.name
            found = self._store.records_of(self._name)
            self._records = {record.identity: record for record in found}
        return self._records.get(wanted.identity)
