"""What a worker of ``launchkit tune`` does with an entry. Above replaying.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from launchkit import clock
from launchkit.dispatch import config_counts, permissions
from launchkit.dispatch.autotuned_path import AutotunedLauncher
from launchkit.dispatch.launcher import adopt
from launchkit.dispatch.manifest.document import Entry
from launchkit.dispatch.manifest.replaying import MakeArguments, failure_text, replay
from launchkit.dispatch.manifest.worker_main import Handler, imported
from launchkit.dispatch.stores import use_store
from launchkit.dispatch.tuning.failures import broken_context
from launchkit.errors import NotTunedError

_REASON_CHARACTERS = 4000


def make_handler(options: Mapping[str, Any]) -> Handler:
    """Return what tunes an entry, with the store and the user's hook that ``options`` name."""
    if options["store"] is not None:
        use_store(options["store"])
    make: MakeArguments | None = None if options["make"] is None else imported(options["make"])

    def handle(job: dict[str, Any]) -> dict[str, Any]:
        start_ns = clock.now_ns()
        status, reason = tune_entry(job["entry"], make)
        answer = {"status": status, "reason": reason, "seconds": (clock.now_ns() - start_ns) / 1e9}
        broken = broken_context() if status == "failed" else None
        return answer if broken is None else {**answer, "fatal": True}

    return handle


def tune_entry(entry: Entry, make: MakeArguments | None) -> tuple[str, str | None]:
    """Tune one entry if the store does not have it; return its status, and why it failed."""
    try:
        return _tune(entry, make), None
    except Exception as error:  # noqa: BLE001 - of the kernel, the compiler, the hook, the driver
        if isinstance(error, torch.cuda.OutOfMemoryError):
            torch.cuda.empty_cache()
        return "failed", failure_text(error, _REASON_CHARACTERS)


def _tune(entry: Entry, make: MakeArguments | None) -> str:
    # First without memory for tensors: a run that goes on passes over most entries.
    found = replay(entry, launched=False)
    launcher = adopt(found.kernel)
    if not isinstance(launcher, AutotunedLauncher) or len(launcher.parts.autotuner.configs) < 2:
        return "nothing to tune"
    try:
        with permissions.tuning_forbidden(), permissions.without_hints():
            launcher.choice(found.grid, found.args, found.kwargs)
    except NotTunedError:
        return _measure(launcher, entry, make)
    return "stored"


def _measure(launcher: AutotunedLauncher, entry: Entry, make: MakeArguments | None) -> str:
    found = replay(entry, launched=True, make=make)
    before = config_counts.snapshot().tunings
    with permissions.tuning_allowed(), permissions.without_hints():
        launcher.choice(found.grid, found.args, found.kwargs)
    # Else another process has tuned the key meanwhile.
    return "stored" if config_counts.snapshot().tunings == before else "tuned"
