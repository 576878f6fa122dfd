"""What no client may exceed: sizes, times and rates. Of the service's server.

``Guard`` stands before everything else and reads a request's whole body, so that nothing behind it
sees one that is too large or does not arrive.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeAlias

import anyio.to_thread
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from launchkit import clock
from launchkit.service import protocol
from launchkit.service.answers import refusal, refused_by_database
from launchkit.service.auth import without_secrets
from launchkit.service.options import ServiceSettings
from launchkit.service.refused import Refused

_access = logging.getLogger("launchkit.service.requests")
_SUBJECTS = 10_000
_LONGEST_RETRY_S = 86_400.0

Answered: TypeAlias = Callable[[str, str, int, float], None]
"""Told of each answer: method, route, status, seconds."""


class RateLimit:
    """A bucket per subject that fills at ``per_s`` and holds two seconds' worth. 0: no limit.

    It holds a request at least: a rate below one in two seconds lets through what it says.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._holds = max(1.0, 2 * per_s)
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def spend(self, subject: str) -> None:
        """Take one request from a subject's bucket. Raises Refused where it is empty."""
        if self._per_s <= 0:
            return
        now_ns = clock.now_ns()
        with self._lock:
            left, then_ns = self._buckets.pop(subject, (self._holds, now_ns))
            left = min(self._holds, left + self._per_s * (now_ns - then_ns) / 1e9)
            self._buckets[subject] = (max(0.0, left - 1.0) if left >= 1.0 else left, now_ns)
            if len(self._buckets) > _SUBJECTS:
                self._buckets.popitem(last=False)
        if left < 1.0:
            raise Refused(
                "too-many",
                f"more than {self._per_s:g} requests a second. Wait, and ask for several records "
                "in one lookup.",
                retry_after_s=min(max(1.0, 1.0 / self._per_s), _LONGEST_RETRY_S),
            )


class Guard:
    """ASGI middleware: numbers requests, reads bodies within limits, and writes the access log."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServiceSettings,
        answered: Answered,
        refuse_upload: Callable[[str, str | None], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._answered = answered
        self._refuse_upload = refuse_upload
        self._uploads = asyncio.Semaphore(2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["launchkit_request"] = secrets.token_hex(6)
        answer = _Answer(scope, send)
        try:
            if _is_upload(scope):
                await self._take_upload(scope, receive, answer)
            else:
                await self._serve(scope, receive, answer)
        finally:
            answer.tell(self._answered)

    async def _take_upload(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Take a bundle, two at a time; who may not write is told before a byte of it is read."""
        shown = dict(scope["headers"]).get(b"authorization")
        authorization = None if shown is None else shown.decode("latin-1")
        try:
            address = (scope.get("client") or ("",))[0]
            await anyio.to_thread.run_sync(self._refuse_upload, address, authorization)
        except (Refused, SQLAlchemyError) as error:
            number = scope["launchkit_request"]
            refused = error if isinstance(error, Refused) else refused_by_database(error, number)
            await refusal(refused, number)(scope, receive, answer.send)
            return
        async with self._uploads:
            await self._serve(scope, receive, answer)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        limit_bytes, timeout_s = self._limits(scope)
        try:
            body: bytes | None = b""
            if _check_head(scope, limit_bytes):
                body = await asyncio.wait_for(_read(receive, limit_bytes), timeout_s)
        except asyncio.TimeoutError:
            refused = Refused("too-slow", f"no whole request in {timeout_s:g} s. Send it again.")
            await refusal(refused, scope["launchkit_request"])(scope, receive, answer.send)
        except Refused as refused:
            await refusal(refused, scope["launchkit_request"])(scope, receive, answer.send)
        else:
            if body is not None:  # else the client has gone
                await self._app(scope, _Replay(body, receive), answer.send)

    def _limits(self, scope: Scope) -> tuple[int, float]:
        if _is_upload(scope):
            return self._settings.bundle_limit_bytes, 10 * self._settings.body_timeout_s
        if scope["method"] == "PUT" and "/records/" in scope["path"]:
            return self._settings.document_limit_bytes, self._settings.body_timeout_s
        return protocol.REQUEST_LIMIT_BYTES, self._settings.body_timeout_s


class _Answer:
    """What goes back: with the request's number, no sniffing, and a line in the log."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self._start_ns = clock.now_ns()
        self._status = 500  # what whoever stands before this sends, if nothing here does

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            number = self._scope["launchkit_request"].encode()
            message["headers"] = [
                *message.get("headers", ()),
                (protocol.HEADER_REQUEST.lower().encode(), number),
                (b"x-content-type-options", b"nosniff"),
            ]
        await self._send(message)

    def tell(self, answered: Answered) -> None:
        seconds = (clock.now_ns() - self._start_ns) / 1e9
        # Each path, and each word for a method, would be a series: only what is served is one.
        route = getattr(self._scope.get("route"), "path", "none")
        served = route != "none" and self._status != HTTPStatus.METHOD_NOT_ALLOWED
        method = self._scope["method"] if served else "none"
        answered(method, route, self._status, seconds)
        # The query and the headers may hold what is nobody's business; a path may hold anything.
        _access.info(
            "%s %s %s %d %.1f ms by %s",
            self._scope["launchkit_request"],
            self._scope["method"],
            ascii(without_secrets(self._scope["path"])[:500])[1:-1],
            self._status,
            1000 * seconds,
            self._scope.get("launchkit_caller", "nobody"),
        )


class _Replay:
    """A body that is there already, then whatever the client does."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _is_upload(scope: Scope) -> bool:
    return bool(scope["method"] == "POST" and scope["path"].endswith("/bundle"))


def _check_head(scope: Scope, limit_bytes: int) -> bool:
    """Tell whether there is a body to read. Raises Refused for one that is not taken."""
    headers = dict(scope["headers"])
    encoding = headers.get(b"content-encoding", b"identity").lower()
    # A bundle is unpacked by its reader, which knows how large it may become.
    known = (b"identity", b"gzip") if _is_upload(scope) else (b"identity",)
    if encoding not in known:
        raise Refused("no-media", "the body is packed. Send it as it is; a bundle may be in gzip.")
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > limit_bytes:
        raise _too_large(limit_bytes)
    return length != b"0" or b"transfer-encoding" in headers


async def _read(receive: Receive, limit_bytes: int) -> bytes | None:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limit_bytes: int) -> Refused:
    return Refused(
        "too-large", f"the request has more than {limit_bytes} bytes. Send less, or in parts."
    )
