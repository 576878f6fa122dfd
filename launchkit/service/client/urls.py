"""Where a config service is: the URL that users write, taken apart. Under store.py."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from launchkit.errors import StoreError
from launchkit.service import protocol
from launchkit.service.hosts import is_loopback

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?!.{254})[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_PATH = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True)
class Address:
    """A namespace of a service."""

    scheme: str
    host: str
    port: int
    prefix: str
    """The path below which the service stands, without a slash at its end; mostly empty."""
    namespace: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """(scheme, host, port): whom a token is meant for."""
        return (self.scheme, self.host, self.port)

    @property
    def netloc(self) -> str:
        """Host and, where it is not the scheme's own, port, as URLs have them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The URL, for people."""
        return f"{self.scheme}://{self.netloc}{self.prefix}/{self.namespace}"

    @property
    def is_loopback(self) -> bool:
        """Whether the service runs on this machine."""
        return is_loopback(self.host)


def parse(url: str) -> Address:
    """Return the address that ``https://host:port/namespace`` says.

    Without a path the namespace is ``default``; of a longer path the last part is the namespace,
    and the service stands below the rest. Raises StoreError for anything else.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise StoreError(f"{_safe(url)} is no URL: {error}. {_ADVICE}") from None
    if parts.scheme not in _PORTS or host is None or not _is_host(host):
        raise StoreError(f"{_safe(url)} names no service. {_ADVICE}")
    if parts.username is not None or parts.password is not None:
        raise StoreError(
            "a token must not stand in a service's URL, which is logged. Set "
            "LAUNCHKIT_SERVICE_TOKEN."
        )
    if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
        raise StoreError(f"{_safe(url)} has more than a path of plain ASCII. {_ADVICE}")
    prefix, _, name = parts.path.rstrip("/").rpartition("/")
    name = name or protocol.DEFAULT_NAMESPACE
    if not protocol.is_namespace(name):
        raise StoreError(f"{name!r} cannot be a namespace. {_ADVICE}")
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], prefix, name)


def _is_host(host: str) -> bool:
    """Tell what can be looked up or connected to from what can only fail at a launch."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _NAME.fullmatch(host) is not None
    return True


_ADVICE = "Write https://host:port/namespace."


def _safe(url: str) -> str:
    """Leave out what might be a secret."""
    return repr(url if "@" not in url else url.rpartition("@")[2])
