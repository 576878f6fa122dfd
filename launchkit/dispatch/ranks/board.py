"""Where ranks leave messages: bounded waits over a key-value store. A leaf of ranks.

There is no collective operation in it: each rank writes what it knows and looks for what others
wrote, so that one that is dead, late or elsewhere makes nobody hang. A rank that is at
it keeps its pulse up from a thread; one whose pulse stands still counts as dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from launchkit import clock
from launchkit.errors import AgreementError

CHUNK_BYTES = 2**20
"""Stores limit the size of a value; a longer message is cut."""
SHORT_BYTES = 1024
"""A message up to here is one value, and stays."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.2
_LOOKS_BETWEEN_PULSES = 5


class Board:
    """Messages of one agreement among ``ranks``, global ranks in the group's order; mine is ``rank``.

    ``store`` is anything with ``set``, ``get``, ``add``, ``check``, ``compare_set`` and
    ``delete_key`` of torch.distributed's stores. Every method but ``close`` raises AgreementError
    where the store is lost.
    """

    def __init__(
        self, store: Any, name: str, rank: int, ranks: Sequence[int], *, silent_s: float
    ) -> None:
        self.rank = rank
        self.ranks = tuple(ranks)
        self._store = store
        self._name = name
        self._silent_ns = int(silent_s * 1e9)
        self._seen: dict[int, tuple[int, int]] = {}
        self._lost: RuntimeError | None = None
        self._mine: list[str] = []
        self._quiet = threading.Event()
        self._pulse = threading.Thread(
            target=self._beat, args=(silent_s / 10,), name="launchkit-rank-pulse", daemon=True
        )
        self._do("set", self._key("pulse", rank), "0")
        self._pulse.start()

    def close(self) -> None:
        """Let the pulse stop. Messages stay: a late rank must be able to read what happened."""
        self._quiet.set()
        self._pulse.join(timeout=1.0)

    def part(self, patience_s: float) -> None:
        """Take this rank's long messages away: all have read them.

        The first rank, whose process may be the one that keeps the store, waits for the others.
        """
        for key in self._mine:
            self._do("delete_key", key)
        self._do("add", self._key("parted"), 1)
        if self.rank == self.ranks[0]:
            self.wait(lambda: self._counted("parted"), patience_s, lambda: None)

    # -- messages

    def post(self, name: str, data: bytes) -> bool:
        """Leave a message for all; False if there is one of this name already."""
        mark = f"{self.rank}:{len(data)}:{data.hex() if len(data) <= SHORT_BYTES else ''}"
        if len(data) > SHORT_BYTES:
            for number, at in enumerate(range(0, len(data), CHUNK_BYTES)):
                key = self._key(name, self.rank, number)
                self._do("set", key, data[at : at + CHUNK_BYTES])
                self._mine.append(key)
        return self._swap(name, "", mark) == mark

    def read(self, name: str) -> bytes | None:
        """Return the message of this name, or None if nobody has left one."""
        if not self._do("check", [self._key(name)]):
            return None
        rank, size, short = self._text(self._do("get", self._key(name))).split(":")
        if int(size) <= SHORT_BYTES:
            return bytes.fromhex(short)
        count = -(-int(size) // CHUNK_BYTES)
        keys = [self._key(name, rank, number) for number in range(count)]
        if not self._do("check", keys):  # a get would wait for it
            raise AgreementError(f"the message {name} of rank {rank} is gone")
        return b"".join(self._do("get", key) for key in keys)

    def gather(self, name: str, data: bytes, timeout_s: float) -> dict[int, bytes]:
        """Leave a message of one's own, and return every rank's.

        Raises AgreementError, here and on every other rank that is at it, if one does not answer in
        time, died or gave up.
        """
        self.post(f"{name}/{self.rank}", data)
        self._do("add", self._key(name, "count"), 1)

        def all_there() -> bool:
            return self._counted(f"{name}/count")

        if not self.wait(all_there, timeout_s, lambda: self._give_up(name)):
            silent = self._absent(name)
            self._fail(silent, f"did not answer within {timeout_s:g} s")
        return {rank: self.read(f"{name}/{rank}") or b"" for rank in self.ranks}

    def _give_up(self, name: str) -> None:
        """Raise if waiting on is in vain: a rank has given up, or one that is needed has died."""
        failed = self.read("failed")
        if failed is not None:
            silent, _, reason = failed.decode(errors="replace").partition(":")
            ranks = tuple(map(int, silent.split()))
            raise AgreementError(f"another rank gave up: {reason}", silent=ranks)
        dead = [rank for rank in self._absent(name) if self.is_dead(rank)]
        if dead:
            self._fail(dead, "died, or stopped for too long")

    def _fail(self, silent: Sequence[int], what: str) -> None:
        names = ", ".join(map(str, silent))
        reason = f"rank{'s' * (len(silent) > 1)} {names} {what}"
        self.give_up(reason, silent)
        raise AgreementError(reason, silent=tuple(silent))

    def give_up(self, reason: str, silent: Sequence[int] = ()) -> None:
        """Tell all others that this agreement comes to nothing, and which ranks are to blame."""
        named = " ".join(map(str, silent[:64]))
        text = f"{named}:{reason}".encode("utf-8", "backslashreplace")
        self.post("failed", text[:SHORT_BYTES])

    def _counted(self, name: str) -> bool:
        return int(self._do("add", self._key(name), 0)) >= len(self.ranks)

    def _absent(self, name: str) -> list[int]:
        return [rank for rank in self.ranks if not self._do("check", [self._key(f"{name}/{rank}")])]

    # -- claims

    def claim(self, name: str, expected: str, wanted: str) -> str:
        """Set a claim to ``wanted`` if it is ``expected`` ("": unclaimed); return what it is now."""
        return self._swap(f"claim/{name}", expected, wanted)

    # -- waiting

    def wait(
        self, is_there: Callable[[], bool], timeout_s: float, check: Callable[[], None]
    ) -> bool:
        """Look until ``is_there()`` or the time is up; now and then ``check`` may raise."""
        deadline_ns = clock.now_ns() + int(min(timeout_s, threading.TIMEOUT_MAX) * 1e9)
        pause_s, looks = _FIRST_PAUSE_S, 0
        while not is_there():
            if looks % _LOOKS_BETWEEN_PULSES == 0:
                check()
            looks += 1
            left_s = (deadline_ns - clock.now_ns()) / 1e9
            if left_s <= 0:
                return False
            self._quiet.wait(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        return True

    def is_dead(self, rank: int) -> bool:
        """Whether a rank's pulse was there and has stood still for too long; call it repeatedly."""
        if rank == self.rank or not self._do("check", [self._key("pulse", rank)]):
            return False  # a rank that has not come yet is late
        pulse, now_ns = int(self._do("get", self._key("pulse", rank))), clock.now_ns()
        seen, since_ns = self._seen.get(rank, (-1, now_ns))
        if pulse != seen:
            self._seen[rank] = (pulse, now_ns)
            return False
        return now_ns - since_ns > self._silent_ns

    def _beat(self, interval_s: float) -> None:
        beats = 0
        while not self._quiet.wait(interval_s):
            beats += 1
            try:
                self._do("set", self._key("pulse", self.rank), str(beats))
            except AgreementError:  # whoever waits is told the same
                return

    # -- the store

    def _key(self, *parts: object) -> str:
        return "/".join([self._name, *map(str, parts)])

    def _swap(self, name: str, expected: str, wanted: str) -> str:
        return self._text(self._do("compare_set", self._key(name), expected, wanted))

    def _text(self, value: bytes | str) -> str:
        return value if isinstance(value, str) else value.decode()

    def _do(self, operation: str, *values: Any) -> Any:
        if self._lost is None:
            try:
                return getattr(self._store, operation)(*values)
            except RuntimeError as error:  # all of torch's are
                self._lost = error
        raise AgreementError(f"torch.distributed's key-value store is lost ({self._lost})")
