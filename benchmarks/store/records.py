"""Tuned records for the store benchmark, and what a process that looks them up sees. No torch.

``python -m launchkit.benchmarks.store.records DIRECTORY KEYS LOOKUPS SEED`` is such a process.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from launchkit import clock, jsonio
from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store import DirectoryStore, Miss

_KERNEL = KernelId("store_scale_kernel", "5a" * 32)
_DEVICE = DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 140)
_TOOLCHAIN = Toolchain("3.9.0")
_DTYPES = tuple((name, "torch.float16") for name in ("a_ptr", "b_ptr", "c_ptr"))
CONFIGS = 4
"""In each record."""


def record(n: int) -> TunedRecord:
    """Return the record of the n-th key: a matrix product's three sizes, with ``CONFIGS`` configs."""
    configs = tuple(
        TunedConfig.measured(
            identify({"BLOCK_M": 32 * (i + 1), "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}),
            (10.0 + i + n % 7, 9.5 + i + n % 7, 11.0 + i + n % 7),
            reps=100,
            method="eager",
        )
        for i in range(CONFIGS)
    )
    return TunedRecord(_KERNEL, _DEVICE, _TOOLCHAIN, _key(n), configs, configs[0].config)


def _key(n: int) -> LaunchKey:
    return LaunchKey(
        tuple(encode_value(name, n * step) for name, step in (("M", 1), ("N", 2), ("K", 3))),
        (*_DTYPES, ("M", None), ("N", None), ("K", None)),
    )


def records(first: int, last: int) -> Iterator[TunedRecord]:
    """Yield the records of keys ``first`` to ``last - 1``, in the order in which a store lists them."""
    return map(record, sorted(range(first, last), key=lambda n: _key(n).digest))


def resident_bytes() -> int:
    """Return the memory of this process that is in use and its own."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return (int(pages[1]) - int(pages[2])) * 4096


def look_up(directory: str, keys: int, lookups: int, seed: int) -> dict[str, Any]:
    """Look keys up in a store of ``keys`` as a new process does; returns times and memory.

    ``first``: keys of files that were not read before, one a file; ``other``: of ``lookups``
    other keys, whose files were; ``again``: keys that were asked for just before; ``absent``:
    keys that are not stored. At last every key is asked for once, for the memory that it takes.
    """
    rng = random.Random(seed)
    before_bytes = resident_bytes()
    opening_us = [_opening_us(directory) for _ in range(5)]
    store = DirectoryStore(directory)
    order = rng.sample(range(keys), keys)
    by_file = {_key(n).digest[:2]: n for n in order}
    firsts = set(by_file.values())
    others = [n for n in order if n not in firsts][:lookups] or order
    found: dict[str, Any] = {"open_us": round(median(opening_us), 1)}
    found |= _timed("first", store, list(by_file.values()))
    found |= _timed("other", store, others)
    found |= _timed("again", store, others[-64:] * 8)
    found |= _timed("absent", store, range(keys, keys + lookups), expected=False)
    found["memory_bytes"] = resident_bytes() - before_bytes
    for n in order:
        _get(store, n)
    found["memory_after_all_bytes"] = resident_bytes() - before_bytes
    return found


def _opening_us(directory: str) -> float:
    start_ns = clock.now_ns()
    DirectoryStore(directory)
    return (clock.now_ns() - start_ns) / 1e3


def _get(store: DirectoryStore, n: int) -> TunedRecord | Miss:
    return store.get(*record(n).identity)


def _timed(
    what: str, store: DirectoryStore, wanted: Sequence[int], expected: bool = True
) -> dict[str, float]:
    times_us = []
    for n in wanted:
        made = record(n)
        start_ns = clock.now_ns()
        got = store.get(*made.identity)
        times_us.append((clock.now_ns() - start_ns) / 1e3)
        if (got == made) is not expected:
            raise RuntimeError(f"key {n}: {got!r} was found")
    times_us.sort()
    return {
        f"get_{what}_median_us": round(median(times_us), 2),
        f"get_{what}_p95_us": round(times_us[len(times_us) * 95 // 100], 2),
    }


if __name__ == "__main__":
    place, *numbers = sys.argv[1:]
    sys.stdout.buffer.write(jsonio.dumps(look_up(place, *map(int, numbers))))
