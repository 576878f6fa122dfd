"""``launchkit bench service --soak``: does a server's memory stay flat under every kind of request?"""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from launchkit import clock, jsonio
from launchkit.benchmarks.growth import slope
from launchkit.benchmarks.service import records as service_records
from launchkit.benchmarks.service.load import Pool, fill
from launchkit.benchmarks.service.requests import Ask, Plan, drive, request
from launchkit.benchmarks.service.servers import NAMESPACE, Replica, Service
from launchkit.configs import TunedConfig, TunedRecord
from launchkit.errors import UsageError
from launchkit.service import protocol, signing

ALLOWED_BYTES = 6 * 2**20
"""By so much a server's fitted memory may grow after its warm-up: less is noise of allocators."""
WARM_UP = 0.25
"""Of all the time: pools, caches and allocators fill."""
SAMPLES = 240
_WRITTEN = 200
"""So many records are written again and again, each time with other times."""


def measure(
    service: Service,
    records: int,
    clients: int,
    seconds: float,
    per_s: float | None,
    seed: int = 1,
) -> dict[str, Any]:
    """Ask for everything, rightly and wrongly, for so many seconds; look at the servers' memory.

    Args:
        service: empty.
        records: how many are stored before.
        clients: how many at once.
        seconds: how long.
        per_s: requests per second in all; None: what the servers can.
        seed: of the requests.

    Returns JSON values: a row for each replica, with its samples.
    """
    fill(service, records)
    mix = Mix(service, records, seed)
    watched = [_Watched(replica, seconds) for replica in service.replicas]
    for each in watched:
        each.start()
    seen = drive(service.ports, Plan(mix, clients, seconds, per_s, seed=seed))
    rows = [each.row() for each in watched]
    return {
        "replicas": len(service.replicas),
        "records": records,
        "clients": clients,
        "allowed_bytes": ALLOWED_BYTES,
        "kinds": list(mix.kinds),
        "requests": seen.row(),
        "rows": rows,
        "flat": all(row["flat"] for row in rows),
        "ok": all(row["flat"] for row in rows) and not seen.errors,
    }


_PAGES = ["/", *(f"/web/{NAMESPACE}{rest}" for rest in ("", "/kernels", "/records", "/misses",
          "/leases", "/audit", "/snapshots"))]  # fmt: skip


class Mix:
    """Every kind of request, right and wrong ones, by weight."""

    def __init__(self, service: Service, records: int, seed: int) -> None:
        self._read, self._write = service.token("read"), service.token("write")
        self._written = [service_records.record(n) for n in range(min(_WRITTEN, records // 2))]
        pool = Pool(range(len(self._written), records), self._read, seed)
        self.kinds: dict[str, tuple[int, Callable[[random.Random], Ask]]] = {
            "get": (40, pool.get),
            "get, not modified": (10, pool.unmodified),
            "get, absent": (10, pool.absent),
            "lookup": (8, pool.batch),
            "put": (8, self._put),
            "lease": (6, self._lease),
            "status": (2, self._status),
            "metrics": (1, self._metrics),
            "page": (1, self._page),
            "no token": (3, self._no_token),
            "no path": (3, self._no_path),
            "no document": (3, self._no_document),
            "no right": (3, self._no_right),
        }
        self._cookie = _visit(service.replicas[0], self._read)
        self._bag = [ask for weight, ask in self.kinds.values() for _ in range(weight)]

    def __call__(self, rng: random.Random) -> Ask:
        """Return the next request."""
        return rng.choice(self._bag)(rng)

    def _put(self, rng: random.Random) -> Ask:
        record = _timed_anew(rng.choice(self._written), rng)
        path, body = protocol.record_path(NAMESPACE, record), signing.body(record)
        return Ask(request("PUT", path, self._write, body), (200, 201))

    def _lease(self, rng: random.Random) -> Ask:
        path = protocol.lease_path(NAMESPACE, secrets.token_hex(16))
        body = jsonio.dumps_compact({"holder": "bench", "ttl_s": 1.0})
        return Ask(request("POST", path, self._write, body), (200, 201))

    def _status(self, rng: random.Random) -> Ask:
        return Ask(request("GET", "/status", self._read))

    def _metrics(self, rng: random.Random) -> Ask:
        return Ask(request("GET", "/metrics", self._read))

    def _page(self, rng: random.Random) -> Ask:
        path = rng.choice(_PAGES)
        return Ask(request("GET", path, Cookie=self._cookie))

    def _no_token(self, rng: random.Random) -> Ask:
        wrong = f"lk_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"
        return Ask(request("GET", protocol.namespace_path(NAMESPACE, "/bundle"), wrong), (401,))

    def _no_path(self, rng: random.Random) -> Ask:
        return Ask(request("GET", f"/v1/{secrets.token_hex(8)}", self._read), (404,))

    def _no_document(self, rng: random.Random) -> Ask:
        path = protocol.record_path(NAMESPACE, rng.choice(self._written))
        return Ask(request("PUT", path, self._write, rng.randbytes(2000)), (400, 422))

    def _no_right(self, rng: random.Random) -> Ask:
        record = rng.choice(self._written)
        path, body = protocol.record_path(NAMESPACE, record), signing.body(record)
        return Ask(request("PUT", path, self._read, body), (403,))


def _timed_anew(record: TunedRecord, rng: random.Random) -> TunedRecord:
    timed = TunedConfig.measured(record.chosen, 5.0 + rng.random(), reps=100, method="soak")
    return replace(record, configs=(timed,))


def _visit(replica: Replica, token: str) -> str:
    """Log in as a browser does, and return its cookie."""
    form = f"token={token}".encode()
    said = httpx.post(
        f"http://127.0.0.1:{replica.port}/login", content=form,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )  # fmt: skip
    if not said.cookies:
        raise UsageError(f"logging in was answered with {said.status_code}. See the server's log.")
    return "; ".join(f"{name}={value}" for name, value in said.cookies.items())


class _Watched(threading.Thread):
    """Samples one server while requests are made."""

    def __init__(self, replica: Replica, seconds: float) -> None:
        super().__init__(daemon=True)
        self._replica = replica
        self._step_s = seconds / SAMPLES
        self._pid = replica.pid
        self.samples: list[dict[str, float]] = []

    def run(self) -> None:
        start_ns, done = clock.now_ns(), threading.Event()
        for turn in range(SAMPLES):
            passed_s = (clock.now_ns() - start_ns) / 1e9
            done.wait(max(0.0, turn * self._step_s - passed_s))
            self.samples.append(self._sample((clock.now_ns() - start_ns) / 1e9))

    def _sample(self, at_s: float) -> dict[str, float]:
        place = Path(f"/proc/{self._pid}")
        return {
            "at_s": round(at_s, 2),
            "rss_bytes": self._replica.resident_bytes,
            "threads": len(list((place / "task").iterdir())),
            "files": len(list((place / "fd").iterdir())),
        }

    def row(self) -> dict[str, Any]:
        """Return what was seen, and whether memory was flat after the warm-up."""
        self.join()
        return {"pid": self._pid, **grown(self.samples), "samples": self.samples}


def grown(samples: list[dict[str, float]]) -> dict[str, Any]:
    """Return by how much a server grew after its warm-up, fitted over samples, and whether flat."""
    kept = samples[int(len(samples) * WARM_UP) :]
    at_s = [sample["at_s"] for sample in kept]
    per_s = slope(at_s, [sample["rss_bytes"] for sample in kept])
    growth_bytes = per_s * (at_s[-1] - at_s[0])
    ends = {
        f"{what}_{name}": sample[what]
        for what in ("threads", "files")
        for name, sample in (("first", kept[0]), ("last", kept[-1]))
    }
    return {
        "seconds": round(at_s[-1] - at_s[0], 1),
        "first_bytes": kept[0]["rss_bytes"],
        "last_bytes": kept[-1]["rss_bytes"],
        "growth_bytes": round(growth_bytes),
        "bytes_per_s": round(per_s, 1),
        **ends,
        "flat": growth_bytes < ALLOWED_BYTES,
    }
