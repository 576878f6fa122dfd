"""What ``launchkit doctor`` finds out about versions, the core, the store and launches themselves."""

from __future__ import annotations

import importlib
import platform
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import launchkit
from launchkit.errors import HostOnlyError
from launchkit.store import StoreHealth, open_store
from launchkit.tools.doctor_check import FINDING, NOTE, OK, Check, guarded
from launchkit.tools.output import numbered

_DRIVER = Path("/proc/driver/nvidia/version")
_BUILD_CORE = (
    "Install launchkit-triton again with a C compiler and Python's headers (apt-get install gcc "
    "python3-dev), or unset what switches the core off: docs/environment.md."
)


def versions() -> dict[str, str | None]:
    """Return what runs here; None for what is not installed."""
    return {
        "launchkit": launchkit.__version__,
        "python": platform.python_version(),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "driver": _driver_version(),
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _driver_version() -> str | None:
    try:
        text = _DRIVER.read_text()
    except OSError:
        return None
    found = re.search(r"\s(\d+\.\d[\d.]*)\s", text)
    return found and found.group(1)


def checks(trial: bool) -> list[Check]:
    """Return what was found; with ``trial`` a kernel is launched as well."""
    found = guarded("config store", _store)
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        says = f"{' and '.join(missing)} cannot be imported, so nothing can be launched."
        return [Check("versions", FINDING, says, "Install launchkit-triton[torch]."), *found]
    found = [*guarded("core", _core), *found]
    if not trial:
        return found
    with warnings.catch_warnings():
        # Triton 3.9 announces a default of 3.10, which decides nothing here.
        warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION is unset")
        return [*found, *guarded("launches", _trial)]


def _core() -> Iterator[Check]:
    health = importlib.import_module("launchkit.dispatch.health").core_health()
    if health.obstacle is not None:
        says = f"launches take the Python core: {health.obstacle}."
        yield Check("core", FINDING, says, _BUILD_CORE)
        return
    yield Check("core", OK, "launches take the C core.")
    if health.reads_directly:
        yield Check("tensors", OK, f"the core reads them {health.tensor_reader}.")
    else:
        yield Check(
            "tensors",
            FINDING,
            f"the core reads them {health.tensor_reader}, which costs more for each.",
            "Use a torch that launchkit is tested with (README, Versions).",
        )
    if not health.makes_op_plans:
        yield Check(
            "op plans",
            FINDING,
            "this torch does not say all that a plan rests on, so planned ops run as they are.",
            "Use a torch that launchkit is tested with (README, Versions).",
        )


def _store() -> Iterator[Check]:
    health = open_store().examine()
    for layer in health.layers or (health,):
        yield _layer(layer)
    if health.read_only:
        says = "every store is read-only: what is tuned here ends with the process."
        advice = (
            "Add a directory of your own to LAUNCHKIT_STORE to tune only once: behind a lock file, "
            "before a share."
        )
        yield Check("config store", NOTE, says, advice)
    for file, problem in health.broken:
        advice = "Mend it, or remove it: its kernels are tuned again."
        if "://" in file:
            advice = "See launchkit configs status. Launches go on without it."
        yield Check("config store", FINDING, f"{file}: {problem}", advice)


def _layer(health: StoreHealth) -> Check:
    found = [f"{health.place}: {numbered(health.records, 'record')}"]
    if health.set_aside:
        found.append(f"{health.set_aside} broken documents set aside")
    says = ", ".join(found) + "."
    if not health.lasting:
        advice = "Set LAUNCHKIT_STORE to a directory to tune only once."
        return Check("config store", FINDING, f"{says} They end with the process.", advice)
    if health.unwritable:
        return Check(
            "config store",
            FINDING,
            f"{says} It cannot be written to: {health.unwritable}.",
            "Make it writable, or set LAUNCHKIT_STORE to a directory that is.",
        )
    return Check("config store", OK, says)


def _trial() -> Iterator[Check]:
    torch: Any = importlib.import_module("torch")
    trial: Any = importlib.import_module("launchkit.tools.doctor_trial")
    if torch.cuda.is_available():
        yield Check("host-only", NOTE, "not in a process with a GPU.")
        yield from trial.launches(torch.empty(64, device="cuda"))
        return
    try:
        session = launchkit.hostonly.activate()
    except HostOnlyError as error:
        yield Check("host-only", FINDING, "there is no GPU, and it is not possible.", str(error))
        return
    with session:
        yield from trial.launches(torch.empty(64))
        yield Check(
            "host-only", OK, "kernels compile, and are launched onto a driver that does nothing."
        )
