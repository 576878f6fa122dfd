"""One round of agreement: ranks report, unite, compare. Between reports.py and agreement.py.

Every rank computes the same result from the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from launchkit import jsonio
from launchkit.configs import TunedRecord, config_digest
from launchkit.dispatch import op_plans
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.dispatch.launch_path import Launcher
from launchkit.dispatch.ranks import reports
from launchkit.dispatch.ranks.board import Board
from launchkit.dispatch.ranks.store import RankStore
from launchkit.errors import AgreementError, UnfingerprintableError
from launchkit.store.agreeing import Agreed, ConfigList, agree

UnlikeConfigs: TypeAlias = Literal["common", "error"]
_PARTING_S = 5.0


@dataclass(frozen=True)
class Round:
    """How a round goes: among whom, over which store, about which kernels."""

    board: Board | None
    store: RankStore
    launchers: Sequence[Launcher]
    all_kernels: bool
    timeout_s: float
    unlike_configs: UnlikeConfigs
    last: bool
    """Whether keys whose tuning is not complete are settled too."""

    @property
    def rank(self) -> int:
        """This rank; 0 in a world of one."""
        return 0 if self.board is None else self.board.rank

    def gather(self, name: str, data: bytes) -> Mapping[int, bytes]:
        """Return every rank's message."""
        if self.board is None:
            return {0: data}
        return self.board.gather(name, data, self.timeout_s)


@dataclass(frozen=True)
class United:
    """What a round came to."""

    digest: str
    keys: int
    changed: int
    """Keys for which this process had chosen another config."""


@dataclass(frozen=True)
class _Heard:
    """Every rank's report, and who knows what."""

    said: Mapping[int, reports.Report]
    known: Mapping[str, Mapping[int, reports.Known]]
    """By identity digest, by rank, ranks in order."""

    def is_open(self, identity: str) -> bool:
        """Whether the ranks do not all have one and the same record."""
        holders = self.known[identity]
        return len(holders) < len(self.said) or len(_first_of_each(holders)) > 1

    def lists(self, identity: str) -> dict[int, ConfigList | None]:
        """Return the config lists of the ranks that use what a record is of."""
        known = next(iter(self.known[identity].values()))
        return {
            rank: reports.config_list(report, known)
            for rank, report in self.said.items()
            if reports.uses(report, known)
        }


def unite(this: Round) -> United:
    """Run a round; AgreementError if it comes to nothing, on every rank alike."""
    choosers = [launcher.chooser for launcher in this.launchers if launcher.chooser is not None]
    mine = reports.collect(this.store.inner, choosers, this.all_kernels)
    heard = _hear(this, mine.report)
    if this.unlike_configs == "error":
        _refuse_unlike(heard)
    records = _exchange(this, heard, mine.records)
    agreed = {
        identity: agree(held, lists)
        for identity, held in records.items()
        if (lists := heard.lists(identity))
    }
    changed = _apply(this, heard, mine.records, agreed)
    digest = _digest(agreed)
    answers = this.gather("done", digest.encode())
    if set(answers.values()) != {digest.encode()}:
        raise AgreementError("they came to unlike results", advice=reports.SAME_VERSION)
    if this.board is not None:
        this.board.part(_PARTING_S)
    conflicts = [_text(records[i]) for i, each in sorted(agreed.items()) if each.record is None]
    if conflicts:
        raise AgreementError("no measured config is in every rank's list", conflicts=conflicts)
    return United(digest, len(agreed), changed)


def _hear(this: Round, mine: reports.Report) -> _Heard:
    messages = this.gather("reports", reports.dump_report(mine))
    heard = {rank: reports.load_report(data, rank) for rank, data in messages.items()}
    known: dict[str, dict[int, reports.Known]] = {}
    for rank, report in sorted(heard.items()):
        for identity, each in report["known"].items():
            known.setdefault(identity, {})[rank] = each
    return _Heard(heard, known)


def _refuse_unlike(heard: _Heard) -> None:
    lists: dict[str, dict[tuple[str, ...], list[int]]] = {}
    for rank, report in sorted(heard.said.items()):
        for kernel, listed in report["lists"].items():
            lists.setdefault(kernel, {}).setdefault(tuple(listed["configs"]), []).append(rank)
    conflicts = [
        f"{kernel.rpartition(':')[0]}: {len(each)} config lists, on ranks "
        + " / ".join(str(ranks).strip("[]") for ranks in each.values())
        for kernel, each in sorted(lists.items())
        if len(each) > 1
    ]
    if conflicts:
        raise AgreementError("the config lists are not the same on all ranks", conflicts=conflicts)


def _first_of_each(holders: Mapping[int, reports.Known]) -> dict[str, int]:
    """Return, for each distinct record, the first rank that has it."""
    first: dict[str, int] = {}
    for rank, known in holders.items():
        first.setdefault(known["digest"], rank)
    return first


def _exchange(
    this: Round, heard: _Heard, mine: reports.Records
) -> dict[str, dict[int, TunedRecord]]:
    """Return the records of every key by rank; each distinct one is sent once."""
    opened = [identity for identity in sorted(heard.known) if heard.is_open(identity)]
    sent = [
        mine[identity]
        for identity in opened
        if this.rank in _first_of_each(heard.known[identity]).values()
    ]
    messages = this.gather("records", reports.dump_records(sent))
    received = {rank: reports.load_records(data, rank) for rank, data in messages.items()}
    found = {}
    for identity, holders in heard.known.items():
        if identity in opened:
            first = _first_of_each(holders)
            found[identity] = {
                rank: received[first[known["digest"]]][identity] for rank, known in holders.items()
            }
        else:
            found[identity] = dict.fromkeys(holders, mine[identity])
    return found


def _apply(
    this: Round,
    heard: _Heard,
    mine: reports.Records,
    agreed: Mapping[str, Agreed],
) -> int:
    """Keep and use what this rank needs of it; return how many choices of this process change."""
    changed = 0
    for identity, each in agreed.items():
        record = each.record
        if record is None or this.rank not in heard.lists(identity):
            continue
        if mine.get(identity) != record and not record.pinned and record.winner.timed:
            this.store.inner.put(record)
        if each.complete or this.last:
            this.store.settle(replace(record, pinned=True))
            changed += _rechoose(this.launchers, record)
    if changed:
        op_plans.forget_all()
    return changed


def _rechoose(launchers: Sequence[Launcher], record: TunedRecord) -> bool:
    changed = False
    for launcher in launchers:
        if launcher.chooser is not None and _chose_another(launcher.chooser, record):
            launcher.chooser.forget(record.device, record.key)
            launcher.forget_plans()
            changed = True
    return changed


def _chose_another(chooser: ConfigChooser, record: TunedRecord) -> bool:
    try:
        if chooser.identities()[0] != record.kernel:
            return False
        chosen = chooser.chosen().get((record.device, record.key))
    except UnfingerprintableError:
        return False
    return chosen is not None and chosen != record.chosen


def _digest(agreed: Mapping[str, Agreed]) -> str:
    chosen = {
        identity: None if each.record is None else config_digest(each.record.chosen)
        for identity, each in agreed.items()
    }
    return jsonio.digest(chosen)


def _text(held: Mapping[int, TunedRecord]) -> str:
    record = next(iter(held.values()))
    return f"{record.kernel.name} {record.key.text}, tuned on ranks {sorted(held)}"
