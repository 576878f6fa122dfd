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
    "profile_launches",
    "use_store",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"launchkit.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'launchkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
