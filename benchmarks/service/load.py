"""``launchkit bench service --load``: lookups per second of many clients among many records."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from launchkit import clock, jsonio
from launchkit.benchmarks.service import filling
from launchkit.benchmarks.service import records as service_records
from launchkit.benchmarks.service.requests import Ask, Plan, drive, request
from launchkit.benchmarks.service.servers import NAMESPACE, Service
from launchkit.errors import UsageError
from launchkit.service import protocol, signing
from launchkit.store import bundle

POOL = 10_000
"""So many different records are asked for, drawn from all of them."""
BATCH = 32
_BUNDLE = 2000
BY_BUNDLES = 10_000
"""So many records are stored as users do it, which an audit log follows; the others are rows."""
_CHECKED = 32
"""One of so many answers is compared with what was stored, byte by byte."""


def measure(
    service: Service,
    records: int,
    clients: int,
    seconds: float,
    advance: Callable[[int], None] = lambda stored: None,
    seed: int = 1,
) -> dict[str, Any]:
    """Store records, and let clients look them up in each way for so many seconds.

    Args:
        service: empty.
        records: of how many keys.
        clients: how many at once, each with a connection that it keeps.
        seconds: of each row.
        advance: called with a number of records that were stored, for progress.
        seed: of which records are asked for, and when.

    Returns JSON values. Raises UsageError where records could not be stored.
    """
    filled = fill(service, records, advance)
    pool = Pool(range(records), service.token("read"), seed)
    rows = []
    for name, asks in pool.kinds().items():
        rows.append(_row(name, service, Plan(asks, clients, seconds, seed=seed)))
    # Where servers have no rest, an answer's time says how many clients wait, and little more.
    half = rows[0]["per_s"] / 2
    rows.append(_row("get, paced", service, Plan(pool.get, clients, seconds, half, seed=seed)))
    return {
        "replicas": len(service.replicas),
        "records": records,
        "clients": clients,
        "fill": filled,
        "servers_bytes": [replica.resident_bytes for replica in service.replicas],
        "rows": rows,
        "ok": not filled["by_bundles"]["refused"] and not any(row["errors"] for row in rows),
    }


def fill(
    service: Service, records: int, advance: Callable[[int], None] = lambda stored: None
) -> dict[str, Any]:
    """Store the first records: by bundles, and after ``BY_BUNDLES`` of them past the API."""
    count = min(records, BY_BUNDLES)
    filled = {"by_bundles": _post(service, count, advance), "past_the_api": None}
    if records > count:
        filled["past_the_api"] = filling.copy_in(service.database_url, range(count, records))
    return filled


def _post(service: Service, records: int, advance: Callable[[int], None]) -> dict[str, Any]:
    """Store records by bundles, through all replicas at once; returns what it took."""
    token, start_ns = service.token("write"), clock.now_ns()

    def post(share: tuple[int, range]) -> dict[str, Any]:
        turn, numbers = share
        data = bundle.dump(map(service_records.record, numbers))
        replica = service.replicas[turn % len(service.replicas)]
        status, said = replica.ask(
            "POST", protocol.namespace_path(NAMESPACE, "/bundle"), token, data,
            600.0, Content_Type=protocol.MEDIA_BUNDLE,
        )  # fmt: skip
        if status != 200:
            raise UsageError(f"a bundle was answered with {status}: {said[:500]!r}. See the log.")
        advance(len(numbers))
        answer = jsonio.loads(said, source="a bundle's answer", limit_bytes=10**6)
        assert isinstance(answer, dict)
        return answer

    with ThreadPoolExecutor(len(service.replicas)) as pool:
        said = list(pool.map(post, enumerate(_shares(records))))
    wall_s = (clock.now_ns() - start_ns) / 1e9
    return {
        "created": sum(each["created"] for each in said),
        "refused": sum(each["refused"] for each in said),
        "wall_s": round(wall_s, 2),
        "per_s": round(records / wall_s, 1),
    }


def _shares(records: int) -> Iterator[range]:
    for first in range(0, records, _BUNDLE):
        yield range(first, min(records, first + _BUNDLE))


@dataclass(frozen=True, slots=True)
class _Stored:
    get: bytes
    unless: bytes
    etag: str
    wanted: dict[str, str]


class Pool:
    """Requests for a sample of what is stored, made before anything is timed."""

    def __init__(self, stored: range, token: str, seed: int) -> None:
        rng = random.Random(seed)
        self._token = token
        numbers = rng.sample(stored, min(POOL, len(stored)))
        self._stored = [self._made(number) for number in numbers]
        absent = range(2 * stored.stop, 2 * stored.stop + len(numbers))
        self._absent = [request("GET", _path(number), token) for number in absent]
        self._batches = [self._batch(rng) for _ in range(min(500, len(numbers)))]

    def kinds(self) -> dict[str, Callable[[random.Random], Ask]]:
        """Return every kind of request by its name."""
        return {
            "get": self.get,
            "get, not modified": self.unmodified,
            "get, absent": self.absent,
            f"lookup of {BATCH}": self.batch,
        }

    def get(self, rng: random.Random) -> Ask:
        """Ask for a record."""
        stored = rng.choice(self._stored)
        if rng.randrange(_CHECKED):
            return Ask(stored.get)
        return Ask(stored.get, check=lambda body: _digest(body) == stored.etag)

    def unmodified(self, rng: random.Random) -> Ask:
        """Ask for a record that has not changed since."""
        return Ask(rng.choice(self._stored).unless, (304,))

    def absent(self, rng: random.Random) -> Ask:
        """Ask for a record that is not stored."""
        return Ask(rng.choice(self._absent), (404,))

    def batch(self, rng: random.Random) -> Ask:
        """Ask for ``BATCH`` records at once."""
        data, right = rng.choice(self._batches)
        if rng.randrange(_CHECKED):
            return Ask(data)
        return Ask(data, check=lambda body: etags(body) == right)

    def _made(self, number: int) -> _Stored:
        record = service_records.record(number)
        etag = signing.etag(signing.body(record))
        return _Stored(
            request("GET", _path(number), self._token),
            request("GET", _path(number), self._token, If_None_Match=protocol.quoted(etag)),
            etag,
            protocol.wanted_record(record.identity).model_dump(),
        )

    def _batch(self, rng: random.Random) -> tuple[bytes, list[str]]:
        chosen = rng.sample(self._stored, min(BATCH, len(self._stored)))
        body = jsonio.dumps_compact({"wanted": [stored.wanted for stored in chosen]})
        data = request("POST", protocol.lookup_path(NAMESPACE), self._token, body)
        return data, [stored.etag for stored in chosen]


def _path(number: int) -> str:
    record = service_records.record(number)
    return f"{protocol.record_path(NAMESPACE, record)}?toolchain={record.toolchain.triton}"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def etags(body: bytes) -> Sequence[str | None]:
    """Return the digests of the documents in an answer to a lookup; None for a missing one."""
    answers = protocol.LookupAnswers.model_validate_json(body).answers
    return [
        None if each.document is None else _digest(jsonio.dumps_compact(each.document))
        for each in answers
    ]


def _row(name: str, service: Service, plan: Plan) -> dict[str, Any]:
    return {"case": name, "clients": plan.clients, **drive(service.ports, plan).row()}
