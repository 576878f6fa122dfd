"""One server process: its socket, its signals, its log. Of the service's server."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from launchkit.errors import UsageError
from launchkit.service import auth, db
from launchkit.service.app import create_app
from launchkit.service.context import Service
from launchkit.service.hosts import is_loopback
from launchkit.service.options import ServiceSettings

_access = logging.getLogger("launchkit.service.requests")
_SHUTDOWN_S = 15


@dataclass(frozen=True)
class Listening:
    """Where a server listens, and what it may be told about that."""

    host: str = "127.0.0.1"
    port: int = 8477
    """0: any that is free."""
    allow_no_tokens: bool = False
    """Whether others may reach it though it has no tokens, or needs none for writing."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of load balancers whose X-Forwarded-For is believed."""


def serve(
    settings: ServiceSettings, listening: Listening, ready: Callable[[str, Service], None]
) -> None:
    """Serve until SIGTERM or SIGINT; requests in progress are finished then.

    ``ready`` gets the URL when requests are answered. Raises UsageError for an address that
    cannot be had, or that others could reach without tokens; StoreError for a bad database.
    """
    with db.usable(db.connect(settings)) as database:
        app = create_app(settings, database)
        service: Service = app.state.service
        _refuse_open_door(service, listening)
        with _socket(listening) as bound:
            _run(app, listening, bound, lambda: ready(_url(listening.host, bound), service))


@contextlib.contextmanager
def logged_to_stderr() -> Iterator[None]:
    """Write a line per request to stderr: time, number, method, path, status, duration, caller."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    before = (_access.level, _access.propagate)
    _access.addHandler(handler)
    _access.setLevel(logging.INFO)
    _access.propagate = False
    try:
        yield
    finally:
        _access.removeHandler(handler)
        _access.setLevel(before[0])
        _access.propagate = before[1]


class _Server(uvicorn.Server):
    """Tells when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, then tell."""
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()


def _run(app: Any, listening: Listening, bound: socket.socket, ready: Callable[[], None]) -> None:
    proxies = list(listening.trusted_proxies)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or "127.0.0.1",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        backlog=2048,
    )
    # uvicorn raises the signal once more when it has ended: that is to be the end of it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    _Server(config, ready).run(sockets=[bound])


def _refuse_open_door(service: Service, listening: Listening) -> None:
    if is_loopback(listening.host) or listening.allow_no_tokens:
        return
    if service.settings.open_writes or not auth.has_tokens(service.database):
        problem = (
            "with --open-writes nobody needs a token to write. Leave that out."
            if service.settings.open_writes
            else "there are no tokens. Make one with: launchkit serve token create NAME."
        )
        raise UsageError(
            f"{listening.host} can be reached by others, and {problem} Or say --allow-no-tokens."
        )


def _socket(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((listening.host, listening.port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise UsageError(
            f"{listening.host} port {listening.port} cannot be listened on: {error}. Give another "
            "--host or --port."
        ) from None
    return bound


def _url(host: str, bound: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{bound.getsockname()[1]}"
