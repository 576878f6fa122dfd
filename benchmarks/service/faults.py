"""``launchkit bench service --faults``: what was acknowledged is there, whatever is killed."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from launchkit import clock, jsonio
from launchkit.benchmarks.service import records
from launchkit.benchmarks.service.load import etags
from launchkit.benchmarks.service.postgres import PrivatePostgres
from launchkit.benchmarks.service.servers import NAMESPACE, Replica, Service
from launchkit.service import protocol, signing

WRITERS = 8
_SLOWEST_S, _PAUSE_S = 60.0, 0.02


@dataclass
class Written:
    """What writers sent, and what the servers said."""

    acknowledged: list[int] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    """The longest that a writer waited for an answer of any kind."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, number: int, status: str, waited_s: float) -> None:
        """Keep what came of a write."""
        with self.lock:
            self.statuses[status] += 1
            self.slowest_s = max(self.slowest_s, waited_s)
            if status in ("200", "201"):
                self.acknowledged.append(number)


def measure(
    service: Service, postgres: PrivatePostgres | None, rounds: int, seed: int = 1
) -> dict[str, Any]:
    """Kill servers, and the database, while records are written; returns rows as JSON values.

    ``postgres``: the database's own server; without it its rows are left out.
    """
    causes = faults(service, postgres, random.Random(seed))
    numbers = Numbers()
    rows = [row(service, what, cause, rounds, numbers) for what, cause in causes.items()]
    return {
        "replicas": len(service.replicas),
        "writers": WRITERS,
        "rows": rows,
        "ok": all(row["ok"] for row in rows),
    }


def faults(
    service: Service, postgres: PrivatePostgres | None, rng: random.Random
) -> dict[str, Callable[[], None]]:
    """Return what causes each fault and mends it again, by its name."""
    causes: dict[str, Callable[[], None]] = {
        "server killed": lambda: _killed(service, rng),
        "server stopped in order": lambda: _stopped(service, rng),
    }
    if postgres is not None:
        causes["database down and back"] = lambda: _database_down(postgres, rng, "fast")
        causes["database crashed and back"] = lambda: _database_down(postgres, rng, "immediate")
    return causes


class Numbers:
    """Numbers of records that nobody has written."""

    def __init__(self, first: int = 10**7) -> None:
        self._next = first
        self._lock = threading.Lock()

    def take(self) -> int:
        """Return the next one."""
        with self._lock:
            self._next += 1
            return self._next


def row(
    service: Service, what: str, cause: Callable[[], None], rounds: int, numbers: Numbers
) -> dict[str, Any]:
    """Cause a fault so often while records are written; returns what was seen."""
    written, recovered_s = Written(), []
    for _ in range(rounds):
        with writing(service, written, numbers):
            time.sleep(0.3)
            cause()
            start_ns, before = clock.now_ns(), len(written.acknowledged)
            while len(written.acknowledged) < before + WRITERS and _since_s(start_ns) < _SLOWEST_S:
                time.sleep(0.01)
            recovered_s.append(round(_since_s(start_ns), 3))
    lost = missing(service, written.acknowledged)
    unexpected = {s: n for s, n in written.statuses.items() if s not in _EXPECTED}
    return {
        "fault": what,
        "rounds": rounds,
        "acknowledged": len(written.acknowledged),
        "lost": len(lost),
        "statuses": dict(written.statuses),
        "unexpected": unexpected,
        "slowest_s": round(written.slowest_s, 3),
        "recovered_max_s": max(recovered_s),
        "ok": not lost and not unexpected and max(recovered_s) < _SLOWEST_S,
    }


_EXPECTED = {"200", "201", "503", "no answer"}


def _since_s(start_ns: int) -> float:
    return (clock.now_ns() - start_ns) / 1e9


def _killed(service: Service, rng: random.Random) -> None:
    replica = rng.choice(service.replicas)
    replica.kill()
    replica.start()


def _stopped(service: Service, rng: random.Random) -> None:
    replica = rng.choice(service.replicas)
    code = replica.stop()
    assert code == 0, f"the server ended with {code}: {replica.log[-2000:]}"
    replica.start()


def _database_down(postgres: PrivatePostgres, rng: random.Random, mode: str) -> None:
    postgres.stop(mode)
    time.sleep(rng.uniform(0.2, 1.0))
    postgres.start()


@contextmanager
def writing(service: Service, written: Written, numbers: Numbers) -> Iterator[None]:
    """Let writers put new records into all replicas for the time of the block."""
    stop = threading.Event()
    threads = [
        threading.Thread(
            target=_write,
            args=(service.replicas[n % len(service.replicas)], service.token("write"), stop),
            kwargs={"written": written, "numbers": numbers},
        )
        for n in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _write(
    replica: Replica, token: str, stop: threading.Event, written: Written, numbers: Numbers
) -> None:
    while not stop.is_set():
        number = numbers.take()
        start_ns = clock.now_ns()
        status = put(replica, token, number)
        written.note(number, status, _since_s(start_ns))
        stop.wait(_PAUSE_S)


def put(replica: Replica, token: str, number: int) -> str:
    """Put the record of this number; returns the status, or ``no answer``."""
    record = records.record(number)
    path, body = protocol.record_path(NAMESPACE, record), signing.body(record)
    try:
        status, _ = replica.ask(
            "PUT", path, token, body, _SLOWEST_S, Content_Type="application/json"
        )
    except (OSError, http.client.HTTPException):
        return "no answer"
    return str(status)


def missing(service: Service, numbers: Sequence[int]) -> list[int]:
    """Return those of these numbers whose record is not stored as it was put."""
    lost: list[int] = []
    for start in range(0, len(numbers), protocol.LOOKUP_LIMIT):
        batch = numbers[start : start + protocol.LOOKUP_LIMIT]
        made = [records.record(number) for number in batch]
        wanted = [protocol.wanted_record(record.identity).model_dump() for record in made]
        replica = service.replicas[start // protocol.LOOKUP_LIMIT % len(service.replicas)]
        status, body = replica.ask(
            "POST", protocol.lookup_path(NAMESPACE), service.token("read"),
            jsonio.dumps_compact({"wanted": wanted}), Content_Type="application/json",
        )  # fmt: skip
        found = etags(body) if status == 200 else [None] * len(made)
        right = [signing.etag(signing.body(record)) for record in made]
        lost += [n for n, one, other in zip(batch, found, right, strict=True) if one != other]
    return lost
