"""The config store of this process: what a miss asks, where a tuning is kept. Below choosing.py."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType

from launchkit import settings
from launchkit.configs import ConfigIdentity, TunedRecord
from launchkit.errors import StoreError
from launchkit.keys import DevicePolicy, KernelId, ToolchainPolicy
from launchkit.store import ConfigStore, Found, MemoryStore, Miss, Policies, Wanted, open_store
from launchkit.store.explaining import Explanation, explain
from launchkit.store.lookup import NearIdentities, find_exact, find_inexact
from launchkit.store.places import Place, open_for_launches
from launchkit.store.shapes import Shape

logger = logging.getLogger("launchkit")

_lock = threading.Lock()
_store: ConfigStore | None = None
_given: tuple[DevicePolicy | None, ToolchainPolicy | None] = (None, None)
_warned: set[tuple[str, str]] = set()


def active_store() -> ConfigStore:
    """Return the store in use; at first LAUNCHKIT_STORE, or the user's cache directory.

    Where the user's cache directory cannot be a store, it is one in memory, with a warning. A
    config service that cannot be opened is left out, with a warning.

    Raises:
        StoreError: LAUNCHKIT_STORE names another place that cannot be opened.
    """
    global _store
    with _lock:
        if _store is None:
            _store = _open_default()
        return _store


def _open_default() -> ConfigStore:
    try:
        return open_for_launches()
    except StoreError as error:
        if settings.current().store is not None:
            raise
        logger.warning("tuned configs are kept for this process only: %s", error)
        return MemoryStore()


def active_policies() -> Policies:
    """Return what ``use_store`` was given, and for the rest what the environment says."""
    device, toolchain = _given
    said = settings.current()
    return Policies(device or said.device_policy, toolchain or said.toolchain_policy)


def exact_record(wanted: Wanted) -> Found | Miss:
    """Return the store's record of exactly this identity, whatever the store does."""
    store = active_store()
    try:
        found = find_exact(store, wanted)
    except Exception as error:  # noqa: BLE001 - a store may fail in any way, a launch may not
        _warn_once("get", store, error)
        return Miss("unreadable")
    if isinstance(found, Miss):
        logger.debug("%s: no stored config: %s", wanted.kernel.name, found.reason)
    return found


def near_records(
    wanted: Wanted, policies: Policies, among: Iterable[Wanted] | None = None
) -> Iterator[Found]:
    """Yield the store's records that policies allow beside the exact one, the nearest first.

    They end where the store raises.
    """
    store = active_store()
    try:
        yield from find_inexact(store, wanted, policies, among)
    except Exception as error:  # noqa: BLE001 - as above
        _warn_once("records_of", store, error)


def near_identities(kernel: KernelId, shapes: Mapping[str, Shape]) -> NearIdentities:
    """Return what the store has of a kernel, by the keys that it may stand for."""
    store = active_store()
    try:
        return NearIdentities(store, kernel, shapes)
    except Exception as error:  # noqa: BLE001 - as above
        _warn_once("records_of", store, error)
        return NearIdentities(MemoryStore(), kernel, shapes)


def explanation(wanted: Wanted, configs: Sequence[ConfigIdentity]) -> Explanation | None:
    """Return what the store has instead of what is wanted; None if it cannot say."""
    store = active_store()
    try:
        return explain(store, wanted, configs=configs)
    except Exception as error:  # noqa: BLE001 - as above
        _warn_once("records_of", store, error)
        return None


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


def exchange_store(store: ConfigStore) -> None:
    """Put ``store`` in the place of the one in use; policies stay."""
    global _store
    with _lock:
        _store = store


class use_store:  # noqa: N801 - reads as a function, and as a context manager
    """Make ``store`` the config store of this process, at once.

    As a context manager, the store and the policies that were in use come back on leaving. Configs
    that kernels have already chosen in this process stay chosen.

    Args:
        store: a ``ConfigStore``, or a place or several for ``open_store``; None is the default
            place, opened when it is first needed.
        device: ``exact``, or ``compatible``: records of GPUs with the same architecture and
            shared-memory limit are used where there are none of this GPU. None:
            LAUNCHKIT_DEVICE_POLICY.
        toolchain: ``exact``, ``minor`` or ``any``: whose Triton's records are used where there are
            none of this version. None: LAUNCHKIT_TOOLCHAIN_POLICY.

    Raises:
        StoreError: the place cannot be opened.
        UsageError: there is no such policy.
    """

    def __init__(
        self,
        store: ConfigStore | Place | Sequence[Place] | None,
        *,
        device: DevicePolicy | None = None,
        toolchain: ToolchainPolicy | None = None,
    ) -> None:
        Policies(device or "exact", toolchain or "exact")
        opened = store if store is None or isinstance(store, ConfigStore) else open_store(store)
        global _store, _given
        with _lock:
            self._before, _store = (_store, _given), opened
            _given = (device, toolchain)
            _warned.clear()

    def __enter__(self) -> ConfigStore:
        return active_store()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _store, _given
        with _lock:
            _store, _given = self._before
