"""One input of ``launchkit bench fuzz`` against its reader, and what must hold for what it takes.

Imports no torch: a worker's memory limit is that of the readers.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from launchkit import clock, jsonio
from launchkit.benchmarks.fuzz.targets import TARGETS, Files
from launchkit.configs import TunedRecord
from launchkit.printing import printable
from launchkit.store import DirectoryStore, document

_REASONS = 25
"""Reasons of a target that a result names; the rest is counted together."""
_SHOWN = 5
_STORED_EVERY = 16
"""Of the inputs that were taken, one in so many is put into a store of files, which is slow."""
_VARYING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|/\S*|\d[\w.+\-]*")


@dataclass
class Counts:
    """What some inputs of one target came to, as another process can read it."""

    target: str
    inputs: int = 0
    taken: int = 0
    """Inputs of which a record was taken."""
    records: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Reasons, without what varies in them; an input may have several."""
    failures: list[dict[str, str]] = field(default_factory=list)
    slowest_ms: float = 0.0

    def add(self, other: Counts) -> None:
        """Add other inputs of the same target."""
        self.inputs += other.inputs
        self.taken += other.taken
        self.records += other.records
        self.refused += other.refused
        self.failures += other.failures
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)

    def as_dict(self) -> dict[str, Any]:
        """Return the row of a result."""
        named = dict(self.refused.most_common(_REASONS))
        others = sum(self.refused.values()) - sum(named.values())
        return {
            "target": self.target,
            "inputs": self.inputs,
            "accepted": self.taken,
            "records": self.records,
            "refused": named | ({"other reasons": others} if others else {}),
            "slowest_ms": round(self.slowest_ms, 1),
            "failures": len(self.failures),
            "first_failures": self.failures[:_SHOWN],
        }


@contextlib.contextmanager
def unwatched() -> Iterator[list[str]]:
    """Watch nothing: for a process that is more than a worker."""
    yield []


def run_one(
    target: str,
    seed: str,
    sandbox: Path,
    counts: Counts,
    watch: Callable[[], AbstractContextManager[list[str]]] = unwatched,
) -> None:
    """Make the input of ``seed``, let the target read it in ``sandbox``, and count what it did.

    ``sandbox`` must be empty, and is left so. ``watch`` is entered for the reading, and yields
    what it saw the reader do.
    """
    rng = Random(seed)
    files = written(TARGETS[target].make(rng), sandbox / "in")
    counts.inputs += 1
    seen: list[str] = []
    later: list[str] = []
    try:
        start_ns = clock.now_ns()
        with watch() as seen:
            records, reasons = TARGETS[target].take(sandbox / "in")
        counts.slowest_ms = max(counts.slowest_ms, (clock.now_ns() - start_ns) / 1e6)
        check_files(sandbox, files if target != "store" else None)
        rules = TARGETS[target].check
        (rules or check_records)(records)
        if rules is None and records and rng.randrange(_STORED_EVERY) == 0:
            with watch() as later:
                check_stored(records, sandbox)
        counts.taken += bool(records)
        counts.records += len(records)
        counts.refused.update(_printable(_VARYING.sub("…", reason))[:120] for reason in reasons)
    except Exception as error:  # noqa: BLE001 - whatever a reader lets through is what is looked for
        shown = traceback.format_exception_only(error)[-1].strip()
        counts.failures.append({"seed": seed, "error": _printable(shown)})
    if done := [_printable(event) for event in (*seen, *later)]:
        counts.failures.append({"seed": seed, "error": f"it did: {'; '.join(done[:3])}"})
    empty(sandbox)


def written(files: Files, folder: Path) -> dict[Path, bytes]:
    """Write an input below ``folder``; a name that no file can have is left out."""
    made = {}
    for name, data in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except (OSError, ValueError):
            folder.mkdir(exist_ok=True)
            continue
        made[path] = data
    return made


def check_files(sandbox: Path, files: dict[Path, bytes] | None) -> None:
    """Raise AssertionError unless reading left ``files`` as they were and made none.

    None: of a store, which may rename a broken file and lock its folder, but leave it never.
    """
    found = [path for path in sandbox.rglob("*") if not path.is_dir()]
    if files is None:
        assert all((sandbox / "in" / "v1") in path.parents for path in found), found
    else:
        assert {path: path.read_bytes() for path in found} == files, "files were changed"


def check_records(records: Sequence[TunedRecord]) -> None:
    """Raise AssertionError for a record that may not be taken: rules written apart from the code.

    It is the same after a document, its key's digest is that of its values, its choice ran, and
    its times are times.
    """
    for record in records:
        whole = document.ConfigDocument(record.kernel, record.device, (record,))
        again = document.parse(document.dump(whole), source="again").records
        assert [replace(each, pinned=record.pinned) for each in again] == [record], (
            "it is another when read"
        )
        values = [[each.name, each.type, each.value] for each in record.key.values]
        spelled = jsonio.dumps_compact({"dtypes": [list(d) for d in record.key.dtypes],
                                        "values": values})  # fmt: skip
        assert record.key.digest == hashlib.sha256(spelled).hexdigest(), "its digest is another"
        assert re.fullmatch(r"[0-9a-f]{64}", record.kernel.digest)
        chosen = [
            each for each in record.configs if each.config == record.chosen and not each.error
        ]
        assert chosen, "its choice did not run"
        for tuned in record.configs:
            times = [t for t in (tuned.p20_us, tuned.median_us, tuned.p80_us) if t is not None]
            assert times == sorted(times), "times out of order"
            assert all(0 < time < math.inf for time in times), "a time that is none"
            untimed = tuned.error is not None or tuned.method.startswith("imported:")
            assert tuned.median_us is not None or untimed, "a result of nothing"


def check_stored(records: Sequence[TunedRecord], sandbox: Path) -> None:
    """Raise AssertionError unless a store of files gives the records back, and leaves its place."""
    place = sandbox / "store"
    store = DirectoryStore(place)
    before = {path for path in sandbox.rglob("*") if place not in path.parents}
    for record in records[:2]:
        kept = store.put(record)
        assert kept == record.toolchain.known, "a record was not stored"
        found = DirectoryStore(place).get(*record.identity) if kept else record
        assert isinstance(found, TunedRecord), found
        assert found.chosen == record.chosen
    after = {path for path in sandbox.rglob("*") if place not in path.parents and path != place}
    assert after == before, "something was written outside the store"


def empty(folder: Path) -> None:
    """Remove everything in a folder."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _printable(text: str) -> str:
    return printable(text)[:300]
