"""Records that differ in what merging, pinning and collecting look at."""

from __future__ import annotations

import os
import pathlib
from dataclasses import replace

from stored import record_for

from launchkit.configs import IMPORTED, TunedConfig, TunedRecord, identify
from launchkit.keys import Toolchain
from launchkit.store import ConfigStore, DirectoryStore

DAY_S = 86_400.0


def config(block: int):
    """The identity of a config with this block."""
    return identify({"BLOCK": block, "num_ctas": 1, "num_stages": 3, "num_warps": 4})


def timed(block: int, median_us: float, method: str = "eager") -> TunedConfig:
    """A result."""
    return TunedConfig.measured(config(block), median_us, reps=10, method=method)


def tuned(
    n: int, *results: TunedConfig, chosen: int, triton: str = "3.9.0", **changes
) -> TunedRecord:
    """The record of key ``n`` with these results, of which that with block ``chosen`` won."""
    return replace(
        record_for(n),
        toolchain=Toolchain(triton),
        configs=results,
        chosen=config(chosen),
        **changes,
    )


def one(n: int, block: int, median_us: float, method: str = "eager", **changes) -> TunedRecord:
    """A record with one result."""
    return tuned(n, timed(block, median_us, method), chosen=block, **changes)


def untimed(n: int, block: int) -> TunedRecord:
    """A record that another program's file gave, without a time."""
    winner = TunedConfig.imported(config(block), method=f"{IMPORTED}test")
    return tuned(n, winner, chosen=block)


def winners(store: ConfigStore) -> dict[str, str]:
    """The chosen config of each record, by key."""
    return {record.key.text: record.winner.text for record in store.records()}


def filled(path: pathlib.Path, *records: TunedRecord) -> DirectoryStore:
    """A directory with these records."""
    store = DirectoryStore(path)
    assert store.put_all(records) == []
    return store


def age(store: DirectoryStore, days: float, now_s: float) -> None:
    """Make every file of a store look as if it was written ``days`` ago."""
    for path in store.path.rglob("*"):
        if path.is_file():
            os.utime(path, (now_s - days * DAY_S,) * 2)


def content(path: pathlib.Path) -> dict[str, bytes]:
    """Every file below a path, by its name there; locks left out."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != ".lock"
    }
