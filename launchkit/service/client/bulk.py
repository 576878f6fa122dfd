"""Many records at once: bundles down and up, snapshots, and what they are worth. Under store.py.

Bundles are not signed. Where only signed records count, a bundle tells which there are, and each
is looked up with its signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError, ServiceError
from launchkit.service import protocol
from launchkit.service.client.link import Link, read_message
from launchkit.service.client.transport import Answer
from launchkit.service.client.trust import Trust
from launchkit.service.client.writes import Writer
from launchkit.store import bundle, document

_BATCH = 512


class Listing(NamedTuple):
    """What a namespace holds."""

    records: tuple[TunedRecord, ...]
    """Those that count."""
    unsigned: int = 0
    """How many do not, since they are not signed with this team's secret."""


class Bulk:
    """Lists of records from and to one namespace."""

    def __init__(self, link: Link, trust: Trust, writer: Writer) -> None:
        self._link, self._trust, self._writer = link, trust, writer

    def listed(self, kernel_name: str | None, timeout_s: float) -> Listing:
        """Return the namespace's records, or those of kernels of one name. Raises ServiceError."""
        query = "" if kernel_name is None else f"?kernel={quote(kernel_name, safe='')}"
        path = protocol.namespace_path(self._link.address.namespace, f"/bundle{query}")
        found = self._parsed(self._download(path, timeout_s))
        return Listing(found) if self._trust.secret is None else self._signed(found, timeout_s)

    def snapshot(self, digest: str, timeout_s: float) -> tuple[TunedRecord, ...]:
        """Return a snapshot's records, which its digest vouches for. Raises ServiceError."""
        path = protocol.namespace_path(
            self._link.address.namespace, f"/snapshots/{quote(digest, safe='')}"
        )
        answer = self._download(path, timeout_s)
        plain = self._unpacked(answer.body)
        if hashlib.sha256(plain).hexdigest() != digest:
            raise self._link.error("foreign", f"answered with another snapshot than {digest[:12]}…")
        return self._parsed(Answer(answer.status, answer.headers, plain))

    def send(
        self, records: Sequence[TunedRecord], timeout_s: float
    ) -> tuple[list[TunedRecord], ServiceError | None]:
        """Merge records into the namespace; return those it did not take, and the last reason."""
        refused: list[TunedRecord] = []
        problem: ServiceError | None = None
        several = iter(records)
        while batch := list(islice(several, _BATCH)):
            if self._trust.secret is not None:
                left, why = self._send_each(batch, timeout_s)
            else:
                left, why = self._send_bundle(batch, timeout_s)
            refused += left
            problem = why or problem
        return refused, problem

    def _send_bundle(
        self, batch: list[TunedRecord], timeout_s: float
    ) -> tuple[list[TunedRecord], ServiceError | None]:
        try:
            known = [record for record in batch if record.toolchain.known]
            answer = self._link.ask(
                "POST",
                protocol.namespace_path(self._link.address.namespace, "/bundle"),
                body=bundle.dump(known, compress=True),
                headers={"Content-Type": protocol.MEDIA_BUNDLE, "Content-Encoding": "gzip"},
                timeout_s=timeout_s,
            )
            if answer.status != 200:
                raise self._link.error("refused", f"refused a bundle ({answer.status})")
            done = read_message(answer, protocol.ImportAnswer, self._link.address.text)
        except ServiceError as error:
            return batch, error
        if not done.refused and len(known) == len(batch):
            return [], None
        return self._send_each(batch, timeout_s)  # to know which, and why

    def _send_each(
        self, batch: list[TunedRecord], timeout_s: float
    ) -> tuple[list[TunedRecord], ServiceError | None]:
        refused, problem = [], None
        for record in batch:
            try:
                self._writer.send(record, timeout_s)
            except ServiceError as error:
                refused.append(record)
                problem = error
                if error.reason in ("unreachable", "slow"):
                    return [*refused, *batch[batch.index(record) + 1 :]], problem
        return refused, problem

    def _download(self, path: str, timeout_s: float) -> Answer:
        answer = self._link.ask(
            "GET",
            path,
            timeout_s=timeout_s,
            limit_bytes=protocol.BUNDLE_LIMIT_BYTES,
            takes_gzip=True,
        )
        if answer.status != 200:
            raise self._link.error("refused", f"has no such records ({answer.status})")
        return answer

    def _parsed(self, answer: Answer) -> tuple[TunedRecord, ...]:
        try:
            return bundle.parse(answer.body, source=self._link.address.text).records
        except BadDocumentError as error:
            raise self._link.error(
                "bad-answer", f"answered with a bad bundle: {error.reason}"
            ) from None

    def _unpacked(self, data: bytes) -> bytes:
        try:
            plain, damage = bundle.unpack(data, source=self._link.address.text)
        except BadDocumentError as error:
            plain, damage = b"", error.reason
        if damage is not None:
            raise self._link.error("bad-answer", f"answered with a bad bundle: {damage}")
        return plain

    def _signed(self, listed: Sequence[TunedRecord], timeout_s: float) -> Listing:
        """Return those that are stored with this team's signature; all are looked up."""
        left = list(listed)
        counting: list[TunedRecord] = []
        unsigned = 0
        while left:
            batch, left = left[: protocol.LOOKUP_LIMIT], left[protocol.LOOKUP_LIMIT :]
            answers = self._looked_up(batch, timeout_s)
            omitted = [
                record
                for record, each in zip(batch, answers, strict=True)
                if each.missed == "omitted"
            ]
            if len(omitted) == len(batch):
                raise self._link.error("bad-answer", "left out all that it was asked for")
            left += omitted
            for record, each in zip(batch, answers, strict=True):
                checked = self._checked(record, each)
                counting += checked
                unsigned += each.document is not None and not checked
        return Listing(tuple(counting), unsigned)

    def _looked_up(
        self, batch: Sequence[TunedRecord], timeout_s: float
    ) -> tuple[protocol.LookupAnswer, ...]:
        wanted = tuple(protocol.wanted_record(record.identity) for record in batch)
        answer = self._link.send_json(
            "POST",
            protocol.lookup_path(self._link.address.namespace),
            protocol.LookupRequest(wanted=wanted),
            timeout_s=timeout_s,
            limit_bytes=protocol.ANSWER_LIMIT_BYTES,
        )
        found: protocol.LookupAnswers = read_message(
            answer, protocol.LookupAnswers, self._link.address.text
        )
        if len(found.answers) != len(batch):
            raise self._link.error("bad-answer", "answered with another number of records")
        return found.answers

    def _checked(
        self, listed: TunedRecord, answer: protocol.LookupAnswer
    ) -> tuple[TunedRecord, ...]:
        if answer.document is None:
            return ()
        try:
            (record,) = document.from_object(answer.document, source="the service").records
            self._trust.check(record, answer.signature)
        except (BadDocumentError, ServiceError, ValueError):
            return ()
        return (record,) if record.identity == listed.identity else ()
