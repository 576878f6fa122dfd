"""Single flight: of all that would tune one key, one does it at a time. Above the stores.

Beside a DirectoryStore's documents, in ``.flights``, each key that is being tuned has a lock file,
which is gone afterwards; for other stores only the threads of this process wait for each other. The
kernel frees a killed holder's lock. A layer that is shared by machines brings its own flights
(``SharedFlights``), which are entered last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from launchkit import clock, jsonio
from launchkit.configs import Identity as Identity
from launchkit.store import files
from launchkit.store.base import ConfigStore, Miss
from launchkit.store.directory import DirectoryStore
from launchkit.store.layered import LayeredStore

TIMEOUT_S = 600.0
"""How long a flight waits by default: longer than a kernel with a long config list tunes."""
FOLDER = ".flights"
STALE_S = 86400.0

Outcome: TypeAlias = Literal["alone", "waited", "late", "nested", "unguarded"]
"""alone: nobody else was at it; waited: somebody was, and has ended; late: somebody still is, and
the time is up; nested: somebody is, and this thread must not wait, since it is in another key's
flight; unguarded: the file system has no locks, or cannot be written."""


@runtime_checkable
class SharedFlights(Protocol):
    """A store whose flights reach further than the processes of one file system."""

    def enter_flight(
        self, identity: Identity, timeout_s: float
    ) -> contextlib.AbstractContextManager[Outcome]:
        """Wait, at most so long, to be the only one; nothing but the block's errors is raised."""


_POLL_S = 0.05
_log = logging.getLogger("launchkit")


@dataclass
class _Turn:
    """One key's turn among the threads of this process."""

    lock: Any = field(default_factory=threading.RLock)
    users: int = 0
    depth: int = 0


class _Process:
    """What this process knows of its flights. A forked child begins with nothing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turns: dict[tuple[str, str], _Turn] = {}
        self.told: set[str] = set()
        self.here = threading.local()

    def flying(self) -> int:
        """In how many flights this thread is."""
        return getattr(self.here, "flying", 0)

    def is_first(self, what: str) -> bool:
        """Whether this is said for the first time."""
        with self.lock:
            first = what not in self.told
            self.told.add(what)
        return first


_process = _Process()


def _begin_again() -> None:
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_begin_again)


@contextlib.contextmanager
def flight(
    store: ConfigStore, identity: Identity, timeout_s: float = TIMEOUT_S
) -> Iterator[Outcome]:
    """Be the only one who tunes ``identity`` over ``store``, for the time of the ``with`` block.

    Look into the store again inside, whatever the outcome: another process may have put the
    record there. After ``timeout_s`` seconds of waiting the block runs all the same, as it does
    where no lock can be had; nothing but the block's own errors is raised. A thread may enter the
    flight that it is in again; in another key's flight it does not wait, so that two that want each
    other's key cannot stand still. Take it before any lock of your own.
    """
    process, digest, folder = _process, identity_digest(identity), _folder(store)
    turn = (digest, str(folder or id(store)))
    deadline_ns = clock.now_ns() + int(min(max(0.0, timeout_s), threading.TIMEOUT_MAX) * 1e9)
    with contextlib.ExitStack() as stack:
        outcome, depth = stack.enter_context(_turn(process, turn, deadline_ns))
        own, behind = _shared(store)
        if depth == 1:
            outcome = _enter_shared(stack, process, own, identity, deadline_ns) or outcome
        if depth == 1 and folder is not None:
            path = folder / f"{digest}.lock"
            outcome = _enter(stack, process, path, deadline_ns) or outcome
        # Last, so that of a machine one process asks; not at all where another has just tuned.
        if depth == 1 and not (outcome == "waited" and _has(store, identity)):
            outcome = _enter_shared(stack, process, behind, identity, deadline_ns) or outcome
            _unhide(store, behind, identity)
        _tell(process, identity, outcome)
        yield outcome


def identity_digest(identity: Identity) -> str:
    """Return 32 hex digits that stand for a record's identity."""
    kernel, device, toolchain, key = identity
    parts = [kernel.name, kernel.digest, device.slug, toolchain.text, key.digest]
    return jsonio.digest(parts)[:32]


def _shared(store: ConfigStore) -> tuple[list[SharedFlights], list[SharedFlights]]:
    """Return the store, if its flights reach further, and those of its layers whose flights do."""
    own: list[SharedFlights] = [store] if isinstance(store, SharedFlights) else []
    layers = store.layers if isinstance(store, LayeredStore) else ()
    return own, [layer for layer in layers if isinstance(layer, SharedFlights)]


def _enter_shared(
    stack: contextlib.ExitStack,
    process: _Process,
    shared: list[SharedFlights],
    identity: Identity,
    deadline_ns: int,
) -> Outcome | None:
    """Enter flights that reach further; None if nobody else was at it."""
    found: Outcome | None = None
    for each in shared:
        left_s = 0.0 if process.flying() > 1 else _seconds_to(deadline_ns)
        outcome = stack.enter_context(each.enter_flight(identity, left_s))
        found = found if outcome == "alone" else outcome
    return found


def _unhide(store: ConfigStore, shared: list[SharedFlights], identity: Identity) -> None:
    """Merge what a shared layer has by now into our own record, which would hide it.

    We are about to tune, so our own does not do: it lacks results that others may have measured.
    """
    mine = store.writable if isinstance(store, LayeredStore) else None
    layers = [layer for layer in shared if isinstance(layer, ConfigStore)]
    if mine is None or mine in layers:
        return
    for layer in layers:
        with contextlib.suppress(Exception):  # a store may fail in any way, a launch may not
            ours, theirs = mine.get(*identity), layer.get(*identity)
            if not isinstance(ours, Miss) and not isinstance(theirs, Miss) and ours != theirs:
                mine.put(theirs)


def _has(store: ConfigStore, identity: Identity) -> bool:
    try:
        return not isinstance(store.get(*identity), Miss)
    except Exception:  # noqa: BLE001 - a store may fail in any way, a launch may not
        return False


def _folder(store: ConfigStore | None) -> Path | None:
    """Return where the locks of a store are: beside what other processes can find."""
    if isinstance(store, LayeredStore):
        store = store.writable
    if not isinstance(store, DirectoryStore) or store.read_only:
        return None
    return store.path / FOLDER


@contextlib.contextmanager
def _turn(
    process: _Process, key: tuple[str, str], deadline_ns: int
) -> Iterator[tuple[Outcome, int]]:
    """Wait for this process's other threads; gives the depth of the turn too, 0 for none."""
    with process.lock:
        turn = process.turns.setdefault(key, _Turn())
        turn.users += 1
    flying = process.flying()
    try:
        outcome = _acquire(turn.lock, None if flying else deadline_ns)
        if outcome in ("late", "nested"):
            yield outcome, 0
            return
        turn.depth += 1
        process.here.flying = flying + 1
        try:
            yield outcome, turn.depth
        finally:
            process.here.flying = flying
            turn.depth -= 1
            turn.lock.release()
    finally:
        with process.lock:
            turn.users -= 1
            if not turn.users:
                process.turns.pop(key, None)


def _acquire(lock: Any, deadline_ns: int | None) -> Outcome:
    """Take a lock; without a deadline, at once or not at all."""
    if lock.acquire(blocking=False):
        return "alone"
    if deadline_ns is None:
        return "nested"
    return "waited" if lock.acquire(timeout=_seconds_to(deadline_ns)) else "late"


def _seconds_to(deadline_ns: int) -> float:
    return min(max(0.0, (deadline_ns - clock.now_ns()) / 1e9), threading.TIMEOUT_MAX)


def _enter(
    stack: contextlib.ExitStack, process: _Process, path: Path, deadline_ns: int
) -> Outcome | None:
    """Take a key's lock file until the stack closes; None if it was free."""
    _sweep(process, path.parent)
    try:
        if _take(stack, path, 0.0):
            return None
        if process.flying() > 1:
            return "nested"
        return "waited" if _take(stack, path, _seconds_to(deadline_ns)) else "late"
    except OSError as error:
        if process.is_first(f"unguarded {path.parent}"):
            _log.debug("processes may tune a key twice: no lock in %s (%s)", path.parent, error)
        return "unguarded"


def _take(stack: contextlib.ExitStack, path: Path, patience_s: float) -> bool:
    try:
        stack.enter_context(files.locked_file(path, patience_s, poll_s=_POLL_S, remove=True))
    except TimeoutError:
        return False
    return True


def _sweep(process: _Process, folder: Path) -> None:
    """Once a process: remove the lock files that killed holders left a day ago or earlier."""
    if not process.is_first(f"sweep {folder}"):
        return
    oldest = clock.utc_now().timestamp() - STALE_S
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    with files.locked_file(Path(entry.path), 0.0, poll_s=_POLL_S, remove=True):
                        pass


def _tell(process: _Process, identity: Identity, outcome: Outcome) -> None:
    if outcome == "late" and process.is_first("late"):
        _log.warning(
            "another thread or process has been tuning %s (%s) for too long; it is tuned here too. "
            "End that process if it hangs.",
            identity[0].name,
            identity[3].text,
        )
