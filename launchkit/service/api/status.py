"""HTTP: whether the server works, and how. Of the service's server."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from launchkit import __version__, clock
from launchkit.service import metrics, migrating
from launchkit.service.answers import documented
from launchkit.service.context import service
from launchkit.service.protocol import StatusAnswer
from launchkit.service.refused import Refused

router = APIRouter(tags=["status"])
_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", operation_id="healthz", response_class=Response, responses={200: _TEXT})
def healthz() -> Response:
    """Say that the process answers: for who restarts it."""
    return Response("ok\n", media_type="text/plain")


@router.head("/readyz", include_in_schema=False)
@router.get(
    "/readyz",
    operation_id="readyz",
    response_class=Response,
    responses={**documented(), 200: _TEXT},
)
def readyz(request: Request) -> Response:
    """Say whether requests can be served, database included: for load balancers."""
    here = service(request)
    with here.database.reading() as connection:
        found = migrating.version(connection)
    if found != here.schema:
        raise Refused(
            "unavailable", f"the database has schema {found} by now. Restart this server.",
            retry_after_s=5.0,
        )  # fmt: skip
    return Response("ready\n", media_type="text/plain")


@router.get("/status", operation_id="status", response_model=StatusAnswer, responses=documented())
def status(request: Request) -> StatusAnswer:
    """Return what the server is, and how much it holds."""
    here = service(request)
    here.admit_somewhere(request)
    return StatusAnswer(
        version=__version__,
        schema_version=here.schema,
        database=here.database.kind,
        uptime_s=(clock.now_ns() - here.started_ns) / 1e9,
        **metrics.sizes(here.database),
    )


@router.get("/metrics", operation_id="metrics", response_class=Response,
            responses={**documented(), 200: _TEXT})  # fmt: skip
def exposition(request: Request) -> Response:
    """Return counters and latencies for Prometheus. Needs a token that reads, or open reads."""
    here = service(request)
    here.admit_somewhere(request)
    return Response(here.metrics.exposition(), headers={"Content-Type": metrics.CONTENT_TYPE})
