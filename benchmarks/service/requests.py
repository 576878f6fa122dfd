"""Many HTTP clients in one process, at little cost to the machine that they share with the servers.

Each client has one connection that it keeps, and one request at a time. No torch.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from launchkit import clock
from launchkit.errors import UsageError

_LIMIT_BYTES = 64 * 2**20
FAILED = 0
"""Stands for a status where no answer came."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: its bytes, and which answer is the right one."""

    data: bytes
    statuses: tuple[int, ...] = (200,)
    check: Callable[[bytes], bool] | None = None
    """Whether the body is right; None: it is not looked at."""


@dataclass
class Seen:
    """What clients saw: a time for each answer, and answers by status."""

    times_us: array[float] = field(default_factory=lambda: array("d"))
    statuses: Counter[int] = field(default_factory=Counter)
    checked: int = 0
    wrong: list[str] = field(default_factory=list)
    """Answers that were not the right one, the first few."""
    errors: int = 0
    """Of them, and of requests without an answer, all."""
    wall_s: float = 0.0

    def quantile_ms(self, part: float) -> float:
        """Return the time in ms below which this part of the answers came."""
        ordered = sorted(self.times_us)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1e3, 3)

    def row(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        answers = len(self.times_us)
        row: dict[str, Any] = {
            "requests": answers,
            "wall_s": round(self.wall_s, 2),
            "per_s": round(answers / self.wall_s, 1),
        }
        if answers:
            row |= {f"{name}_ms": self.quantile_ms(part) for name, part in _QUANTILES.items()}
        statuses = {str(status): count for status, count in sorted(self.statuses.items())}
        return row | {
            "statuses": statuses,
            "checked": self.checked,
            "errors": self.errors,
            "wrong": self.wrong,
        }


_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def request(
    method: str, path: str, token: str | None = None, body: bytes = b"", **headers: str
) -> bytes:
    """Return a request's bytes; ``headers``: names with ``_`` for ``-``."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body or method in ("POST", "PUT"):
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + body


class _Link:
    """One client's connection, made anew where the server has closed it."""

    def __init__(self, port: int, deadline_s: float) -> None:
        self._port = port
        self._deadline_s = deadline_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send a request, and return status and body. OSError or TimeoutError without an answer."""
        fresh = self._streams is None
        try:
            return await asyncio.wait_for(self._ask(data), self._deadline_s)
        except (OSError, EOFError):
            self.close()
            if fresh:
                raise
            # A kept connection may be closed between two requests: that is no failure.
            return await asyncio.wait_for(self._ask(data), self._deadline_s)

    async def _ask(self, data: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**18)
        reader, writer = self._streams
        writer.write(data)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        size = _content_length(head)
        body = await reader.readexactly(size) if size and not data.startswith(b"HEAD") else b""
        if b"\r\nconnection: close" in head:
            self.close()
        return status, body

    def close(self) -> None:
        """Give the connection up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _content_length(head: bytes) -> int:
    _, found, rest = head.partition(b"\r\ncontent-length:")
    if not found:
        if b"\r\ntransfer-encoding:" in head:
            raise UsageError("an answer came in chunks. Give a path with whole answers.")
        return 0
    size = int(rest[: rest.index(b"\r")])
    if size > _LIMIT_BYTES:
        raise UsageError(f"an answer of {size} bytes is none that was asked for. Ask for less.")
    return size


@dataclass(frozen=True)
class Plan:
    """What clients do."""

    asks: Callable[[random.Random], Ask]
    """Gives the next request."""
    clients: int
    """How many at once; each asks again when it was answered."""
    seconds: float
    """For how long new requests are made."""
    per_s: float | None = None
    """Requests that all clients together make in a second, evenly; None: what they can.

    With it an answer's time counts from when its request was due.
    """
    deadline_s: float = 30.0
    """What waits longer is an error."""
    seed: int = 1
    """Of ``asks``, and of when each client begins."""


def drive(ports: Sequence[int], plan: Plan) -> Seen:
    """Let clients ask servers on this machine, among which they are shared out evenly."""
    return asyncio.run(_drive(ports, plan))


async def _drive(ports: Sequence[int], plan: Plan) -> Seen:
    seen = Seen()
    start_ns = clock.now_ns()
    links = [_Link(ports[n % len(ports)], plan.deadline_s) for n in range(plan.clients)]
    await asyncio.gather(
        *(
            _client(link, plan, random.Random(f"{plan.seed} {number}"), seen)
            for number, link in enumerate(links)
        )
    )
    seen.wall_s = (clock.now_ns() - start_ns) / 1e9
    return seen


async def _client(link: _Link, plan: Plan, rng: random.Random, seen: Seen) -> None:
    try:
        await _ask_on(link, plan, rng, seen)
    finally:
        link.close()


async def _ask_on(link: _Link, plan: Plan, rng: random.Random, seen: Seen) -> None:
    pause_ns = 0 if plan.per_s is None else int(plan.clients / plan.per_s * 1e9)
    due_ns = clock.now_ns()
    stop_ns = due_ns + int(plan.seconds * 1e9)
    due_ns += int(rng.random() * pause_ns)
    while due_ns < stop_ns:
        await asyncio.sleep(max(0.0, (due_ns - clock.now_ns()) / 1e9))
        ask = plan.asks(rng)
        try:
            status, body = await link.ask(ask.data)
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            link.close()
            _note(seen, FAILED, f"{type(error).__name__}: {error}")
        else:
            seen.times_us.append((clock.now_ns() - due_ns) / 1e3)
            _judge(seen, ask, status, body)
        due_ns = due_ns + pause_ns if pause_ns else clock.now_ns()


def _judge(seen: Seen, ask: Ask, status: int, body: bytes) -> None:
    if status not in ask.statuses:
        _note(
            seen, status, f"{status} for {ask.data[:60]!r}: {body[:200].decode(errors='replace')}"
        )
        return
    seen.statuses[status] += 1
    if ask.check is not None:
        seen.checked += 1
        if not ask.check(body):
            seen.errors += 1
            seen.wrong.append(f"a wrong body: {body[:200].decode(errors='replace')}")


def _note(seen: Seen, status: int, what: str) -> None:
    seen.statuses[status] += 1
    seen.errors += 1
    if len(seen.wrong) < 10:
        seen.wrong.append(what)
