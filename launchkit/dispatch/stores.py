"""The config store of this process: what a miss asks, and where a tuning is kept."""

from __future__ import annotations

import os
import threading
from types import TracebackType

from launchkit.store import ConfigStore, open_store

_lock = threading.Lock()
_store: ConfigStore | None = None


def active_store() -> ConfigStore:
    """Return the store in use; at first LAUNCHKIT_STORE, or the user's cache directory."""
    global _store
    with _lock:
        if _store is None:
            _store = open_store()
        return _store


class use_store:  # noqa: N801 - reads as a function, and as a context manager
    """Make ``store`` the config store of this process, at once.

    As a context manager, the store that was in use comes back on leaving. Configs that kernels
    have already chosen in this process stay chosen.

    Args:
        store: a ``ConfigStore``, or a place for ``open_store``; None is the default place,
            opened when it is first needed.

    Raises:
        StoreError: the place cannot be opened.
    """

    def __init__(self, store: ConfigStore | str | os.PathLike[str] | None) -> None:
        opened = store if store is None or isinstance(store, ConfigStore) else open_store(store)
        global _store
        with _lock:
            self._before, _store = _store, opened

    def __enter__(self) -> ConfigStore:
        return active_store()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _store
        with _lock:
            _store = self._before
