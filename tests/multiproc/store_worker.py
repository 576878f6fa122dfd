"""Processes that share a DirectoryStore; test_store_processes.py runs this file and reads its JSON.

The processes are forked here, from one without threads, so that dozens start at one instant.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import random
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace

from launchkit.configs import TunedRecord
from launchkit.keys import LaunchKey, encode_value
from launchkit.store import DirectoryStore, document

GOLDEN = pathlib.Path(__file__).parent.parent / "data" / "config_document_v1.json"
RECORD = document.parse(GOLDEN.read_bytes(), source=str(GOLDEN)).records[0]


def record_for(n: int) -> TunedRecord:
    return replace(RECORD, key=LaunchKey((encode_value("n", n),), ()))


def in_one_file(count: int) -> list[TunedRecord]:
    found = (record for record in map(record_for, range(10**6)) if record.key.digest[:2] == "7f")
    return [next(found) for _ in range(count)]


def fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a child; it exits with 0 if work returned something true."""
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        code = 0 if work() else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def together(works: list[Callable[[], object]]) -> list[int]:
    """Run all at one instant, and return their exit codes."""
    gate_read, gate_write = os.pipe()

    def gated(work: Callable[[], object]) -> object:
        os.close(gate_write)
        os.read(gate_read, 1)  # returns when the parent closes its end
        return work()

    children = [fork(lambda work=work: gated(work)) for work in works]
    os.close(gate_read)
    os.close(gate_write)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def missing(path: str, expected: list[TunedRecord]) -> list[str]:
    store = DirectoryStore(path)
    return [each.key.text for each in expected if store.get(*each.identity) != each]


def writers(path: str, count: int, each: int) -> dict[str, object]:
    records = in_one_file(count * each)

    def write(mine: list[TunedRecord]) -> bool:
        store = DirectoryStore(path)
        return all(store.put(record) for record in mine) and not store.counters

    shares = [records[first::count] for first in range(count)]
    codes = together([lambda mine=mine: write(mine) for mine in shares])
    return {"codes": codes, "missing": missing(path, records)}


def same_key(path: str, count: int) -> dict[str, object]:
    codes = together([lambda: DirectoryStore(path).put(RECORD)] * count)
    return {"codes": codes, "missing": missing(path, [RECORD])}


def killed_at(path: str, point: str) -> dict[str, object]:
    """Kill a writer at one exact step of its second put, then write again."""
    first, second, third = in_one_file(3)
    DirectoryStore(path).put(first)
    before = point.startswith("before-")
    name = point.split("-")[1]
    original = getattr(os, name)

    def die(*args: object, **options: object) -> object:
        result = None if before else original(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    def write() -> bool:
        setattr(os, name, die)
        return DirectoryStore(path).put(second)

    codes = together([write])
    lost = missing(path, [first])
    stored = DirectoryStore(path).put(third)
    return {"codes": codes, "missing": lost + missing(path, [first, third]), "stored": stored}


def put_for_ever(path: str, records: list[TunedRecord], seed: int, acknowledge: int) -> None:
    rng, store = random.Random(seed), DirectoryStore(path)
    while True:
        index = rng.randrange(len(records))
        changed = replace(records[index], configs=records[index].configs[::-1])
        if store.put(rng.choice([changed, records[index]])):
            os.write(acknowledge, bytes([index]))


def killed_once(path: str, records: list[TunedRecord], rng: random.Random) -> bytes:
    """Kill a writer at a random moment, and return what it had acknowledged."""
    read, write = os.pipe()
    seed = rng.randrange(2**32)
    child = fork(lambda: put_for_ever(path, records, seed, write))
    os.close(write)
    heard = b"".join(os.read(read, 1) for _ in range(rng.randrange(1, 4)))
    for _ in range(rng.randrange(30_000)):
        pass  # a moment of random length, so that kills fall into every step of a put
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while chunk := os.read(read, 4096):
        heard += chunk
    os.close(read)
    return heard


def killed_anywhere(path: str, kills: int, seed: int) -> dict[str, object]:
    """Kill writers at random moments; what a writer acknowledged must be there afterwards."""
    rng, records = random.Random(seed), in_one_file(40)
    acknowledged = {index for _ in range(kills) for index in killed_once(path, records, rng)}
    store = DirectoryStore(path)
    found = {record.key for record in store.records()}
    lost = [index for index in acknowledged if records[index].key not in found]
    return {"acknowledged": len(acknowledged), "missing": lost, "counters": dict(store.counters)}


def readers(path: str, count: int, rounds: int) -> dict[str, object]:
    """Read one record again and again while two processes rewrite its file."""
    first, *others = in_one_file(2 * rounds + 1)
    DirectoryStore(path).put(first)

    def read() -> bool:
        for _ in range(rounds):
            store = DirectoryStore(path)  # a new one: nothing parsed before is remembered
            if store.get(*first.identity) != first or store.counters:
                return False
        return True

    def write(mine: list[TunedRecord]) -> bool:
        return all(DirectoryStore(path).put(record) for record in mine)

    halves = [others[:rounds], others[rounds:]]
    codes = together([lambda mine=mine: write(mine) for mine in halves] + [read] * count)
    return {"codes": codes, "missing": missing(path, [first, *others])}


def corrupt_while_used(path: str, count: int) -> dict[str, object]:
    """Many processes find one corrupt file at once, and store their own record."""
    records = in_one_file(count)
    place = pathlib.Path(path) / "v1" / RECORD.device.slug / RECORD.kernel.slug / "7f.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"{ broken")
    logging.disable()

    def tune(record: TunedRecord) -> bool:
        store = DirectoryStore(path)
        store.get(*record.identity)
        return store.put(record)

    codes = together([lambda record=record: tune(record) for record in records])
    aside = [each.read_bytes().decode() for each in place.parent.glob("*.bad-*")]
    return {"codes": codes, "missing": missing(path, records), "aside": aside}


if __name__ == "__main__":
    scene, place, *numbers = sys.argv[1:]
    values = [int(each) if each.isdigit() else each for each in numbers]
    sys.stdout.write(json.dumps(globals()[scene](place, *values)))
