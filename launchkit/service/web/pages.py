"""How pages answer: in one transaction, few at a time; failures as pages too. Of the page."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute

from launchkit.errors import BadDocumentError, UsageError
from launchkit.service import protocol, spaces
from launchkit.service.answers import refused_by_database, request_number
from launchkit.service.context import service
from launchkit.service.refused import Refused
from launchkit.service.web import session
from launchkit.service.web.rendering import page

_log = logging.getLogger("launchkit")

Words = Annotated[str, Query(max_length=200, pattern=protocol.PLAIN_OR_EMPTY_PATTERN)]
Device = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.~\-]{0,160}$")]

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A page: it waits until few others are being made, and fails as a page.

    Launches come first: what people look at never takes more than a quarter of the threads.
    """

    def get_route_handler(self) -> _Handler:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def answer_in_turn(request: Request) -> Response:
            turn: asyncio.Semaphore = request.app.state.pages_at_once
            async with turn:
                try:
                    return await answer(request)
                except Exception as error:  # noqa: BLE001 - whatever it is becomes a page
                    return _failed(request, _refusal(request, error))

        return answer_in_turn


def router() -> APIRouter:
    """Return a router of pages, which stand in no OpenAPI document."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)


def show(request: Request, namespace: str, template: str, read: Any, **values: Any) -> Response:
    """Return a page of a namespace, of what ``read`` finds in one transaction. Raises Refused."""
    visitor, here = session.reader(request, namespace), service(request)
    with here.database.streaming() as connection:
        spaces.require(connection, namespace)
        found = read(connection)
        now_ms = here.database.now_ms(connection)
    where: dict[str, Any] = {"space": namespace, "now_ms": now_ms, "path": request.url.path}
    return page(template, visitor, **where, **values, **found)


def as_file(data: bytes, name: str, media: str) -> Response:
    """Return a file to save."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(data, headers=headers, media_type=media)


def _refusal(request: Request, error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, RequestValidationError):
        problem = error.errors()[0]
        return Refused(
            "invalid", f"{problem['loc'][-1]}: {problem['msg']}. Go back and correct it."
        )
    if isinstance(error, BadDocumentError | UsageError):
        return Refused("invalid", str(error))
    number = request_number(request)
    with contextlib.suppress(Exception):
        return refused_by_database(error, number)
    _log.error("request %s failed", number, exc_info=error)
    return Refused("internal", "the server failed at this page. Report it with the number below.")


def _failed(request: Request, refused: Refused) -> Response:
    here = service(request)
    if refused.answer.code == "unauthenticated":
        wanted = request.url.path if request.method == "GET" else "/"
        query = f"?{request.url.query}" if request.url.query and request.method == "GET" else ""
        answer: Response = session.see_other(f"/login?to={quote(wanted + query, safe='/')}")
        if session.cookie(request) is not None:
            session.forget(here, answer)
        return answer
    number = request_number(request)
    told = page("failed.html", None, refused.status, refused=refused.answer, number=number)
    told.headers.update(refused.headers)
    return told
