"""From a URL and settings to the client: the entry point of http and https. Above store.py."""

from __future__ import annotations

import hashlib
import logging

from launchkit import settings
from launchkit.errors import LaunchkitError, StoreError, UsageError
from launchkit.service.client import urls
from launchkit.service.client.store import ServiceStore
from launchkit.store import ConfigStore, DirectoryStore

_log = logging.getLogger("launchkit")


def open_service(url: str, *, token: str | None = None) -> ServiceStore:
    """Return the store of the config service that ``url`` names, as the LAUNCHKIT_SERVICE_* say.

    LAUNCHKIT_SERVICE_TOKEN is shown to the service of LAUNCHKIT_SERVICE, or, where that names
    none, to any; ``token`` goes before it. What the service gives is kept in the user's cache
    directory, for when it is silent. Raises StoreError for what is no such URL.
    """
    said = settings.current()
    return ServiceStore(
        url,
        token=token or _token(url),
        secret=None if said.service_key is None else said.service_key.encode(),
        timeout_s=said.service_timeout_ms / 1e3,
        lease_s=float(said.service_lease_s),
        copy=_copy(url),
    )


def _token(url: str) -> str | None:
    said = settings.current()
    meant = said.service_token is not None and (
        said.service is None or _origin(said.service) == _origin(url)
    )
    if not meant:
        return None
    address = urls.parse(url)
    if address.scheme == "http" and not address.is_loopback:
        _log.warning("the token for %s goes over the network unencrypted. Use https.", address.text)
    return said.service_token


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        return urls.parse(url.strip().removeprefix("ro:")).origin
    except StoreError:
        return None


def _copy(url: str) -> ConfigStore | None:
    """A directory for this service's namespace; None for a user who has no place for one."""
    address, key = urls.parse(url), settings.current().service_key
    # What counted under another key does not count under this one.
    parts = f"{address.text}\n{key or ''}".encode()
    name = f"{address.namespace}-{hashlib.sha256(parts).hexdigest()[:16]}"
    try:
        return DirectoryStore(settings.cache_home() / "service" / name)
    except (UsageError, LaunchkitError) as error:
        _log.debug("what the service gives is not kept: %s", error)
        return None
