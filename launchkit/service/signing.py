"""Signed records: which results a team's own members have made. Above the protocol; both ends.

HMAC-SHA256 under a secret that the team's clients share and the server does not know. It covers the
namespace, the key and the body, so that a signed result cannot be shown for another key or from
another namespace. The server keeps signatures and checks none.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from launchkit import jsonio
from launchkit.configs import TunedRecord
from launchkit.errors import UsageError
from launchkit.service.protocol import record_parts
from launchkit.store import document
from launchkit.store.document import ConfigDocument

SIGNATURE_PATTERN = r"^v1=[0-9a-f]{64}$"
LEAST_SECRET_BYTES = 16


def body(record: TunedRecord) -> bytes:
    """Return the one spelling of a record's document: what is stored, tagged, signed and sent."""
    data = _written(record)
    if _has_whole_times(record):
        # A reader makes 5.0 of a time of 5: what is signed must be what a reader gets.
        (read,) = document.parse(data, source="a record").records
        data = _written(read)
    return data


def _written(record: TunedRecord) -> bytes:
    alone = ConfigDocument(record.kernel, record.device, (record,))
    return jsonio.dumps_compact(document.to_object(alone))


def _has_whole_times(record: TunedRecord) -> bool:
    times = [record.seconds]
    for tuned in record.configs:
        times += (tuned.p20_us, tuned.median_us, tuned.p80_us)
    return any(type(each) is int for each in times)


def etag(data: bytes) -> str:
    """Return the entity tag of a body: its sha256 as hex, without quotes."""
    return hashlib.sha256(data).hexdigest()


def sign(secret: bytes, namespace: str, record: TunedRecord) -> str:
    """Return the signature of a record in a namespace: ``v1=`` and 64 hex digits.

    Raises UsageError for a secret below 16 bytes.
    """
    if len(secret) < LEAST_SECRET_BYTES:
        raise UsageError(
            f"a signing secret of {len(secret)} bytes is too short. Give at least "
            f"{LEAST_SECRET_BYTES} random bytes."
        )
    parts = [namespace, *record_parts(record.kernel, record.device, record.key)]
    head = jsonio.dumps_compact(["launchkit-record", 1, *parts, etag(body(record))])
    return f"v1={hmac.new(secret, head, hashlib.sha256).hexdigest()}"


def is_signed(secret: bytes, namespace: str, record: TunedRecord, signature: str | None) -> bool:
    """Tell, in a time that does not depend on it, whether ``signature`` is the record's."""
    wanted = sign(secret, namespace, record)
    found = signature if signature is not None and is_signature(signature) else ""
    return hmac.compare_digest(wanted.encode(), found.encode())


def is_signature(text: str) -> bool:
    """Tell whether ``text`` has the form of a signature."""
    return re.fullmatch(SIGNATURE_PATTERN, text) is not None
