"""launchkit: launch tuned Triton kernels at almost no host cost, and see where host time goes.

Names are imported on first use: a process that only keeps configs never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launchkit import errors as errors
    from launchkit import hostonly as hostonly
    from launchkit import kernels as kernels
    from launchkit.configs import TunedConfig as TunedConfig
    from launchkit.dispatch.decorator import autotuned as autotuned
    from launchkit.dispatch.explaining import explain as explain
    from launchkit.dispatch.frozen import FrozenLaunch as FrozenLaunch
    from launchkit.dispatch.frozen import freeze as freeze
    from launchkit.dispatch.grids import cdiv as cdiv
    from launchkit.dispatch.grids import grid as grid
    from launchkit.dispatch.install import install as install
    from launchkit.dispatch.install import uninstall as uninstall
    from launchkit.dispatch.launcher import launch as launch
    from launchkit.dispatch.launcher import launch_autotuned as launch_autotuned
    from launchkit.dispatch.manifest.recording import record_manifest as record_manifest
    from launchkit.dispatch.manifest.warming import WarmReport as WarmReport
    from launchkit.dispatch.manifest.warming import warm as warm
    from launchkit.dispatch.op_plans import planned as planned
    from launchkit.dispatch.ranks.agreement import Agreement as Agreement
    from launchkit.dispatch.ranks.agreement import agree_across_ranks as agree_across_ranks
    from launchkit.dispatch.stats import LaunchStats as LaunchStats
    from launchkit.dispatch.stats import count_launches as count_launches
    from launchkit.dispatch.stats import stats as stats
    from launchkit.dispatch.stores import use_store as use_store
    from launchkit.dispatch.watching import watch_compiles as watch_compiles
    from launchkit.errors import LaunchkitError as LaunchkitError
    from launchkit.profiling.profile.launch_profile import LaunchProfile as LaunchProfile
    from launchkit.profiling.ranges import annotate as annotate
    from launchkit.profiling.recorder import profile_launches as profile_launches
    from launchkit.store import ConfigStore as ConfigStore
    from launchkit.store import DirectoryStore as DirectoryStore
    from launchkit.store import MemoryStore as MemoryStore
    from launchkit.store import buckets as buckets
    from launchkit.store import nearest as nearest
    from launchkit.store import open_store as open_store

__version__ = "0.1.0"

_HOMES = {
    "Agreement": "launchkit.dispatch.ranks.agreement",
    "ConfigStore": "launchkit.store",
    "DirectoryStore": "launchkit.store",
    "FrozenLaunch": "launchkit.dispatch.frozen",
    "LaunchProfile": "launchkit.profiling.profile.launch_profile",
    "LaunchStats": "launchkit.dispatch.stats",
    "LaunchkitError": "launchkit.errors",
    "MemoryStore": "launchkit.store",
    "TunedConfig": "launchkit.configs",
    "WarmReport": "launchkit.dispatch.manifest.warming",
    "agree_across_ranks": "launchkit.dispatch.ranks.agreement",
    "annotate": "launchkit.profiling.ranges",
    "autotuned": "launchkit.dispatch.decorator",
    "buckets": "launchkit.store",
    "cdiv": "launchkit.dispatch.grids",
    "count_launches": "launchkit.dispatch.stats",
    "explain": "launchkit.dispatch.explaining",
    "freeze": "launchkit.dispatch.frozen",
    "grid": "launchkit.dispatch.grids",
    "install": "launchkit.dispatch.install",
    "launch": "launchkit.dispatch.launcher",
    "launch_autotuned": "launchkit.dispatch.launcher",
    "nearest": "launchkit.store",
    "open_store": "launchkit.store",
    "planned": "launchkit.dispatch.op_plans",
    "profile_launches": "launchkit.profiling.recorder",
    "record_manifest": "launchkit.dispatch.manifest.recording",
    "stats": "launchkit.dispatch.stats",
    "uninstall": "launchkit.dispatch.install",
    "use_store": "launchkit.dispatch.stores",
    "warm": "launchkit.dispatch.manifest.warming",
    "watch_compiles": "launchkit.dispatch.watching",
}
_MODULES = ("errors", "hostonly", "kernels")

__all__ = [
    "Agreement",
    "ConfigStore",
    "DirectoryStore",
    "FrozenLaunch",
    "LaunchProfile",
    "LaunchStats",
    "LaunchkitError",
    "MemoryStore",
    "TunedConfig",
    "WarmReport",
    "agree_across_ranks",
    "annotate",
    "autotuned",
    "buckets",
    "cdiv",
    "count_launches",
    "errors",
    "explain",
    "freeze",
    "grid",
    "hostonly",
    "install",
    "kernels",
    "launch",
    "launch_autotuned",
    "nearest",
    "open_store",
    "planned",
    "profile_launches",
    "record_manifest",
    "stats",
    "uninstall",
    "use_store",
    "warm",
    "watch_compiles",
]


_INSTALL = {
    "torch": "Install it with: pip install 'launchkit-triton[torch]'.",
    "triton": "Install it with: pip install 'launchkit-triton[torch]'.",
    # Only an installed launchkit has the folders kernels/, tools/ and benchmarks/ in it.
    "launchkit": "This launchkit is a source checkout, not an installation. Install it, and start "
    "Python from another folder.",
}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        advice = _INSTALL.get((error.name or "").split(".")[0])
        if advice is None:
            raise
        raise ImportError(f"{name} needs {error.name}. {advice}", name=error.name) from error


def _public(name: str) -> Any:
    if name in _MODULES:
        return _import(f"launchkit.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'launchkit' has no attribute {name!r}")
    value = getattr(_import(home), name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:
    # A type checker that saw it would take every misspelt name for a public one.
    __getattr__ = _public


def __dir__() -> list[str]:
    return sorted(__all__)


def _install_when_asked() -> None:
    """LAUNCHKIT_INSTALL=1: install as soon as Triton has been imported."""
    from launchkit import settings
    from launchkit.errors import UsageError

    try:
        wanted = settings.installs_on_import()
    except UsageError as error:  # who needs a setting gets the error
        _warn("%s", error)
        return
    if wanted:
        from launchkit.when_imported import when_imported

        when_imported("triton", _install)


def _install() -> None:
    try:
        home = importlib.import_module("launchkit.dispatch.install")
        home.install_as_set()
    except Exception as error:  # noqa: BLE001 - the program must run, if need be without it
        _warn(
            "LAUNCHKIT_INSTALL is set, but nothing was installed: %r. Call launchkit.install() "
            "where torch and triton have been imported.", error,
        )  # fmt: skip


def _warn(message: str, error: Exception) -> None:
    import logging

    logging.getLogger("launchkit").warning(message, error)


_install_when_asked()
