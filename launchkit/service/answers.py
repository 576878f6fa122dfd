"""Refusals, and how each becomes an answer. Of the service's server."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeAlias

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from launchkit.errors import BadDocumentError, UsageError
from launchkit.service.protocol import ErrorAnswer, ErrorCode
from launchkit.service.refused import STATUS, Refused

_log = logging.getLogger("launchkit")

DATABASE_FAILURES = (DatabaseError, InterfaceError, PoolTimeoutError)
"""What SQLAlchemy raises where the database fails: down, locked, full, damaged, read-only."""
_OURS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
_NOT_OUR_SCHEMA = ("42P01", "42703", "42501")
"""No such table, no such column, no right to it: the database was made anew, or is a newer one."""
_CODES: dict[int, ErrorCode] = {404: "no-path", 405: "no-method"}
_FULL = re.compile(r"disk is full|No space left|could not extend file", re.IGNORECASE)


def request_number(request: Request) -> str:
    """Return the number that a request has in its answer and in the server's log."""
    return str(request.scope.get("launchkit_request", ""))


def refusal(refused: Refused, number: str = "") -> Response:
    """Return the answer of a refusal, to the request of this number."""
    answer = refused.answer.model_copy(update={"request": number})
    headers = refused.headers
    if refused.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if answer.etag is not None:
        headers["ETag"] = f'"{answer.etag}"'
    data = answer.model_dump_json(exclude_none=True)
    return Response(data, refused.status, headers, media_type="application/json")


def documented(*codes: ErrorCode) -> dict[int | str, dict[str, Any]]:
    """Return these errors, and those of every path, for the OpenAPI document."""
    every: tuple[ErrorCode, ...] = (
        "bad-request", "unauthenticated", "forbidden", "no-namespace", "too-slow", "too-large",
        "no-media", "invalid", "too-many", "internal", "unavailable",
    )  # fmt: skip
    found: dict[int | str, dict[str, Any]] = {}
    for code in (*every, *codes):
        entry = found.setdefault(STATUS[code], {"model": ErrorAnswer, "description": ""})
        entry["description"] = ", ".join(filter(None, (entry["description"], code)))
    return found


def refused_by_database(error: Exception, number: str) -> Refused:
    """Return what a failure of the database means for a request, and log it.

    Raises it again where it is the statement that is wrong, and not the database.
    """
    sqlstate = getattr(getattr(error, "orig", None), "sqlstate", None)
    ours = isinstance(error, _OURS) and sqlstate not in _NOT_OUR_SCHEMA
    if ours or not isinstance(error, DATABASE_FAILURES):
        raise error
    _log.error("request %s: the database failed: %s", number, getattr(error, "orig", error))
    text = str(getattr(error, "orig", error))
    if _FULL.search(text) or sqlstate == "53100":
        return Refused(
            "storage-full", "the server's disk is full; nothing was stored. Make room there."
        )
    return Refused(
        "unavailable", "the database does not answer. Try again later.", retry_after_s=2.0
    )


def serve(app: FastAPI, router: APIRouter) -> None:
    """Have the application serve what a router has, and know it for ``Allow``."""
    app.include_router(router)
    app.state.routes = [*getattr(app.state, "routes", app.router.routes), *router.routes]


_Judge: TypeAlias = Callable[[Exception, str], Refused]
"""What a failure means for the request of this number."""


def install(app: FastAPI) -> None:
    """Have every failure of a request answered by an ``ErrorAnswer``."""
    judges: dict[type[Exception], _Judge] = {
        Refused: _itself,
        RequestValidationError: _invalid,
        BadDocumentError: _bad,
        UsageError: _bad,
        HTTPException: _unserved,
        **dict.fromkeys(DATABASE_FAILURES, refused_by_database),
        Exception: _broken,
    }
    for kind, judge in judges.items():
        app.add_exception_handler(kind, _answering(app, judge))


def _answering(app: FastAPI, judge: _Judge) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        number = request_number(request)
        refused = judge(error, number)
        made = refusal(refused, number)
        if refused.status == HTTPStatus.METHOD_NOT_ALLOWED:
            made.headers["Allow"] = ", ".join(_methods(app, request.url.path))
        return made

    return answer


def _itself(error: Exception, number: str) -> Refused:
    assert isinstance(error, Refused)
    return error


def _invalid(error: Exception, number: str) -> Refused:
    assert isinstance(error, RequestValidationError)
    return Refused("invalid", _first_problem(error))


def _bad(error: Exception, number: str) -> Refused:
    return Refused("invalid", str(error))


def _unserved(error: Exception, number: str) -> Refused:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "bad-request")
    return Refused(code, f"{error.detail}. See docs/http-api.md for what is served.")


def _broken(error: Exception, number: str) -> Refused:
    _log.error("request %s failed", number, exc_info=error)
    message = "the server failed at this request. Report it with the request's number."
    return Refused("internal", message)


def _methods(app: FastAPI, path: str) -> list[str]:
    """Return what a path can be asked for; one that is served by several routes, by all of them."""
    scope = {"type": "http", "path": path, "root_path": "", "method": ""}
    found: set[str] = set()
    for route in app.state.routes:
        if route.matches(scope)[0] != Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


def _first_problem(error: RequestValidationError) -> str:
    problem = error.errors()[0]
    if problem.get("loc") == ("body",):
        return "the body is no JSON object. Send one, with Content-Type: application/json."
    place = ".".join(str(part) for part in problem.get("loc", ()))
    return f"{place}: {problem.get('msg', 'not valid')}. See docs/http-api.md for what is taken."
