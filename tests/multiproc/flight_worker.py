"""Processes that would tune the same key; test_flights.py runs this file and reads its JSON.

Tuning is a stand-in: a line in a file, and a moment of sleep.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable

from store_worker import RECORD, fork, missing, record_for, together

from launchkit.configs import TunedRecord
from launchkit.store import DirectoryStore, Miss, flights


def tune(record: TunedRecord, log: str) -> TunedRecord:
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.05)
    return record


def started(path: str, log: str, record: TunedRecord = RECORD) -> bool:
    """What a launch does whose config is not known."""
    store = DirectoryStore(path)
    if store.get(*record.identity) == record:
        return True
    with flights.flight(store, record.identity, 60.0):
        if isinstance(store.get(*record.identity), Miss):
            store.put(tune(record, log))
    return store.get(*record.identity) == record


def lines(log: str) -> list[int]:
    file = pathlib.Path(log)
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def left(path: str) -> list[str]:
    return [each.name for each in (pathlib.Path(path) / flights.FOLDER).iterdir()]


def starters(path: str, count: int) -> dict[str, object]:
    """All start at one instant on one cold key."""
    log = f"{path}.log"
    codes = together([lambda: started(path, log)] * count)
    return {"codes": codes, "tuned": len(lines(log)), "missing": missing(path, [RECORD]),
            "left": left(path)}  # fmt: skip


def of_keys(path: str, count: int, keys: int) -> dict[str, object]:
    """As many keys at once: each is tuned once, and none waits for another's."""
    records = [record_for(n) for n in range(keys)]
    works: list[Callable[[], object]] = [
        lambda n=n: started(path, f"{path}.log{n % keys}", records[n % keys]) for n in range(count)
    ]
    codes = together(works)
    tuned = [len(lines(f"{path}.log{n}")) for n in range(keys)]
    return {"codes": codes, "tuned": tuned, "missing": missing(path, records), "left": left(path)}


def holder_killed(path: str, waiters: int) -> dict[str, object]:
    """The holder is killed while it tunes and others wait."""
    log, before = f"{path}.log", record_for(1)
    DirectoryStore(path).put(before)
    read, write = os.pipe()

    def hold() -> None:
        with flights.flight(DirectoryStore(path), RECORD.identity, 60.0):
            tune(RECORD, log)
            os.write(write, b"x")
            time.sleep(600)

    holder = fork(hold)
    os.read(read, 1)
    others = [fork(lambda: started(path, log)) for _ in range(waiters)]
    time.sleep(0.3)
    waiting = [os.waitpid(other, os.WNOHANG)[0] for other in others]
    os.kill(holder, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in (holder, *others)]
    return {"codes": codes, "ended_early": waiting, "tuned": len(lines(log)),
            "missing": missing(path, [before, RECORD]), "left": left(path)}  # fmt: skip


def child_of_holder(path: str) -> dict[str, object]:
    """A holder forks a child that lives on: what the child inherited must not keep the key."""
    store, free = DirectoryStore(path), []

    def hold() -> None:
        with flights.flight(store, RECORD.identity, 60.0):
            child = fork(lambda: time.sleep(600))
            os.write(write, str(child).encode())
            time.sleep(600)

    read, write = os.pipe()
    holder = fork(hold)
    child = int(os.read(read, 20))
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with flights.flight(store, RECORD.identity, 5.0) as outcome:
        free.append(outcome)
    os.kill(child, signal.SIGKILL)
    return {"outcomes": free, "left": left(path)}


if __name__ == "__main__":
    scene, place, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(globals()[scene](place, *map(int, numbers))))
