"""Hosts of a fleet that miss one key at once, as processes of their own. No torch.

``python -m launchkit.benchmarks.service.fleet_process PLAN`` forks them, from one process without
threads, and prints what each saw as JSON. Tuning is a stand-in: a line in a file, then some sleep.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from launchkit import clock, jsonio, settings
from launchkit.benchmarks.service import records
from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.service import signing
from launchkit.store import ConfigStore, Miss, flights, open_store

_WAIT_S = 300.0
_LIMIT_BYTES = 2**20


class Scene:
    """What the hosts share: where the services are, which key they want, and who tuned it."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.urls: list[str] = plan["urls"]
        self.hosts: int = plan["hosts"]
        self.keys: int = plan.get("keys", 1)
        self.first: int = plan["first"]
        self.tune_s: float = plan["tune_s"]
        self.folder = Path(plan["folder"])

    def wanted(self, number: int) -> TunedRecord:
        """Return the record of the key that this host wants, as nobody has tuned it."""
        return records.record(self.first + number % self.keys)

    def open(self, number: int) -> ConfigStore:
        """Return a host's store, for its own process: what it tunes itself, then the service."""
        os.environ["XDG_CACHE_HOME"] = str(self.folder / f"cache-{number}")
        settings.reload()
        return open_store(["memory:", self.urls[number % len(self.urls)]])

    def tune(self, number: int) -> TunedRecord:
        """Stand in for tuning; the times are this host's own, so that its result is known."""
        moment_s = clock.utc_now().timestamp()
        self._tell("tuned", {"key": number % self.keys, "host": number, "moment_s": moment_s})
        time.sleep(self.tune_s)
        chosen = identify({"BLOCK_M": 32, "BLOCK_N": 64, "num_stages": 3, "num_warps": 4})
        timed = TunedConfig.measured(
            chosen, 10.0 + random.SystemRandom().random(), reps=100, method="eager"
        )
        return replace(self.wanted(number), configs=(timed,), chosen=chosen)

    def tuned(self) -> list[dict[str, Any]]:
        """Return the tunings that were begun: key, host, moment."""
        return self._told("tuned")

    def say(self, said: dict[str, Any]) -> bool:
        """Keep what a host saw."""
        self._tell("said", said)
        return True

    def said(self) -> list[dict[str, Any]]:
        """Return what each host saw, by its number."""
        return sorted(self._told("said"), key=lambda each: each["host"])

    def _tell(self, what: str, line: dict[str, Any]) -> None:
        with open(self.folder / what, "ab", buffering=0) as file:
            file.write(jsonio.dumps_compact(line) + b"\n")

    def _told(self, what: str) -> list[Any]:
        path = self.folder / what
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [jsonio.loads(line, source=what, limit_bytes=_LIMIT_BYTES) for line in lines]


def start(scene: Scene, number: int) -> dict[str, Any]:
    """Do what a launch does whose config is not known, and return what came of it."""
    store, identity = scene.open(number), scene.wanted(number).identity
    start_ns = clock.now_ns()
    tuned, outcome = False, "found"
    if isinstance(store.get(*identity), Miss):
        with flights.flight(store, identity, _WAIT_S) as outcome:
            if isinstance(store.get(*identity), Miss):
                store.put(scene.tune(number))
                tuned = True
    got = store.get(*identity)
    waited_s = (clock.now_ns() - start_ns) / 1e9
    result = None if isinstance(got, Miss) else signing.etag(signing.body(got))
    return {
        "host": number,
        "key": number % scene.keys,
        "tuned": tuned,
        "outcome": outcome,
        "waited_s": round(waited_s, 3),
        "result": result,
        "missed": got.reason if isinstance(got, Miss) else None,
    }


def _host(scene: Scene, number: int) -> bool:
    return scene.say(start(scene, number))


def together(scene: Scene) -> dict[str, Any]:
    """All hosts miss at one instant."""
    with _gate() as open_gate:
        children = [_fork(partial(_host, scene, n)) for n in range(scene.hosts)]
        start_ns = clock.now_ns()
        open_gate()
        codes = [_ended(child) for child in children]
        wall_s = round((clock.now_ns() - start_ns) / 1e9, 3)
    return {"codes": codes, "wall_s": wall_s, "hosts": scene.said(), "tuned": scene.tuned()}


def holder_killed(scene: Scene) -> dict[str, Any]:
    """The host that tunes is killed while the others wait."""
    read, write = os.pipe()

    def hold() -> object:
        with flights.flight(scene.open(0), scene.wanted(0).identity, _WAIT_S):
            scene.tune(0)
            os.write(write, b"x")
            time.sleep(_WAIT_S)
        return False

    holder = _fork(hold)
    os.close(write)
    if not os.read(read, 1):
        raise SystemExit("the host that was to be killed has ended by itself")
    numbers = range(1, scene.hosts + 1)
    others = [_fork(partial(_host, scene, n)) for n in numbers]
    time.sleep(1.0)
    early = sum(1 for other in others if os.waitpid(other, os.WNOHANG)[0])
    os.kill(holder, signal.SIGKILL)
    killed_s = clock.utc_now().timestamp()
    codes = [_ended(child) for child in (holder, *others)]
    again = [each["moment_s"] - killed_s for each in scene.tuned() if each["host"]]
    return {
        "codes": codes,
        "ended_early": early,
        "taken_over_after_s": [round(each_s, 3) for each_s in again],
        "hosts": scene.said(),
        "tuned": scene.tuned(),
    }


_gates: list[int] = []


@contextlib.contextmanager
def _gate() -> Iterator[Callable[[], None]]:
    """Give what lets all children of the block run at once."""
    read, write = os.pipe()
    _gates[:] = [read, write]
    yield lambda: os.close(write)
    os.close(read)
    _gates.clear()


def _fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a child; its exit code is 0 if it returned something true."""
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        if _gates:
            os.close(_gates[1])
            os.read(_gates[0], 1)
        code = 0 if work() else 1
        # What ends a process in order; a service's client sends what it still has.
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - a child must not return into the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


SCENES = {"together": together, "holder_killed": holder_killed}


def main(text: str) -> None:
    """Play the scene that ``text`` says, and print what was seen."""
    logging.basicConfig(level=logging.WARNING)
    plan = jsonio.loads(text.encode(), source="the plan", limit_bytes=_LIMIT_BYTES)
    assert isinstance(plan, dict)
    scene = Scene(plan)
    # All that a client imports, before there are hundreds of processes that would do it at once.
    scene.open(-1)
    seen = SCENES[plan["scene"]](scene)
    seen["torch"] = any(name in sys.modules for name in ("torch", "triton"))
    sys.stdout.buffer.write(jsonio.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
