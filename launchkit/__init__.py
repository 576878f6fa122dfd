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
    from launchkit.dispatch.launcher import launch as launch
    from launchkit.dispatch.launcher import launch_autotuned as launch_autotuned
    from launchkit.dispatch.op_plans import planned as planned
    from launchkit.dispatch.stores import use_store as use_store
    from launchkit.errors import LaunchkitError as LaunchkitError
    from launchkit.profiling.launch_profile import LaunchProfile as LaunchProfile
    from launchkit.profiling.ranges import annotate as annotate
    from launchkit.profiling.recorder import profile_launches as profile_launches
    from launchkit.store import ConfigStore as ConfigStore
    from launchkit.store import DirectoryStore as DirectoryStore
    from launchkit.store import MemoryStore as MemoryStore
    from launchkit.store import open_store as open_store

__version__ = "0.1.0"

_HOMES = {
    "ConfigStore": "launchkit.store",
    "DirectoryStore": "launchkit.store",
    "LaunchProfile": "launchkit.profiling.launch_profile",
    "LaunchkitError": "launchkit.errors",
    "MemoryStore": "launchkit.store",
    "TunedConfig": "launchkit.configs",
    "annotate": "launchkit.profiling.ranges",
    "autotuned": "launchkit.dispatch.decorator",
    "launch": "launchkit.dispatch.launcher",
    "launch_autotuned": "launchkit.dispatch.launcher",
    "open_store": "launchkit.store",
    "planned": "launchkit.dispatch.op_plans",
    "profile_launches": "launchkit.profiling.recorder",
    "use_store": "launchkit.dispatch.stores",
}
_MODULES = ("errors", "hostonly", "kernels")

__all__ = [
    "ConfigStore",
    "DirectoryStore",
    "LaunchProfile",
    "LaunchkitError",
    "MemoryStore",
    "TunedConfig",
    "annotate",
    "autotuned",
    "errors",
    "hostonly",
    "kernels",
    "launch",
    "launch_autotuned",
    "open_store",
    "planned",
    "profile_launches",
    "use_store",
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


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _import(f"launchkit.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'launchkit' has no attribute {name!r}")
    value = getattr(_import(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
