"""Doing something as soon as a package has been imported. A leaf.

For LAUNCHKIT_INSTALL=1: ``import launchkit`` must stay cheap, so it waits for Triton.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` once: now if the package ``name`` is imported, else after its import.

    What ``then`` raises reaches whoever imports the package.
    """
    module = sys.modules.get(name)
    if module is not None and not _is_being_imported(module):
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


def _is_being_imported(module: ModuleType) -> bool:
    """Tell whether a module's own code is still running."""
    return bool(getattr(module.__spec__, "_initializing", False))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # it may be installed later
        else:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(importlib.abc.Loader):
    """The package's own loader, with ``then`` after it."""

    def __init__(self, own: Any, then: Callable[[], None]) -> None:
        self._own = own
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        spec.loader = self._own
        module: ModuleType | None = self._own.create_module(spec)
        spec.loader = self
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None, "the import system makes it from the spec"
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        self._then()
