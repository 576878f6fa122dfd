"""``launchkit bench store``: what a config store costs as its keys become many."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from launchkit import clock, jsonio
from launchkit.benchmarks import machine
from launchkit.benchmarks.store import records as store_records
from launchkit.configs import TunedRecord
from launchkit.errors import UsageError
from launchkit.store import DirectoryStore

KEYS = (100, 10_000, 100_000)
SINGLE_PUTS = 32
_BATCH = 4096


def measure(
    keys: Sequence[int] = KEYS,
    lookups: int = 1000,
    advance: Callable[[int], None] = lambda stored: None,
    seed: int = 1,
) -> dict[str, Any]:
    """Store keys of one kernel in a directory, look them up in a new process; as JSON values.

    Args:
        keys: how many keys a store has, for each row; at least 64.
        lookups: of each kind.
        advance: called with a number of keys that were stored, for progress.
        seed: of the order of lookups.

    Raises:
        UsageError: too few keys, or a process that could not look them up.
    """
    if not keys or min(keys) < 64:
        raise UsageError("the store benchmark needs at least 64 keys. Give more.")
    facts = machine.facts()
    rows = [_row(count, min(lookups, count), advance, seed) for count in sorted(set(keys))]
    return {
        "mode": "store",
        "machine": facts,
        "configs_per_key": store_records.CONFIGS,
        "lookups": lookups,
        "rows": rows,
    }


def _row(count: int, lookups: int, advance: Callable[[int], None], seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="launchkit-") as place:
        store = DirectoryStore(place)
        start_ns = clock.now_ns()
        refused = store.put_all(_counted(store_records.records(0, count), advance))
        put_all_s = (clock.now_ns() - start_ns) / 1e9
        if refused:
            raise UsageError(f"{len(refused)} records could not be stored. Make room in {place}.")
        sizes = [path.stat().st_size for path in store.paths()]
        found = _in_a_new_process(place, count, lookups, seed)
        return {
            "keys": count,
            "files": len(sizes),
            "stored_bytes": sum(sizes),
            "largest_file_bytes": max(sizes),
            "put_all_us_per_key": round(put_all_s * 1e6 / count, 2),
            "put_one_median_us": round(median(_single_puts(store, count)), 1),
            **found,
        }


def _counted(
    records: Iterator[TunedRecord], advance: Callable[[int], None]
) -> Iterator[TunedRecord]:
    for index, record in enumerate(records):
        if index % _BATCH == _BATCH - 1:
            advance(_BATCH)
        yield record


def _single_puts(store: DirectoryStore, count: int) -> Iterator[float]:
    """Yield the µs of putting a new key, one by one, into the store that has ``count``."""
    for record in store_records.records(10 * count, 10 * count + SINGLE_PUTS):
        start_ns = clock.now_ns()
        store.put(record)
        yield (clock.now_ns() - start_ns) / 1e3


def _in_a_new_process(place: str, count: int, lookups: int, seed: int) -> dict[str, Any]:
    arguments = [place, str(count), str(lookups), str(seed)]
    command = [sys.executable, "-m", "launchkit.benchmarks.store.records", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise UsageError(f"looking keys up failed: {reason}. Mend what it names.")
    found = jsonio.loads(done.stdout, source="the lookups", limit_bytes=10**6)
    assert isinstance(found, dict)
    return found
