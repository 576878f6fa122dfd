"""A config service in this process, over real HTTP, on either kind of database."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from launchkit.configs import TunedRecord
from launchkit.service import protocol, signing
from launchkit.service.options import ServiceSettings

# What needs the service's extra is imported late: a conftest has these fixtures.
if TYPE_CHECKING:
    import httpx

    from launchkit.service.context import Service

_numbers = itertools.count()


@dataclass
class Served:
    """A running service, and how tests talk to it."""

    service: Service
    http: httpx.Client
    namespace: str = protocol.DEFAULT_NAMESPACE
    headers: dict[str, str] = field(default_factory=dict)

    def token(self, scope: str = "write", *namespaces: str) -> dict[str, str]:
        """The header that shows a new token, for this namespace unless others are named."""
        from launchkit.service import auth

        allowed = namespaces or (self.namespace,)
        return dict(
            protocol.bearer(auth.create_token(self.service.database, scope, scope, allowed))
        )

    def path(self, rest: str) -> str:
        return protocol.namespace_path(self.namespace, rest)

    def put(self, record: TunedRecord, *, at: TunedRecord | None = None, **headers: str):
        """PUT a record where it, or another one, belongs."""
        path = protocol.record_path(self.namespace, at or record)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.put(path, content=signing.body(record), headers={**self.headers, **sent})

    def get(self, record: TunedRecord, **headers: str) -> httpx.Response:
        path = protocol.record_path(self.namespace, record)
        query = {"toolchain": record.toolchain.triton}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.get(path, params=query, headers={**self.headers, **sent})

    def send(self, method: str, rest: str, **options: Any) -> httpx.Response:
        """A request below the namespace."""
        headers = {**self.headers, **options.pop("headers", {})}
        return self.http.request(method, self.path(rest), headers=headers, **options)


@contextlib.contextmanager
def serving(database_url: str, **options: Any) -> Iterator[Served]:
    """Serve a database until the block ends; requests are refused by nothing but ``options``."""
    import httpx
    import uvicorn

    from launchkit.service.app import create_app

    settings = ServiceSettings(
        database_url, **{"flush_s": 0.05, "threads": 4, "guesses_per_s": 0.0, **options}
    )
    app = create_app(settings)
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield Served(app.state.service, client)
    finally:
        server.should_exit = True
        thread.join()


def _on(kind: str, request: pytest.FixtureRequest, tmp: Any) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp / 'service.db'}"
    return request.getfixturevalue("postgres").create_database()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def any_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service on each kind of database, for a whole module."""
    url = _on(request.param, request, tmp_path_factory.mktemp("service"))
    with serving(url) as served:
        yield served


@pytest.fixture
def served(any_service: Served) -> Served:
    """The same with a namespace of the test's own, and a token to write there."""
    from launchkit.service import spaces

    name = f"test-{next(_numbers)}"
    spaces.make(any_service.service.database, name, "a test")
    here = Served(any_service.service, any_service.http, name)
    here.headers = here.token("write")
    return here


@pytest.fixture(scope="module")
def sqlite_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service on SQLite alone: for what no database has a part in."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('service') / 'service.db'}") as served:
        served.headers = served.token("write")
        yield served
