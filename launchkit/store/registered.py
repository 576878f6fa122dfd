"""Config directories that installed packages bring along. Under places.py; imports leaves only."""

from __future__ import annotations

import logging
import os
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

GROUP = "launchkit.config_directories"
"""Entry points of this group name a directory: a package that is one, a path, or a function
without parameters that returns a path."""

_log = logging.getLogger("launchkit")


def registered_places() -> list[tuple[str, Path]]:
    """Return (name, directory) of what installed packages register, sorted by name.

    A package without an object behind a colon (``my_kernels.configs``) is found without running
    its own code. What cannot be found is left out with a warning; a path that stands twice is
    returned once.
    """
    found: dict[Path, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        try:
            path = _path(point)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another package's code does what it likes
            message = (
                "configs that %s registers (%s) are left out: %s. Mend or remove that package."
            )
            _log.warning(message, point.name, point.value, error)
        else:
            found.setdefault(path, point.name)
    return [(name, path) for path, name in found.items()]


def _path(point: EntryPoint) -> Path:
    if ":" not in point.value:
        return _package_path(point.value)
    made: object = point.load()
    if isinstance(made, ModuleType):
        return _package_path(made.__name__)
    if callable(made):
        made = made()
    if not isinstance(made, (str, os.PathLike)):
        raise TypeError(f"it is a {type(made).__name__}, not a path")
    return _existing(Path(made))


def _package_path(name: str) -> Path:
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise ImportError(f"there is no package {name}")
    return _existing(Path(places[0]))


def _existing(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError(f"{path} is not a whole path")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    return path
