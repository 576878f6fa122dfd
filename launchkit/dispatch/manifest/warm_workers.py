"""Processes that compile entries into Triton's disk cache. Between workers.py and warming.py.

The parent says which config: only it knows its config store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launchkit.configs import identify
from launchkit.dispatch import permissions
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.autotuned_path import AutotunedLauncher
from launchkit.dispatch.launcher import adopt
from launchkit.dispatch.manifest import workers
from launchkit.dispatch.manifest.document import Entry
from launchkit.dispatch.manifest.replaying import failure_text, replay
from launchkit.dispatch.manifest.worker_main import Handler
from launchkit.dispatch.manifest.workers import Step
from launchkit.dispatch.plan import ConfigPin

_REASON_CHARACTERS = 1000


def compile_all(entries: Sequence[Entry], count: int) -> None:
    """Compile entries in ``count`` processes. What fails there is told by whoever loads it."""
    role = workers.Role(f"{__name__}:make_handler", prepare=same_triton())
    workers.run_jobs(list(_jobs(entries)), role, [{}] * count, lambda number, answer: None)


def same_triton() -> tuple[Step, ...]:
    """Return what makes a worker compile as this process does, and to the same place."""
    active, cache_dir = seam.active_driver(), str(seam.knobs.cache.dir)
    if not getattr(active, "host_only", False):
        return (
            Step("launchkit.dispatch.manifest.warm_workers:use_cache_dir", {"path": cache_dir}),
        )
    mode = {"arch": active.facts.arch, "devices": active.devices,
            "cache_dir": str(Path(cache_dir).parent)}  # fmt: skip
    return (Step("launchkit.hostonly:activate", mode),)


def use_cache_dir(path: str) -> None:
    """Let Triton keep compiled kernels where the process that started this one keeps them."""
    seam.knobs.cache.dir = path


def _jobs(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        with contextlib.suppress(Exception):  # its reason comes out where it is loaded
            yield {"entry": entry, "config": _config(entry)}


def _config(entry: Entry) -> list[dict[str, Any]] | None:
    """Return the config that a launch would take, None for a kernel that has none."""
    found = replay(entry, launched=False)
    launcher = adopt(found.kernel)
    if not isinstance(launcher, AutotunedLauncher):
        return None
    with permissions.tuning_forbidden():
        choice = launcher.choice(found.grid, found.args, found.kwargs)
    if choice is None:
        raise LookupError("Triton's Autotuner chooses")
    return [asdict(value) for value in identify(choice.config.all_kwargs())]


def make_handler(options: Mapping[str, Any]) -> Handler:
    """Return what a worker does with a request: compile, and say what failed."""
    return _compile


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    try:
        _compile_one(request["entry"], request["config"])
    except Exception as error:  # noqa: BLE001 - the parent meets it again, and reports it
        return {"error": failure_text(error, _REASON_CHARACTERS)}
    return {"error": None}


def _compile_one(entry: Entry, wanted: list[dict[str, Any]] | None) -> None:
    found = replay(entry, launched=False)
    launcher = adopt(found.kernel)
    if not isinstance(launcher, AutotunedLauncher) or wanted is None:
        launcher.warm(found.grid, found.args, found.kwargs)
        return
    configs = launcher.parts.autotuner.configs
    for config in configs:
        if [asdict(value) for value in identify(config.all_kwargs())] == wanted:
            choice = ConfigPin(config, configs[:])
            launcher.warm_chosen(choice, found.grid, found.args, found.kwargs)
