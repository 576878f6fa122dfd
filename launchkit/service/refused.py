"""A request that is refused, and the HTTP status of each reason. Of the server; no FastAPI."""

from __future__ import annotations

from launchkit.service.protocol import ErrorAnswer, ErrorCode, LeaseState

STATUS: dict[ErrorCode, int] = {
    "bad-request": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "absent": 404,
    "toolchain": 404,
    "no-namespace": 404,
    "no-snapshot": 404,
    "no-path": 404,
    "no-method": 405,
    "too-slow": 408,
    "lease-held": 409,
    "lease-lost": 409,
    "signed": 409,
    "not-merged": 409,
    "exists": 409,
    "changed": 412,
    "too-large": 413,
    "no-media": 415,
    "invalid": 422,
    "other-key": 422,
    "precondition-required": 428,
    "too-many": 429,
    "internal": 500,
    "unavailable": 503,
    "storage-full": 507,
}
"""By code, as docs/http-api.md has them."""


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """A request that is answered by an error; ``retry_after_s`` becomes Retry-After."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        etag: str | None = None,
        lease: LeaseState | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.answer = ErrorAnswer(code=code, message=message, etag=etag, lease=lease)
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """What an answer says of it in its head."""
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, round(self.retry_after_s)))}

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return STATUS[self.answer.code]
