"""What an answer of the service may be trusted to say: a record, or nothing. Under store.py."""

from __future__ import annotations

from dataclasses import dataclass

from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError, ServiceError
from launchkit.service import protocol, signing
from launchkit.service.client.transport import Answer
from launchkit.store import document
from launchkit.store.flights import Identity


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose records are taken: with a secret, those that were signed with it for the namespace."""

    place: str
    namespace: str
    secret: bytes | None

    def record(self, answer: Answer, identity: Identity) -> TunedRecord:
        """Return the record of exactly this identity that is in an answer.

        Raises ServiceError: ``bad-answer``, ``newer-schema``, ``foreign`` or ``unsigned``.
        """
        record = self._parse(answer)
        if record.identity != identity:
            what = f"answered with a record of {record.kernel.name} for another key"
            raise ServiceError(self.place, "foreign", what, status=answer.status)
        self.check(record, answer.headers.get(protocol.HEADER_SIGNATURE.lower()))
        return record

    def check(self, record: TunedRecord, signature: str | None) -> None:
        """Raise ServiceError where a signature is needed and is not the record's."""
        if self.secret is None:
            return
        if not signing.is_signed(self.secret, self.namespace, record, signature):
            what = f"has a record of {record.kernel.name} that this team did not sign"
            raise ServiceError(self.place, "unsigned", what)

    def headers(self, record: TunedRecord) -> dict[str, str]:
        """Return the headers that sign a record."""
        if self.secret is None:
            return {}
        return {protocol.HEADER_SIGNATURE: signing.sign(self.secret, self.namespace, record)}

    def _parse(self, answer: Answer) -> TunedRecord:
        try:
            (record,) = document.parse(answer.body, source=self.place).records
        except BadDocumentError as error:
            reason = "newer-schema" if error.newer else "bad-answer"
            what = f"answered with no config document ({error.reason})"
            raise ServiceError(self.place, reason, what, status=answer.status) from None
        except ValueError:
            what = "answered with other than one record"
            raise ServiceError(self.place, "bad-answer", what, status=answer.status) from None
        return record
