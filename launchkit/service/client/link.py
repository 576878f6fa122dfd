"""The client's link to one service: whom to ask, with which token, and when not. Under store.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from launchkit import jsonio
from launchkit.errors import BadDocumentError, ServiceError
from launchkit.service import protocol
from launchkit.service.client.breaker import CircuitBreaker
from launchkit.service.client.transport import Answer, Call, Transport
from launchkit.service.client.urls import Address

ANYBODY = "-"
"""Instead of a token: none is shown, and writes are tried all the same."""
_SMALL_BYTES = 65536
_MESSAGE_LIMIT = 500
_WORTH_WAITING = {429, 503}
_REFUSALS = {401, 403, 408, 429}


class Link:
    """Asks one service. Every method may be called from any thread.

    ``reads`` and ``leases`` are the circuits of those requests; an open circuit costs nothing.
    """

    def __init__(self, address: Address, token: str | None, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.has_token = token is not None
        """Whether it may write at all."""
        self._token = None if token == ANYBODY else token
        self._transport = Transport(address)
        self.reads = CircuitBreaker(self._is_ready)
        self.leases = CircuitBreaker(self._is_ready)

    def ask(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float | None = None,
        limit_bytes: int = _SMALL_BYTES,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        takes_gzip: bool = False,
    ) -> Answer:
        """Return an answer below 400, or one that says absent (404), held or changed (409, 412,
        428).

        Raises ServiceError for everything else.
        """
        sent = {**(headers or {}), **({} if self._token is None else protocol.bearer(self._token))}
        call = Call(method, path, timeout_s or self.timeout_s, limit_bytes, sent, body, takes_gzip)
        answer = self._transport.send(call)
        self._refuse_error(answer)
        return answer

    @contextlib.contextmanager
    def guarded(self, circuit: CircuitBreaker, *, patient: bool) -> Iterator[None]:
        """Let a circuit hear how the asking in the ``with`` block goes.

        Raises ServiceError while it is open, unless ``patient``.
        """
        if circuit.is_open and not patient:
            raise self.error("unreachable", "has not answered lately")
        try:
            yield
        except ServiceError as error:
            refused = error.status is not None and (error.status >= 500 or error.status == 429)
            if refused or error.reason in ("unreachable", "slow", "bad-answer"):
                circuit.failed(error.retry_after_s)
            raise
        circuit.succeeded()

    def send_json(self, method: str, path: str, message: BaseModel, **options: Any) -> Answer:
        """Ask with a request of the protocol as the body."""
        body = jsonio.dumps_compact(message.model_dump(mode="json"))
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        return self.ask(method, path, body=body, headers=headers, **options)

    def told(self, answer: Answer) -> protocol.ErrorAnswer | None:
        """Return what an answer above 399 says, if it is the service's own words.

        Its message goes into logs: it is cut, and shows the token of no careless or lying service.
        """
        try:
            told: protocol.ErrorAnswer = read_message(answer, protocol.ErrorAnswer)
        except ServiceError:
            return None
        message = told.message if self._token is None else told.message.replace(self._token, "…")
        return told.model_copy(update={"message": message[:_MESSAGE_LIMIT].rstrip(".")})

    def refusal(self, answer: Answer, what: str, status: int | None = None) -> ServiceError:
        """Return the error of an answer that is none: what it did, its status, its own words."""
        told = self.told(answer)
        said = "" if told is None else f": {told.message}"
        problem = f"{what} ({answer.status}{said})"
        return self.error("refused", problem, answer.status if status is None else status)

    def error(self, reason: str, what: str, status: int | None = None) -> ServiceError:
        """Return what is wrong with this service; ``reason`` as in ServiceError."""
        return ServiceError(self.address.text, reason, what, status=status)

    def close(self) -> None:
        """Close every connection."""
        self._transport.close()

    def _is_ready(self) -> bool:
        call = Call("GET", "/readyz", max(self.timeout_s, 2.0), _SMALL_BYTES, {})
        with contextlib.suppress(ServiceError):
            return self._transport.send(call).status == 200
        return False

    def _refuse_error(self, answer: Answer) -> None:
        status = answer.status
        if status < 400:
            return
        told = self.told(answer)
        if told is None and status < 500 and status not in _REFUSALS:
            what = f"answered {status} and nothing that a config service says"
            raise self.error("bad-answer", what, status)
        if status >= 500 or status in _REFUSALS or status in (400, 405, 413, 415, 422):
            raise ServiceError(
                self.address.text,
                "refused",
                f"refused it ({status}{'' if told is None else f': {told.message}'})",
                status=status,
                retry_after_s=_retry_after_s(answer),
            )


def read_message(answer: Answer, kind: type[Any], place: str = "the service") -> Any:
    """Return the message of the protocol in an answer; ServiceError for anything else."""
    try:
        raw = jsonio.loads(answer.body, source=place, limit_bytes=protocol.ANSWER_LIMIT_BYTES)
        return kind.model_validate(raw)
    except (BadDocumentError, ValidationError):
        problem = f"answered {answer.status} with something else than {kind.__name__}"
        raise ServiceError(place, "bad-answer", problem, status=answer.status) from None


def _retry_after_s(answer: Answer) -> float | None:
    """Return when to come back, in seconds; dates, which need equal clocks, are not taken."""
    text = answer.headers.get("retry-after", "").strip()
    if answer.status not in _WORTH_WAITING or not (text.isascii() and text.isdigit()):
        return None
    return float(text[:9])
