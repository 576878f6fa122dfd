"""``launchkit tune``: a manifest, tuned in a worker process per GPU. Above workers.py.

The work of one entry is in tuning_worker.py. A store keeps each result when it is there, so a
killed run loses at most what was being measured, and the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from launchkit import settings
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.manifest.document import Manifest, entry_text
from launchkit.dispatch.manifest.report import ManifestEntry, ManifestReport
from launchkit.dispatch.manifest.warm_workers import same_triton
from launchkit.dispatch.manifest.workers import Role, Step, run_jobs
from launchkit.errors import UsageError
from launchkit.store import MemoryStore, open_store

_FAULTS = ("failed",)

# A worker tunes for its own GPU and Triton, and draws no bar over the parent's.
_WORKER_SETTINGS = {
    "LAUNCHKIT_DEVICE_POLICY": "exact",
    "LAUNCHKIT_TOOLCHAIN_POLICY": "exact",
    "LAUNCHKIT_PROGRESS": "0",
    "LAUNCHKIT_MANIFEST": "",
    "LAUNCHKIT_DISABLE": "0",
}


@dataclass(frozen=True)
class TuneEntry(ManifestEntry):
    """What became of one entry of a manifest.

    ``status``: ``tuned``; ``stored``, its config was known without measuring; ``nothing to tune``,
    the kernel has no configs to choose from; ``failed``, for ``reason``.
    """

    gpu: str
    """The kind of GPU that it was tuned for."""


@dataclass(frozen=True)
class TuneReport(ManifestReport[TuneEntry]):
    """What ``tune_manifest`` did. Printed, it is a summary with every failure."""

    store: str

    @property
    def complete(self) -> bool:
        """Whether the store has a config for all that was recorded."""
        return self.without(_FAULTS)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON (docs/json.md)."""
        return {"complete": self.complete, "store": self.store, **self.tables()}

    def __str__(self) -> str:
        return self.summary("tune", f"; {self.store}", _FAULTS)


def tune_manifest(
    manifest: Manifest,
    *,
    store: str | None = None,
    gpus: Sequence[str] | None = None,
    make: str | None = None,
    progress: Callable[[TuneEntry], None] = lambda entry: None,
    prepare: Sequence[Step] = (),
) -> TuneReport:
    """Tune every entry of a manifest that the store does not have, on disposable arguments.

    Args:
        store: the place where results are kept and looked for; None is the default place.
        gpus: GPUs to tune on, as CUDA_VISIBLE_DEVICES names them; None: all that are visible.
            Entries are shared out among GPUs of one kind, and tuned on each kind once.
        make: ``module:function`` that fills in arguments, as ``replaying.MakeArguments``.
        progress: called with each entry that is done.
        prepare: what each worker calls before it works.

    Raises:
        UsageError: there is no GPU to measure on, a GPU that is not there, or a store that keeps
            nothing.
        StoreError: the store's place cannot be opened.
    """
    _require_measuring()
    kept_in = _require_lasting(store)
    kinds = gpu_kinds(gpus)
    options = {"store": store, "make": make}
    role = Role(f"{_WORKER}:make_handler", options, (*same_triton(), *prepare))
    done: list[TuneEntry] = []
    for kind, names in kinds.items():
        done += _tune_on(manifest, kind, names, role, progress)
    return TuneReport(tuple(done), manifest.unreplayable, manifest.dropped, kept_in)


_WORKER = "launchkit.dispatch.manifest.tuning_worker"


def _require_measuring() -> None:
    if seam.interpreting():
        raise UsageError("TRITON_INTERPRET is set: nothing is compiled. Unset it to tune.")
    seam.require_driver()
    if not seam.executes():
        raise UsageError(
            "host-only mode executes and measures nothing, so there is nothing to tune by. Run it "
            "on a machine with the GPU that serves."
        )


def _require_lasting(place: str | None) -> str:
    store = open_store(place)
    if store.read_only or isinstance(store, MemoryStore):
        raise UsageError(
            f"the {store.describe()} keeps nothing that is tuned. Give a directory or a service "
            "that can be written with --store or LAUNCHKIT_STORE."
        )
    return store.describe()


def gpu_kinds(wanted: Sequence[str] | None) -> Mapping[str, list[str]]:
    """Return the names of the GPUs to tune on, as CUDA_VISIBLE_DEVICES has them, by their kind.

    Raises:
        UsageError: one that is wanted is not visible.
    """
    if not seam.device_source().tensors_on_cuda:
        return {"host-only": list(wanted or ["0"])}
    count = torch.cuda.device_count()
    visible = settings.foreign_variables(["CUDA_VISIBLE_DEVICES"]).get("CUDA_VISIBLE_DEVICES")
    names = [each.strip() for each in visible.split(",")] if visible else None
    names = list(map(str, range(count))) if names is None else names[:count]
    unknown = [each for each in wanted or () if each not in names]
    if unknown or not names:
        raise UsageError(
            f"no GPU {', '.join(unknown) or 'at all'} is visible; there are: "
            f"{', '.join(names) or 'none'}. Give names as in CUDA_VISIBLE_DEVICES."
        )
    kinds: dict[str, list[str]] = {}
    for ordinal, name in enumerate(names):
        if wanted is None or name in wanted:
            facts = seam.device_identity(ordinal)
            kinds.setdefault(f"{facts.name} {facts.arch} {facts.memory_gib} GiB", []).append(name)
    return kinds


def _tune_on(
    manifest: Manifest,
    kind: str,
    names: Sequence[str],
    role: Role,
    progress: Callable[[TuneEntry], None],
) -> list[TuneEntry]:
    found: dict[int, TuneEntry] = {}

    def answered(number: int, answer: dict[str, Any]) -> None:
        entry = manifest.entries[number]
        died = answer.get("died")
        found[number] = TuneEntry(
            entry["kernel"]["name"],
            entry_text(entry),
            "failed" if died else answer["status"],
            died or answer["reason"],
            0.0 if died else answer["seconds"],
            kind,
        )
        progress(found[number])

    environments = [{**_WORKER_SETTINGS, "CUDA_VISIBLE_DEVICES": name} for name in names]
    run_jobs([{"entry": entry} for entry in manifest.entries], role, environments, answered)
    return [found[number] for number in sorted(found)]
