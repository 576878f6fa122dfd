"""Autotuner subclasses of others whose choice launchkit can make as they do. Below launcher.py.

Each adapter is for exact versions of one class, read and tested; any other subclass launches
through Triton, in its own way. Nothing here imports the libraries.
"""

from __future__ import annotations

import sys
from typing import Any

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.autotuned_path import AutotunedLauncher
from launchkit.dispatch.layers import (
    KernelParts,
    autotune_key,
    autotuner_choice,
    autotuner_knows,
)
from launchkit.dispatch.plan import ConfigPin

FLA_VERSIONS = ("0.5.1", "0.5.2", "0.6.0")
"""Releases of flash-linear-attention whose autotuner the adapter is tested with."""

_FLA_MODULE = "fla.ops.utils.cache"
_FLA_METHODS = {"__init__", "run", "should_check_fla_cache", "maybe_load_cached_config"}


def find(parts: KernelParts) -> type[AutotunedLauncher] | None:
    """Return the launcher class for a kernel whose autotuner an adapter covers, or None."""
    if parts.autotuner is None or parts.inner_heuristics or seam.interpreting():
        return None
    return FlaLauncher if _is_fla(parts.autotuner) else None


def _is_fla(autotuner: Any) -> bool:
    kind = type(autotuner)
    if kind.__module__ != _FLA_MODULE or kind.__qualname__ != "CachedAutotuner":
        return False
    methods = {name for name, value in vars(kind).items() if callable(value)}
    version = getattr(sys.modules.get("fla"), "__version__", None)
    untouched = not (_FLA_METHODS | {"_bench", "check_disk_cache"}) & set(vars(autotuner))
    return version in FLA_VERSIONS and methods == _FLA_METHODS and untouched


class FlaLauncher(AutotunedLauncher):
    """Launches of flash-linear-attention's ``CachedAutotuner``.

    Its ``run`` looks a config up in files, when ``FLA_CACHE_MODE`` says so, and is Triton's
    otherwise. Here the files are asked first too, and then launchkit's store.
    """

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        self._library = sys.modules[_FLA_MODULE]
        self._note_mode()
        super().__init__(kernel, parts)

    def _note_mode(self) -> None:
        self._mode = self._library.FLA_CACHE_MODE
        self.premises = (("FLA_CACHE_MODE", self._mode, vars(self._library)),)

    def _known_choice(
        self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ConfigPin | None:
        if self._library.FLA_CACHE_MODE is not self._mode:
            self._note_mode()
            if self._choices is not None:
                self._choices.clear()
            return None
        return super()._known_choice(grid, args, kwargs)

    def _choose(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ConfigPin | None:
        modes = type(self._mode)
        if self._mode is modes.ALWAYS:
            return None  # reads its files at each launch
        if self._mode is not modes.DISABLED and self._supplied.isdisjoint(kwargs):
            config = self._from_file(args, {**kwargs, "grid": grid, "warmup": False})
            if config is not None:
                self._tuner.best_config = config
                return ConfigPin(config, self._tuner.configs[:])
        return super()._choose(grid, args, kwargs)

    def _from_file(self, args: tuple[Any, ...], passed: dict[str, Any]) -> Any:
        """Return the config that the library's files say, leaving it in the autotuner's cache."""
        tuner = self._tuner
        if len(tuner.configs) == 1:
            return None  # then Triton's run, which comes last, takes this one
        key = autotune_key(tuner, args, passed)
        if not autotuner_knows(tuner, key):
            self._load(key, args, passed)
        config = autotuner_choice(tuner, key)
        # One from a file is an object of its own; one that was tuned is in the list.
        return None if any(config is live for live in tuner.configs) else config

    def _load(self, key: tuple[Any, ...], args: tuple[Any, ...], passed: dict[str, Any]) -> None:
        tuner, wanted = self._tuner, self._library.AutotuneKey(key)
        if sys.modules["fla"].__version__ in ("0.5.1", "0.5.2"):
            tuner.maybe_load_cached_config(wanted)
            return
        named = dict(zip(tuner.arg_names, args, strict=False))
        tuner.maybe_load_cached_config(key=wanted, nargs=named, runtime_kwargs=passed)
