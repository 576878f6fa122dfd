"""``launchkit bench service``: starts the servers, puts one trial to them, adds the facts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from launchkit import clock
from launchkit.benchmarks import host
from launchkit.benchmarks.service import faults, fleet, load, servers, soak
from launchkit.benchmarks.service.postgres import PrivatePostgres
from launchkit.benchmarks.service.servers import Kind, Service
from launchkit.errors import UsageError

UNLIMITED = ("--rate", "0", "--write-rate", "0")
"""All requests come from one address and with one token each."""
_PACKAGES = "fastapi", "uvicorn", "httptools", "uvloop", "sqlalchemy", "psycopg"


def measure(
    trial: str, kind: Kind, replicas: int, told: dict[str, Any],
    advance: Callable[[int], None] = lambda stored: None,
) -> dict[str, Any]:  # fmt: skip
    """Put one trial to servers of this machine, and return what was seen as JSON values.

    Args:
        trial: ``fleet``, ``load``, ``soak`` or ``faults``.
        kind: of the database.
        replicas: servers over it.
        told: the command's options.
        advance: called with a number of records that were stored.

    Raises UsageError where servers or the database cannot be started.
    """
    start_ns = clock.now_ns()
    with servers.running(kind, replicas, UNLIMITED) as (service, postgres):
        seen = _put(trial, service, postgres, told, advance)
        database = "SQLite" if postgres is None else postgres.version
    return {
        "mode": "service",
        "trial": trial,
        "database": database,
        "machine": {**host.facts(), **{name: _version(name) for name in _PACKAGES}},
        "wall_s": round((clock.now_ns() - start_ns) / 1e9, 1),
        **seen,
    }


def _version(name: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return None


def _put(
    trial: str, service: Service, postgres: PrivatePostgres | None, told: dict[str, Any],
    advance: Callable[[int], None],
) -> dict[str, Any]:  # fmt: skip
    records, seconds = told["records"], told["seconds"]
    if trial == "fleet":
        return fleet.measure(service, told["clients"] or 200)
    if trial == "load":
        return load.measure(service, records, told["clients"] or 500, seconds, advance)
    if trial == "soak":
        clients = told["clients"] or 100
        return soak.measure(service, records, clients, seconds, told["per_s"])
    if trial == "faults":
        return faults.measure(service, postgres, told["rounds"])
    raise UsageError(f"there is no trial named {trial}. Take fleet, load, soak or faults.")
