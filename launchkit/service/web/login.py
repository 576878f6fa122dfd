"""Logging in with a token and out again, and the files that pages load. Of the service's page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from launchkit.service.api.parameters import Body
from launchkit.service.context import service
from launchkit.service.refused import Refused
from launchkit.service.web import pages, session
from launchkit.service.web.rendering import MEDIA, page, static

router = pages.router()


@router.get("/login")
def login(request: Request, to: Annotated[str, Query(max_length=2000)] = "/") -> Response:
    """Ask for a token."""
    return page("login.html", None, to=session.page_of(to), problem="")


@router.post("/login")
def log_in(request: Request, body: Body) -> Response:
    """Keep the token in a cookie, if it is in force; say what is wrong with it otherwise."""
    here = service(request)
    form = session.fields(request, body)
    session.refuse_foreign(request)
    token, to = form.get("token", "").strip(), session.page_of(form.get("to", "/"))
    try:
        # An empty one is what everybody has; it needs no logging in.
        here.visitor(request, token or "none")
    except Refused as refused:
        problem = refused.answer.message
        return page("login.html", None, refused.status, to=to, problem=problem)
    answer = session.see_other(to)
    session.remember(here, answer, token)
    return answer


@router.post("/logout")
def log_out(request: Request, body: Body) -> Response:
    """Have the browser forget the token."""
    session.refuse_foreign(request)
    answer = session.see_other("/login")
    session.forget(service(request), answer)
    return answer


@router.get("/assets/{version}/{name}")
def asset(version: str, name: str) -> Response:
    """Give a file that pages load; its path changes with its content."""
    try:
        data, digest = static(name)
    except KeyError:
        raise Refused("no-path", "there is no such file. Load the page again.") from None
    lasts = "public, max-age=31536000, immutable" if version == digest else "no-cache"
    return Response(data, headers={"Cache-Control": lasts}, media_type=MEDIA[name])


@router.get("/web/{rest:path}")
def nothing(rest: str) -> Response:
    """Answer any other path below the pages."""
    raise Refused("no-path", "there is no such page. Begin at the first one.")
