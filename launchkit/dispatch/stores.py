"""The config store of this process: what a miss asks, and where a tuning is kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType

from launchkit import settings
from launchkit.configs import TunedRecord
from launchkit.errors import StoreError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain
from launchkit.store import ConfigStore, MemoryStore, open_store
from launchkit.store.places import Place

logger = logging.getLogger("launchkit")

_lock = threading.Lock()
_store: ConfigStore | None = None
_warned: set[tuple[str, str]] = set()


def active_store() -> ConfigStore:
    """Return the store in use; at first LAUNCHKIT_STORE, or the user's cache directory.

    Where the user's cache directory cannot be a store, it is one in memory, with a warning.

    Raises:
        StoreError: LAUNCHKIT_STORE names a place that cannot be opened.
    """
    global _store
    with _lock:
        if _store is None:
            _store = _open_default()
        return _store


def _open_default() -> ConfigStore:
    try:
        return open_store()
    except StoreError as error:
        if settings.current().store is not None:
            raise
        logger.warning("tuned configs are kept for this process only: %s", error)
        return MemoryStore()


def stored_record(
    kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
) -> TunedRecord | None:
    """Return the store's record of exactly this identity; None if there is none, whatever it does."""
    store = active_store()
    try:
        found = store.get(kernel, device, toolchain, key)
    except Exception as error:  # noqa: BLE001 - a store may fail in any way, a launch may not
        _warn_once("get", store, error)
        return None
    if not isinstance(found, TunedRecord) or found.identity != (kernel, device, toolchain, key):
        reason = getattr(found, "reason", "not what was asked for")
        logger.debug("%s: no stored config: %s", kernel.name, reason)
        return None
    return found


def store_record(record: TunedRecord) -> None:
    """Give a record to the store; whatever goes wrong there is a warning."""
    store = active_store()
    try:
        store.put(record)
    except Exception as error:  # noqa: BLE001 - as above
        _warn_once("put", store, error)


def _warn_once(operation: str, store: ConfigStore, error: Exception) -> None:
    cause = (operation, type(error).__name__)
    with _lock:
        if cause in _warned:
            return
        _warned.add(cause)
    logger.warning(
        "%s.%s raised %r; the launch goes on without it. Repair the store, or set LAUNCHKIT_STORE "
        "to another one.",
        type(store).__name__,
        operation,
        error,
    )


class use_store:  # noqa: N801 - reads as a function, and as a context manager
    """Make ``store`` the config store of this process, at once.

    As a context manager, the store that was in use comes back on leaving. Configs that kernels
    have already chosen in this process stay chosen.

    Args:
        store: a ``ConfigStore``, or a place or several for ``open_store``; None is the default
            place, opened when it is first needed.

    Raises:
        StoreError: the place cannot be opened.
    """

    def __init__(self, store: ConfigStore | Place | Sequence[Place] | None) -> None:
        opened = store if store is None or isinstance(store, ConfigStore) else open_store(store)
        global _store
        with _lock:
            self._before, _store = _store, opened
            _warned.clear()

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
