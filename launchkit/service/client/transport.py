"""HTTP as the client of the config service needs it: one origin, one deadline. Under link.py.

It follows no redirect, unpacks nothing, reads no more than it was told to, and is done by the
deadline however slowly the other end goes. Proxies that the environment names are not used.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from launchkit import clock
from launchkit.errors import ServiceError, StoreError
from launchkit.service.client.bounded_calls import BoundedCalls, NoThreadError
from launchkit.service.client.urls import Address

KEPT_S = 30.0
"""How long an unused connection is kept."""
_CHUNK_BYTES = 65536
_LINE = re.compile(r"([!-~]+( +[!-~]+)*)?")
_REPEATABLE = {"GET", "PUT"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answered. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked: ``path`` stands behind the address's prefix, with its query."""

    method: str
    path: str
    timeout_s: float
    limit_bytes: int
    headers: Mapping[str, str]
    body: bytes | None = None
    takes_gzip: bool = False


class _Deadline(threading.local):
    """Of the call that this thread makes. No part of the transport, which the pool would keep."""

    ns = 0

    def left_s(self) -> float:
        return max(0.0, (self.ns - clock.now_ns()) / 1e9)


class Transport:
    """Connections to one service, kept for the next call.

    Raises StoreError where httpcore is not installed.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._httpcore = _httpcore()
        self._deadline = _Deadline()
        self._calls = BoundedCalls("launchkit-service")
        backend = network(self._httpcore, self._deadline.left_s)
        tls = ssl.create_default_context() if address.scheme == "https" else None
        self._pool: Any = self._httpcore.ConnectionPool(
            ssl_context=tls, max_connections=8, keepalive_expiry=KEPT_S, network_backend=backend
        )
        # httpcore leaves the sockets of a pool that is dropped to the garbage collector.
        weakref.finalize(self, _close, self._pool, os.getpid())

    def send(self, call: Call) -> Answer:
        """Return the answer, whatever its status.

        Raises ServiceError: ``unreachable``, ``slow``, or ``bad-answer`` for what is no HTTP, too
        large, packed, or a redirect.
        """
        deadline_ns = clock.now_ns() + int(call.timeout_s * 1e9)

        def work() -> Answer:
            self._deadline.ns = deadline_ns
            return self._try(call)

        if not _is_sendable(call):
            self._refuse("unreachable", "cannot be asked with such a path, header or token")

        try:
            answer: Answer = self._calls.run(work, call.timeout_s)
        except TimeoutError:
            self._refuse("slow", f"gave no whole answer within {call.timeout_s:g} s")
        except NoThreadError:
            self._refuse("unreachable", "cannot be asked: no thread can be started")
        return answer

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def _try(self, call: Call) -> Answer:
        """Ask; once more where a kept connection turns out to have been closed."""
        core = self._httpcore
        for may_repeat in (call.method in _REPEATABLE, False):
            try:
                return self._exchange(call)
            except (core.ReadError, core.WriteError, core.RemoteProtocolError) as error:
                if may_repeat:
                    continue
                broken = isinstance(error, core.RemoteProtocolError)
                self._refuse("bad-answer" if broken else "unreachable", _said(error))
            except core.TimeoutException:
                self._refuse("slow", f"gave no whole answer within {call.timeout_s:g} s")
            except (core.NetworkError, core.ProtocolError, OSError, UnicodeError) as error:
                self._refuse("unreachable", _said(error))
        raise AssertionError  # the second turn returns or raises

    def _exchange(self, call: Call) -> Answer:
        with self._pool.stream(
            call.method, self._url(call), headers=_headers(call), content=call.body
        ) as response:
            headers = {
                name.decode("ascii", "replace").lower(): value.decode("latin-1")
                for name, value in response.headers
            }
            self._check(call, response.status, headers)
            return Answer(response.status, headers, self._read(call, response))

    def _url(self, call: Call) -> str:
        address = self._address
        return f"{address.scheme}://{address.netloc}{address.prefix}{call.path}"

    def _check(self, call: Call, status: int, headers: Mapping[str, str]) -> None:
        if 300 <= status < 400 and status != 304:
            self._refuse("bad-answer", f"redirects ({status}), which is not followed", status)
        packing = headers.get("content-encoding", "identity").lower()
        if packing != "identity" and not (packing == "gzip" and call.takes_gzip):
            self._refuse("bad-answer", f"answered packed by {packing!r}, unasked", status)
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:20]) > call.limit_bytes:
            self._refuse("bad-answer", f"answered more than {call.limit_bytes} bytes", status)

    def _read(self, call: Call, response: Any) -> bytes:
        body = bytearray()
        for chunk in response.iter_stream():
            body += chunk
            if len(body) > call.limit_bytes:
                self._refuse(
                    "bad-answer", f"answered more than {call.limit_bytes} bytes", response.status
                )
        return bytes(body)

    def _refuse(self, reason: str, what: str, status: int | None = None) -> NoReturn:
        raise ServiceError(self._address.text, reason, what, status=status) from None


def _headers(call: Call) -> list[tuple[str, str]]:
    packing = "gzip" if call.takes_gzip else "identity"
    return [
        ("Accept-Encoding", packing),
        ("User-Agent", "launchkit"),
        *call.headers.items(),
    ]


def _is_sendable(call: Call) -> bool:
    """Tell whether HTTP has room for all of it: what raises about a header may quote a token."""
    lines = [call.path, *call.headers, *call.headers.values()]
    return all(_LINE.fullmatch(line) for line in lines)


def _close(pool: Any, pid: int) -> None:
    """Close a pool's connections; those of the parent, in a forked child, are left alone.

    A thread that the child does not have may hold the pool's lock there, for ever.
    """
    if pid == os.getpid():
        pool.close()


def _said(error: Exception) -> str:
    return f"cannot be asked ({str(error) or type(error).__name__})"


def _httpcore() -> ModuleType:
    """Import it when a service is used: launches without one must not pay for it."""
    try:
        import httpcore
    except ImportError as error:
        raise StoreError(
            f"a config service needs the package httpcore ({error}). Install it with: pip install "
            "'launchkit-triton[service]'."
        ) from None
    return httpcore


def network(core: Any, left_s: Callable[[], float]) -> Any:
    """Return httpcore's network, each of whose steps ends by the deadline of the call it is for.

    httpcore's own timeouts begin anew with each step, so a byte a second would never be too slow.
    """

    class Stream(core.NetworkStream):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            self._inner = inner
            # A call that outlives its pool leaves its connection to nobody.
            self._end = weakref.finalize(self, inner.close)

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            with _in_time(core.ReadTimeout, left_s()) as seconds:
                data: bytes = self._inner.read(max_bytes, seconds)
            return data

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            for start in range(0, len(buffer), _CHUNK_BYTES):
                with _in_time(core.WriteTimeout, left_s()) as seconds:
                    self._inner.write(buffer[start : start + _CHUNK_BYTES], seconds)

        def close(self) -> None:
            self._end()

        def start_tls(
            self, ssl_context: Any, server_hostname: Any = None, timeout: float | None = None
        ) -> Any:
            with _in_time(core.ConnectTimeout, left_s()) as seconds:
                return Stream(self._inner.start_tls(ssl_context, server_hostname, seconds))

        def get_extra_info(self, info: str) -> Any:
            return self._inner.get_extra_info(info)

    class Backend(core.SyncBackend):  # type: ignore[misc]
        def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> Any:
            with _in_time(core.ConnectTimeout, left_s()) as seconds:
                return Stream(
                    super().connect_tcp(host, port, seconds, local_address, socket_options)
                )

    return Backend()


@contextlib.contextmanager
def _in_time(late: type[Exception], seconds: float) -> Iterator[float]:
    if seconds <= 0:
        raise late
    yield seconds
