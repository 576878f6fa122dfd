"""The config store while ranks agree: a missing key has one owner among them. Above board.py.

In front of the store that was in use. A launch's flight claims its key on the board: the claim's
holder tunes, the others wait for the record that it leaves there. A holder that fails or
dies frees the claim for the next rank. Whatever goes wrong with the board, the launch tunes alone.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from launchkit.configs import Identity, TunedRecord
from launchkit.dispatch.ranks.board import Board
from launchkit.errors import AgreementError, BadDocumentError
from launchkit.keys import KernelId
from launchkit.store import ConfigStore, LayeredStore, MemoryStore, document, flights
from launchkit.store.document import ConfigDocument

_log = logging.getLogger("launchkit")
_FREE = "free:"


class AgreedStore(MemoryStore):
    """What ranks have agreed on, for the rest of this process: it is asked before any other."""

    @property
    def read_only(self) -> bool:
        """Tuning does not end here."""
        return True

    @property
    def has_records(self) -> bool:
        """Whether they have agreed on anything."""
        return next(self.records(), None) is not None

    def describe(self) -> str:
        """Say what this store is."""
        return "what the ranks agreed on"


class RankStore(LayeredStore):
    """The agreed records, then ``inner``; flights reach across ranks while a board is open.

    ``counters``: keys ``owned`` and tuned here, ``received`` from others, ``taken-over`` from
    owners that died, and claims that ended ``late`` or ``lost``.
    """

    def __init__(self, inner: ConfigStore, covers: Callable[[KernelId], bool]) -> None:
        self.inner = inner
        self.agreed = AgreedStore()
        self.counters: Counter[str] = Counter()
        self._covers = covers
        self._board: Board | None = None
        self._timeout_s = 0.0
        self._lock = threading.Lock()
        self._warned = False
        super().__init__([self.agreed, inner])

    def settle(self, record: TunedRecord) -> None:
        """Let this record answer from now on, whatever the other layers say."""
        before = self.agreed.get(*record.identity)
        if isinstance(before, TunedRecord):
            self.agreed.discard(before)
        self.agreed.put(record)

    def open_claims(self, board: Board, timeout_s: float) -> None:
        """Let flights claim their keys on ``board`` from now on, waiting at most ``timeout_s``."""
        self._board, self._timeout_s = board, timeout_s

    def close_claims(self) -> None:
        """Let flights be this machine's again."""
        self._board = None

    @contextlib.contextmanager
    def enter_flight(self, identity: Identity, timeout_s: float) -> Iterator[flights.Outcome]:
        """Hold the claim for a key, or wait until another rank's record has come."""
        board = self._board
        if board is None or not self._covers(identity[0]):
            yield "alone"
            return
        name = flights.identity_digest(identity)
        try:
            claim = _Claim(board, name)
            outcome = self._enter(claim, min(timeout_s, self._timeout_s))
        except AgreementError as error:
            self._lost(error)
            yield "unguarded"
            return
        try:
            yield outcome
        except BaseException:
            self._leave(claim, None)
            raise
        self._leave(claim, self._attempt(lambda: self.inner.get(*identity)))

    def _enter(self, claim: _Claim, timeout_s: float) -> flights.Outcome:
        if claim.take():
            self._count("taken-over" if claim.from_dead else "owned")
            return "alone" if claim.first else "waited"
        if timeout_s <= 0:
            return "nested"
        if not claim.board.wait(claim.settled, timeout_s, lambda: None):
            self._count("late")
            return "late"
        if claim.held:
            self._count("taken-over" if claim.from_dead else "owned")
        elif claim.record is not None:
            record = claim.record
            self._attempt(lambda: self.inner.put(record))
            self._count("received")
        return "waited"

    def _attempt(self, act: Callable[[], object]) -> object:
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - a store may fail in any way, a launch may not
            _log.debug("%s: %r", self.inner.describe(), error)
            return None

    def _leave(self, claim: _Claim, found: object) -> None:
        try:
            claim.leave(found if isinstance(found, TunedRecord) else None)
        except AgreementError as error:
            self._lost(error)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counters[what] += 1

    def _lost(self, error: AgreementError) -> None:
        self._count("lost")
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            _log.warning("this rank tunes alone from here on: %s", error)


class _Claim:
    """One rank's claim for one key: free, held by somebody, or settled by a record."""

    def __init__(self, board: Board, name: str) -> None:
        self.board = board
        self.held = self.first = self.from_dead = False
        self.record: TunedRecord | None = None
        self._name = name
        self._mine = f"{board.rank}:{secrets.token_hex(8)}"
        self._known = ""

    def take(self) -> bool:
        """Claim the key if nobody has, and no record has come."""
        if self._received():
            return False
        self._known = self.board.claim(self._name, "", self._mine)
        self.held = self.first = self._known == self._mine
        return self.held or self._take_over()

    def settled(self) -> bool:
        """Whether the record has come, or the claim has fallen to this rank."""
        if self._received():
            return True
        # Expecting what it cannot be: only asks.
        self._known = self.board.claim(self._name, "-", "-")
        return self._take_over()

    def leave(self, record: TunedRecord | None) -> None:
        """Give the record to all, or the claim to the next; nothing if it was not held."""
        if record is not None and (self.held or self.record is None):
            self.board.post(f"won/{self._name}", _dumped(record))
        elif self.held:
            self.board.claim(self._name, self._mine, f"{_FREE}{self._mine}")

    def _take_over(self) -> bool:
        known = self._known
        if not known.startswith(_FREE):
            self.from_dead = self.board.is_dead(int(known.split(":")[0]))
            if not self.from_dead:
                return False
        self.held = self.board.claim(self._name, known, self._mine) == self._mine
        return self.held

    def _received(self) -> bool:
        data = self.board.read(f"won/{self._name}")
        self.record = None if data is None else _loaded(data)
        return data is not None


def _dumped(record: TunedRecord) -> bytes:
    """Return a record as a message."""
    return document.dump(ConfigDocument(record.kernel, record.device, (record,)))


def _loaded(data: bytes) -> TunedRecord | None:
    """Return the record in a message; None, with a warning, for one that is none."""
    try:
        (record,) = document.parse(data, source="a message of another rank").records
    except (BadDocumentError, ValueError) as error:
        _log.warning("left out: %s", error)
        return None
    return record
