"""From a place, as text, to a store. Knows every kind of store by scheme, dispatch by none."""

from __future__ import annotations

import os
import re
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

from launchkit import settings
from launchkit.errors import LaunchkitError, StoreError, UsageError
from launchkit.store.base import ConfigStore, MemoryStore
from launchkit.store.directory import DirectoryStore
from launchkit.store.pins import SUFFIX as LOCK_SUFFIX
from launchkit.store.pins import PinnedStore

ENTRY_POINT_GROUP = "launchkit.stores"
"""Entry points of this group make stores: name = scheme, object = callable(url) -> ConfigStore."""

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


def open_store(place: str | os.PathLike[str] | None = None) -> ConfigStore:
    """Return the store at ``place``.

    A path, ``file:///path``, ``file:/path`` or ``~/...`` is a DirectoryStore (made when
    something is put), ``memory:`` a new MemoryStore, ``pins:/path`` or a path that ends in
    ``.lock`` the read-only PinnedStore of a lock file, any other URL what an installed package
    registered for its scheme; None is ``default_place()``. Raises StoreError for a place that
    cannot be a store.
    """
    if isinstance(place, os.PathLike):
        return _at_path(place)
    text = default_place() if place is None else place
    if not isinstance(text, str):
        raise StoreError(f"{text!r} is not a place. Give a path or a URL, as text.")
    url = _URL.match(text)
    if url is None:
        return _at_path(_expand(text))
    scheme = (url.group(1) or url.group(2)).lower()
    if scheme == "file":
        return _at_path(_file_path(text))
    if scheme == "pins":
        return PinnedStore(_expand(text[len("pins:") :].removeprefix("//")))
    return MemoryStore() if text.lower() == "memory:" else _open_url(scheme, text)


def _at_path(path: str | os.PathLike[str]) -> ConfigStore:
    """A directory may end in .lock too; a file that does is a lock file, there or missing."""
    text: object = os.fspath(path)
    if isinstance(text, str) and text.endswith(LOCK_SUFFIX) and not os.path.isdir(text):
        return PinnedStore(text)
    return DirectoryStore(path)


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
    installed = {point.name.lower(): point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if scheme not in installed:
        known = ", ".join(["file://", "memory:", *(f"{name}://" for name in sorted(installed))])
        raise StoreError(
            f"no store is installed for {scheme}:// (there are: {known}). Install the package "
            "that has it, or give the path of a directory.",
        )
    return _made_by(installed[scheme], url)


def _made_by(point: EntryPoint, url: str) -> ConfigStore:
    try:
        factory = point.load()
    except Exception as error:  # another package's import can fail in any way
        raise StoreError(f"{point.value} cannot be loaded ({error}). Reinstall it.") from error
    try:
        store = factory(url)
    except LaunchkitError:
        raise
    except Exception as error:  # so can its code
        raise StoreError(f"{point.value} cannot open its URL ({error}). Mend it.") from error
    if not isinstance(store, ConfigStore):
        raise StoreError(f"{point.value} made a {type(store).__name__}, not a ConfigStore. Fix it.")
    return store
