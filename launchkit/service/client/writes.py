"""How a record gets to the service: merged there, or here where it is signed. Under store.py."""

from __future__ import annotations

from launchkit.configs import TunedRecord, merge_records
from launchkit.errors import ServiceError
from launchkit.service import protocol, signing
from launchkit.service.client.link import Link, read_message
from launchkit.service.client.transport import Answer
from launchkit.service.client.trust import Trust
from launchkit.service.client.write_behind import Sent

_TRIES = 5
_STOPPING = {401, 403}
_FINAL = {400, 413, 415, 422}


class Writer:
    """Gives records to one namespace."""

    def __init__(self, link: Link, trust: Trust) -> None:
        self._link, self._trust = link, trust

    def send(self, record: TunedRecord, timeout_s: float) -> None:
        """Merge a record into what the service has; it has it when this returns.

        Raises ServiceError: see ``outcome``.
        """
        if self._trust.secret is None:
            self._acknowledged(self._put(record, {}, timeout_s))
        else:
            self._send_signed(record, timeout_s)

    def _send_signed(self, record: TunedRecord, timeout_s: float) -> None:
        """A signature covers the whole record: what is stored is merged here, and signed anew."""
        for _ in range(_TRIES):
            condition, merged = self._merged(record, timeout_s)
            if condition is None:
                return
            answer = self._put(merged, condition | self._trust.headers(merged), timeout_s)
            if answer.status not in (409, 412, 428):  # somebody else was faster
                self._acknowledged(answer)
                return
        raise self._link.error("refused", "changed each time before it could be merged into")

    def _merged(
        self, record: TunedRecord, timeout_s: float
    ) -> tuple[dict[str, str] | None, TunedRecord]:
        """Return what is to be stored, and on what condition; None: it is stored already."""
        answer = self._link.ask(
            "GET",
            self._path(record),
            timeout_s=timeout_s,
            limit_bytes=protocol.DOCUMENT_LIMIT_BYTES,
        )
        told = self._link.told(answer) if answer.status == 404 else None
        if told is not None and told.code in ("absent", "toolchain"):
            return {"If-None-Match": "*"}, record
        if answer.status != 200:
            raise self._refused(answer)
        stored = self._signed(answer, record)
        merged = record if stored is None else merge_records(stored, record)
        if stored is not None and signing.body(merged) == signing.body(stored):
            return None, merged
        etag = protocol.unquoted(answer.headers.get("etag", ""))
        if etag is None:
            what = "gave a record without an entity tag"
            raise self._link.error("bad-answer", what, answer.status)
        return {"If-Match": protocol.quoted(etag)}, merged

    def _signed(self, answer: Answer, record: TunedRecord) -> TunedRecord | None:
        """Return what is stored; None: nobody has signed it, and it is to be replaced."""
        try:
            return self._trust.record(answer, record.identity)
        except ServiceError as error:
            unsigned = protocol.HEADER_SIGNATURE.lower() not in answer.headers
            if error.reason == "unsigned" and unsigned:
                return None
            raise

    def _put(self, record: TunedRecord, headers: dict[str, str], timeout_s: float) -> Answer:
        body = signing.body(record)
        if len(body) > protocol.DOCUMENT_LIMIT_BYTES:
            raise self._link.error("refused", f"takes no record of {len(body)} bytes", 413)
        return self._link.ask(
            "PUT",
            self._path(record),
            headers={"Content-Type": protocol.MEDIA_DOCUMENT, **headers},
            body=body,
            timeout_s=timeout_s,
        )

    def _path(self, record: TunedRecord) -> str:
        path = protocol.record_path(self._link.address.namespace, record)
        return protocol.of_toolchain(path, record.toolchain.triton)

    def _acknowledged(self, answer: Answer) -> None:
        """Anything else than the service's own words is no acknowledgement."""
        if answer.status >= 400:
            raise self._refused(answer)
        read_message(answer, protocol.PutAnswer, self._link.address.text)

    def _refused(self, answer: Answer) -> ServiceError:
        # A 404 or 409 that stays one: no namespace, or a signed record.
        return self._link.refusal(answer, "refused it", 403 if answer.status == 404 else 422)


def outcome(error: ServiceError) -> Sent:
    """Return what a failure to send means for this record and the next ones."""
    if error.status in _STOPPING:
        return "stop"
    final = error.status in _FINAL or error.reason in ("unsigned", "foreign", "newer-schema")
    return "never" if final else "later"
