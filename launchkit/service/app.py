"""The server's application: what serves which path. Of the service; needs FastAPI, no torch."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import anyio.to_thread
from fastapi import FastAPI

from launchkit.service import answers, db, migrating, openapi, web
from launchkit.service.api import bundles, leases, records, status
from launchkit.service.context import Service
from launchkit.service.db import Database
from launchkit.service.limits import Guard
from launchkit.service.options import ServiceSettings


def create_app(settings: ServiceSettings, database: Database | None = None) -> FastAPI:
    """Return the application over a database, which is checked and brought up to date first.

    Without ``database`` it is the one that the settings name. Raises UsageError for a bad URL,
    StoreError for a database that cannot be served, SQLAlchemy's errors for one that fails.
    """
    database = db.connect(settings) if database is None else database
    schema = migrating.prepare(database, migrate=settings.migrate)
    service = Service(settings, database, schema)
    app = FastAPI(
        title="launchkit config service",
        version="1",
        summary="Tuned configs of Triton kernels: tune once, everywhere.",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        # A redirect would lead to whatever host the request names.
        redirect_slashes=False,
        lifespan=_lifespan(service),
    )
    app.state.service = service
    answers.install(app)
    for part in (records, leases, bundles, status):
        answers.serve(app, part.router)
    web.install(app, settings.threads)
    # FastAPI's own way of extending its document is to replace the method.
    app.openapi = openapi.publisher(app)  # type: ignore[method-assign]
    app.add_middleware(
        Guard,
        settings=settings,
        answered=service.metrics.answered,
        refuse_upload=service.refuse_upload,
    )
    return app


def _lifespan(
    service: Service,
) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = service.settings.threads
        service.start()
        yield
        await anyio.to_thread.run_sync(service.close)

    return lifespan
