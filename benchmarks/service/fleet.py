"""``launchkit bench service --fleet``: does a fleet that misses one key tune it once?"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from statistics import median
from typing import Any

from launchkit import jsonio
from launchkit.benchmarks.service.servers import Service
from launchkit.errors import UsageError

TUNE_S, LEASE_S = 1.0, 5
"""How long tuning takes; how long a killed holder keeps its lease. The client's default is 30."""
TIMEOUT_MS = 2000
"""A client's deadline, four times the default: here all hosts of the fleet share the cores of one
machine with the servers, and a client that has waited too long tunes without the service."""
_LIMIT_BYTES = 64 * 2**20
_KILLED = -9
_TIMEOUT_S = 600.0


def measure(service: Service, hosts: int, first: int = 0, tune_s: float = TUNE_S) -> dict[str, Any]:
    """Let hosts miss one key at once, then several keys, then kill the one that tunes.

    Args:
        service: its replicas; hosts are shared out evenly.
        hosts: processes.
        first: number of the first key that nobody has tuned.
        tune_s: how long tuning takes.

    Returns JSON values: a row for each scene. Raises UsageError where the hosts could not run.
    """
    keys = max(2, hosts // 10)
    waiting = max(2, hosts // 4)
    rows = [
        together(service, hosts, 1, first, tune_s),
        together(service, hosts, keys, first + 1, tune_s),
        holder_killed(service, waiting, first + 1 + keys, tune_s),
    ]
    return {
        "replicas": len(service.replicas),
        "timeout_ms": TIMEOUT_MS,
        "tune_s": tune_s,
        "rows": rows,
        "ok": all(row["ok"] for row in rows),
    }


def together(
    service: Service, hosts: int, keys: int, first: int, tune_s: float = TUNE_S
) -> dict[str, Any]:
    """Let hosts miss at one instant, each one of ``keys`` keys; returns a row."""
    seen = play(service, "together", hosts=hosts, keys=keys, first=first, tune_s=tune_s)
    tuned = Counter(each["key"] for each in seen["tuned"])
    row = _row("all miss at once", seen, hosts, keys)
    row["wall_s"] = seen["wall_s"]
    right = seen["codes"] == [0] * hosts and tuned == dict.fromkeys(range(keys), 1)
    return row | {"ok": right and _all_alike(seen, hosts)}


def holder_killed(
    service: Service, hosts: int, first: int, tune_s: float = TUNE_S, lease_s: int = LEASE_S
) -> dict[str, Any]:
    """Kill the host that tunes while ``hosts`` others wait; returns a row."""
    plan = {"hosts": hosts, "first": first, "tune_s": tune_s}
    seen = play(service, "holder_killed", lease_s=lease_s, **plan)
    row = _row("the one that tunes is killed", seen, hosts, 1)
    row["lease_s"] = lease_s
    row["ended_early"] = seen["ended_early"]
    row["taken_over_after_s"] = seen["taken_over_after_s"]
    right = seen["codes"] == [_KILLED] + [0] * hosts and not seen["ended_early"]
    return row | {"ok": right and len(seen["tuned"]) == 2 and _all_alike(seen, hosts)}


def play(service: Service, scene: str, *, lease_s: int = LEASE_S, **plan: Any) -> dict[str, Any]:
    """Run one scene of ``fleet_process`` over the replicas, and return what it saw."""
    with tempfile.TemporaryDirectory(prefix="launchkit-") as folder:
        told = {"scene": scene, "urls": service.urls, "folder": folder, **plan}
        command = [sys.executable, "-m", "launchkit.benchmarks.service.fleet_process"]
        done = subprocess.run(
            [*command, jsonio.dumps_compact(told).decode()],
            env={**os.environ, **_variables(service, lease_s)},
            capture_output=True, check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    if done.returncode:
        reason = done.stderr.decode(errors="replace")[-2000:]
        raise UsageError(f"the hosts could not run: {reason}. Mend what it names.")
    seen = jsonio.loads(done.stdout, source="the hosts", limit_bytes=_LIMIT_BYTES)
    assert isinstance(seen, dict)
    return {**seen, "warnings": done.stderr.decode(errors="replace")}


def _variables(service: Service, lease_s: float) -> dict[str, str]:
    return {
        "LAUNCHKIT_SERVICE_TOKEN": service.token("write"),
        "LAUNCHKIT_SERVICE_LEASE_S": str(lease_s),
        "LAUNCHKIT_SERVICE_TIMEOUT_MS": str(TIMEOUT_MS),
    }


def _row(scene: str, seen: dict[str, Any], hosts: int, keys: int) -> dict[str, Any]:
    waited_s = [each["waited_s"] for each in seen["hosts"] if not each["tuned"]] or [0.0]
    return {
        "scene": scene,
        "hosts": hosts,
        "keys": keys,
        "tuned": len(seen["tuned"]),
        "got_the_result": sum(1 for each in seen["hosts"] if each["result"]),
        "outcomes": dict(Counter(each["outcome"] for each in seen["hosts"])),
        "waited_median_s": round(median(waited_s), 3),
        "waited_max_s": max(waited_s),
        "with_torch": seen["torch"],
        "warnings": len(seen["warnings"].splitlines()),
    }


def _all_alike(seen: dict[str, Any], hosts: int) -> bool:
    """Tell whether every host has the result of the one that tuned its key."""
    results: dict[int, set[str | None]] = {}
    for each in seen["hosts"]:
        results.setdefault(each["key"], set()).add(each["result"])
    alike = all(len(each) == 1 and None not in each for each in results.values())
    return alike and len(seen["hosts"]) == hosts
