"""From a place, or several, to a store. Knows every kind of store by scheme, dispatch by none."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from launchkit import settings
from launchkit.errors import LaunchkitError, StoreError, UsageError
from launchkit.store.base import ConfigStore, MemoryStore
from launchkit.store.directory import DirectoryStore
from launchkit.store.layered import LayeredStore, ReadOnlyStore
from launchkit.store.pins import SUFFIX as LOCK_SUFFIX
from launchkit.store.pins import PinnedStore
from launchkit.store.registered import registered_places

_log = logging.getLogger("launchkit")

ENTRY_POINT_GROUP = "launchkit.stores"
"""Entry points of this group make stores: name = scheme, object = callable(url) -> ConfigStore."""
# Those of pyproject.toml: where launchkit is a folder on the path, no metadata names them.
_OWN = {
    scheme: EntryPoint(scheme, "launchkit.service.client.opening:open_service", ENTRY_POINT_GROUP)
    for scheme in ("http", "https")
}
READ_ONLY = "ro:"
"""Before a place: nothing is ever written there."""
REGISTERED = "registered:"
"""The place of all directories that installed packages register."""

Place: TypeAlias = str | os.PathLike[str]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://|(file|memory|pins):", re.IGNORECASE)


def default_place() -> str:
    """Return LAUNCHKIT_STORE, or the directory ``launchkit/configs`` in the user's cache.

    Raises StoreError if neither is known.
    """
    if (named := settings.current().store) is not None:
        return named
    try:
        return str(settings.cache_home() / "configs")
    except UsageError as error:
        raise StoreError(f"{error} Or set LAUNCHKIT_STORE.") from None


def open_store(place: Place | Sequence[Place] | None = None) -> ConfigStore:
    """Return the store at ``place``, or one of the layers at several places.

    A path, ``file:///path``, ``file:/path`` or ``~/...`` is a DirectoryStore (made when
    something is put), ``memory:`` a new MemoryStore, ``pins:/path`` or a path that ends in
    ``.lock`` the read-only PinnedStore of a lock file, any other URL what an installed package
    registered for its scheme.

    Several places, in a sequence or in one text with commas between them, are asked in their
    order; the first that is not ``ro:`` (before a path or URL: read-only) is written to, and
    directories behind it are only read. ``registered:`` stands for the directories of
    installed packages (``registered_places``). None is LAUNCHKIT_STORE, or else the user's
    cache directory and ``registered:``, and behind them LAUNCHKIT_SERVICE.

    Raises StoreError for a place that cannot be a store.
    """
    layers = _layers(_parts(place), _opened)
    if not layers:
        raise StoreError(f"{place!r}: no installed package registers any. Give a place besides.")
    return _as_one(layers)


def open_for_launches() -> ConfigStore:
    """Return the default store, without the config services that cannot be opened.

    Each of these costs a warning, whatever the reason: a service may not make a launch fail. Nor may
    the user's cache directory: a store in memory stands in its place, with a warning.

    Raises StoreError for any other place that cannot be a store.
    """
    return _as_one(_layers(_parts(None), _opened_or_left_out) or [MemoryStore()])


def _layers(
    parts: Sequence[object], opened: Callable[[object, bool], list[ConfigStore]]
) -> list[ConfigStore]:
    layers: list[ConfigStore] = []
    for part in parts:
        layers += opened(part, any(not layer.read_only for layer in layers))
    return layers


def _as_one(layers: list[ConfigStore]) -> ConfigStore:
    return layers[0] if len(layers) == 1 else LayeredStore(layers)


def _opened_or_left_out(place: object, behind: bool) -> list[ConfigStore]:
    try:
        return _opened(place, behind)
    except LaunchkitError as error:
        if _is_service(place):
            _log.warning("the config service is left out: %s Launches go on without it.", error)
            # A directory behind it must not become the place that is written to.
            written = not behind and not str(place).lower().startswith(READ_ONLY)
            return [MemoryStore()] if written else []
        if settings.current().store is not None:
            raise
        _log.warning("tuned configs are kept for this process only: %s", error)
        return [MemoryStore()]


def _is_service(place: object) -> bool:
    """Tell what is there to help only: LAUNCHKIT_SERVICE, or a URL of a config service."""
    if not isinstance(place, str):
        return False
    url = _URL.match(place[len(READ_ONLY) :] if place.lower().startswith(READ_ONLY) else place)
    return place == settings.current().service or bool(url and (url.group(1) or "").lower() in _OWN)


def _parts(place: object) -> Sequence[object]:
    if place is None:
        service = settings.current().service
        behind = () if service is None else (service,)
        if settings.current().store is not None:
            return (*_parts(default_place()), *behind)
        try:
            return (Path(default_place()), REGISTERED, *behind)
        except StoreError:
            if not behind:
                raise
            return (REGISTERED, *behind)
    if isinstance(place, str):
        return [part.strip() for part in place.split(",")] if "," in place else (place,)
    if isinstance(place, (list, tuple)) and place:
        return place
    return (place,)


def _opened(place: object, behind: bool) -> list[ConfigStore]:
    """Open one place: a layer, or as many as are registered; ``behind`` another one's back."""
    if isinstance(place, os.PathLike):
        return [_at_path(place, behind)]
    if not isinstance(place, str) or not place:
        raise StoreError(f"{place!r} is not a place. Give a path or a URL, as text.")
    if place == settings.current().service and "://" not in place:
        raise StoreError(f"LAUNCHKIT_SERVICE: {place!r} is no URL. Write https://host/namespace.")
    if place.lower() == REGISTERED:
        return _registered()
    read_only, text = place.lower().startswith(READ_ONLY), place
    if read_only:
        text = place[len(READ_ONLY) :]
    store = _at_text(text, read_only or behind)
    return [ReadOnlyStore(store) if read_only and not store.read_only else store]


def _at_text(text: str, read_only: bool) -> ConfigStore:
    url = _URL.match(text)
    if url is None:
        return _at_path(_expand(text), read_only)
    scheme = (url.group(1) or url.group(2)).lower()
    if scheme == "file":
        return _at_path(_file_path(text), read_only)
    if scheme == "pins":
        return PinnedStore(_expand(text[len("pins:") :].removeprefix("//")))
    return MemoryStore() if text.lower() == "memory:" else _open_url(scheme, text)


def _registered() -> list[ConfigStore]:
    """Open what packages brought along; one that cannot be opened costs a warning only."""
    opened: list[ConfigStore] = []
    for package, path in registered_places():
        try:
            opened.append(_at_path(path, read_only=True))
        except StoreError as error:
            _log.warning("configs that %s brings are left out: %s", package, error)
    return opened


def _at_path(path: str | os.PathLike[str], read_only: bool) -> ConfigStore:
    """A directory may end in .lock too; a file that does is a lock file, there or missing."""
    text: object = os.fspath(path)
    if isinstance(text, str) and text.endswith(LOCK_SUFFIX) and not os.path.isdir(text):
        return PinnedStore(text)
    return DirectoryStore(path, read_only=read_only)


def _expand(text: str) -> str:
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError as error:
        raise StoreError(f"{text!r}: {str(error).rstrip('.')}. Give the whole path.") from None


def _file_path(url: str) -> str:
    parts = urlsplit(url)
    local = parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if not local or parts.query or parts.fragment:
        raise StoreError(f"{url!r} is not a local path. Write file:///path/to/directory.")
    return unquote(parts.path)


def _open_url(scheme: str, url: str) -> ConfigStore:
    points = entry_points(group=ENTRY_POINT_GROUP)
    installed = _OWN | {point.name.lower(): point for point in points}
    if scheme not in installed:
        known = ", ".join(["file://", "memory:", *(f"{name}://" for name in sorted(installed))])
        raise StoreError(
            f"no store is installed for {scheme}:// (there are: {known}). Install the package "
            f"that has it (as an entry point of {ENTRY_POINT_GROUP}), or give the path of a directory.",
        )
    return _made_by(installed[scheme], url)


def _made_by(point: EntryPoint, url: str) -> ConfigStore:
    try:
        factory = point.load()
    except (Exception, SystemExit) as error:  # another package's import can fail in any way
        raise StoreError(f"{point.value} cannot be loaded ({error}). Reinstall it.") from error
    try:
        store = factory(url)
    except LaunchkitError:
        raise
    except (Exception, SystemExit) as error:  # so can its code
        raise StoreError(f"{point.value} cannot open its URL ({error}). Mend it.") from error
    if not isinstance(store, ConfigStore):
        raise StoreError(f"{point.value} made a {type(store).__name__}, not a ConfigStore. Fix it.")
    return store
