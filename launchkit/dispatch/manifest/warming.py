"""``warm``: compiles and loads what a manifest lists before it is needed. Above warm_workers.py.

Nothing is launched: Triton compiles for disposable arguments, the code is loaded on the current
device, and the plan is kept, so that a first launch is a fast one. Triton's compiler holds
Python's lock most of the time, so threads would not help: where much is to be compiled, worker
processes fill Triton's disk cache, and this process loads from there.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from launchkit import clock
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.launcher import adopt
from launchkit.dispatch.manifest import warm_workers
from launchkit.dispatch.manifest.document import Entry, Manifest, entry_text, read_manifest
from launchkit.dispatch.manifest.replaying import failure_text, replay
from launchkit.dispatch.manifest.report import ManifestEntry, ManifestReport
from launchkit.errors import CaptureError, NotTunedError, UsageError

_FAULTS = ("no stored config", "failed")

MIN_FOR_WORKERS = 8
"""Fewer entries than this left to compile are compiled here: starting a worker takes seconds."""
_REASON_CHARACTERS = 1000


@dataclass(frozen=True)
class WarmEntry(ManifestEntry):
    """What became of one entry of a manifest.

    ``status``: ``loaded``, from Triton's disk cache; ``compiled``, that too was needed; ``no stored
    config``, a first launch would tune; ``failed``, it would compile, or cannot be launched at all.
    """


@dataclass(frozen=True)
class WarmReport(ManifestReport[WarmEntry]):
    """What ``warm`` did. Printed, it is a summary with every entry that is not ready."""

    seconds: float

    @property
    def ready(self) -> bool:
        """Whether nothing that was recorded would compile or tune at its first launch."""
        return self.without(_FAULTS)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON (docs/json.md)."""
        return {"ready": self.ready, "seconds": self.seconds, **self.tables()}

    def __str__(self) -> str:
        text = self.summary("warm", f" in {self.seconds:.1f} s", _FAULTS)
        if self.with_status(_FAULTS[:1]):
            text += (
                "\nTune what has no config with launchkit tune, into the store that is read here."
            )
        return text


def warm(
    manifest: Manifest | str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[WarmEntry], None] | None = None,
) -> WarmReport:
    """Compile and load every launch of a manifest on the current device, launching nothing.

    Configs are those that the config store knows; nothing is tuned. Afterwards a first launch of
    a warmed kind neither compiles nor tunes, and is a fast one. Imports the modules that the
    manifest names. Large tensors are stood for by small ones, so it may run beside a loaded
    model. LAUNCHKIT_REQUIRE_TUNED makes no difference.

    Args:
        manifest: what ``record_manifest`` wrote, or its path.
        workers: processes that compile where Triton's disk cache lacks much; 0 for none. Default:
            up to 8, by the CPUs. Each has a CUDA context of its own while it works.
        progress: called with each entry that is done.

    Raises:
        MissingManifestError: there is no such file; a FileNotFoundError as well.
        BadDocumentError: the file is no manifest.
        UsageError: ``workers`` is no number of processes, or there is no GPU to warm for.
        CaptureError: a CUDA graph is being captured.
    """
    if workers is not None and (type(workers) is not int or workers < 0):
        raise UsageError(f"workers is {workers!r}. Give a number of processes, 0 or more.")
    found = manifest if isinstance(manifest, Manifest) else read_manifest(manifest)
    if seam.interpreting():
        raise UsageError("TRITON_INTERPRET is set: nothing is compiled. Unset it to warm.")
    seam.require_driver()
    if seam.is_capturing():
        raise CaptureError(None)
    start_ns = clock.now_ns()
    done = tuple(_warmed(found.entries, _worker_count(workers), progress or (lambda entry: None)))
    seconds = (clock.now_ns() - start_ns) / 1e9
    return WarmReport(done, found.unreplayable, found.dropped, seconds)


def _worker_count(asked: int | None) -> int:
    return min(len(os.sched_getaffinity(0)), 8) if asked is None else asked


def _warmed(
    entries: Sequence[Entry], workers: int, progress: Callable[[WarmEntry], None]
) -> Iterator[WarmEntry]:
    for index, entry in enumerate(entries):
        done = _warm_entry(entry)
        progress(done)
        yield done
        left = entries[index + 1 :]
        if done.status == "compiled" and workers > 1 and len(left) >= MIN_FOR_WORKERS:
            # The disk cache lacks one, so probably others: compile them all side by side.
            warm_workers.compile_all(left, min(workers, len(left) // 2))
            workers = 0


def _warm_entry(entry: Entry) -> WarmEntry:
    """Compile and load one entry; what goes wrong is its reason."""
    start_ns = clock.now_ns()
    status, reason = _warm_one(entry)
    seconds = (clock.now_ns() - start_ns) / 1e9
    return WarmEntry(entry["kernel"]["name"], entry_text(entry), status, reason, seconds)


def _warm_one(entry: Entry) -> tuple[str, str | None]:
    with _compilations() as made:
        try:
            found = replay(entry, launched=False)
            adopt(found.kernel).warm(found.grid or (1,), found.args, found.kwargs)
        except NotTunedError as error:
            found, known = error.fields["reason"], error.fields["explanation"]
            return "no stored config", f"{found}\n{known}"[:_REASON_CHARACTERS]
        except Exception as error:  # noqa: BLE001 - of the compiler, of a heuristic, of the driver
            return "failed", failure_text(error, _REASON_CHARACTERS)
    return ("compiled" if made else "loaded"), None


@contextlib.contextmanager
def _compilations() -> Iterator[list[str]]:
    """Yield a list of the names of what this thread compiles inside, not of what Triton's disk
    cache had."""
    compiled: list[str] = []
    thread, knobs = threading.get_ident(), seam.knobs.compilation
    before = knobs.listener

    def listener(**given: Any) -> None:
        if threading.get_ident() == thread and not given["cache_hit"]:
            compiled.append(str(getattr(given["src"], "name", "?")))
        if before is not None:
            before(**given)

    knobs.listener = listener
    try:
        yield compiled
    finally:
        if knobs.listener is listener:
            knobs.listener = before
