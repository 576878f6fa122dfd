"""Signed records: what a signature covers, and what the server lets happen to a signed record."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest
from stored import RECORD, record_for

from launchkit import jsonio
from launchkit.configs import TunedConfig, identify, merge_records
from launchkit.errors import UsageError
from launchkit.service import protocol, signing
from launchkit.store import document

SECRET = b"0123456789abcdef"


def other_result(us=9.0):
    config = identify({"BLOCK": 4096})
    tuned = TunedConfig.measured(config, us, reps=3, method="eager")
    return replace(RECORD, configs=(tuned,), chosen=config, chosen_method=None)


def signature(served, record):
    return signing.sign(SECRET, served.namespace, record)


def test_a_signature_is_the_hmac_that_the_document_describes():
    parts = protocol.record_parts(RECORD.kernel, RECORD.device, RECORD.key)
    digest = hashlib.sha256(signing.body(RECORD)).hexdigest()
    signed = jsonio.dumps_compact(["launchkit-record", 1, "team", *parts, digest])
    expected = hmac.new(SECRET, signed, hashlib.sha256).hexdigest()
    assert signing.sign(SECRET, "team", RECORD) == f"v1={expected}"


def test_a_signature_is_of_one_secret_namespace_key_and_body():
    made = signing.sign(SECRET, "team", RECORD)
    assert signing.is_signed(SECRET, "team", RECORD, made)
    assert not signing.is_signed(SECRET[::-1], "team", RECORD, made)
    assert not signing.is_signed(SECRET, "another", RECORD, made)
    assert not signing.is_signed(SECRET, "team", record_for(3), made)
    assert not signing.is_signed(SECRET, "team", replace(RECORD, seconds=77.0), made)
    for forged in (None, "", "v1=", made.upper(), made[:-1], f"{made} ", made.replace("v1", "v2")):
        assert not signing.is_signed(SECRET, "team", RECORD, forged)


def test_a_signature_outlasts_writing_and_reading():
    whole = replace(RECORD, configs=(replace(RECORD.winner, p20_us=3, median_us=4, p80_us=5),))
    (read,) = document.parse(signing.body(whole), source="a body").records
    made = signing.sign(SECRET, "team", whole)
    assert signing.is_signed(SECRET, "team", read, made)
    assert signing.body(read) == signing.body(whole)


def test_a_secret_that_is_too_short_is_refused():
    with pytest.raises(UsageError, match="at least 16"):
        signing.sign(b"short", "team", RECORD)


def test_a_signed_record_comes_back_with_its_signature(served):
    made = signature(served, RECORD)
    assert served.put(RECORD, Launchkit_Signature=made).status_code == 201
    got = served.get(RECORD)
    assert got.headers[protocol.HEADER_SIGNATURE] == made
    wanted = [protocol.wanted_record(RECORD.identity).model_dump()]
    (answer,) = served.send("POST", "/lookup", json={"wanted": wanted}).json()["answers"]
    assert answer["signature"] == made


def test_an_unsigned_result_cannot_break_a_signature(served):
    served.put(RECORD, Launchkit_Signature=signature(served, RECORD))
    refused = served.put(other_result())
    assert (refused.status_code, refused.json()["code"]) == (409, "signed")
    assert served.put(RECORD).json()["changed"] is False
    bundle = served.send("GET", "/bundle").content
    assert served.send("POST", "/bundle", content=bundle).json()["unchanged"] == 1
    assert signing.is_signed(
        SECRET, served.namespace, RECORD, served.get(RECORD).headers[protocol.HEADER_SIGNATURE]
    )


def test_who_signs_merges_and_says_what_with(served):
    etag = served.put(RECORD, Launchkit_Signature=signature(served, RECORD)).headers["etag"]
    merged = merge_records(RECORD, other_result())
    made = signature(served, merged)
    blind = served.put(merged, Launchkit_Signature=made)
    assert (blind.status_code, blind.json()["code"]) == (428, "precondition-required")
    alone = other_result()
    losing = served.put(alone, Launchkit_Signature=signature(served, alone), If_Match=etag)
    assert (losing.status_code, losing.json()["code"]) == (409, "not-merged")
    assert served.put(merged, Launchkit_Signature=made, If_Match=etag).status_code == 200
    got = served.get(RECORD)
    assert got.content == signing.body(merged)
    assert got.headers[protocol.HEADER_SIGNATURE] == made
    late = served.put(merged, Launchkit_Signature=made, If_Match=etag)
    assert (late.status_code, late.json()["code"]) == (412, "changed")


def test_an_unsigned_record_can_be_signed(served):
    etag = served.put(RECORD).headers["etag"]
    made = signature(served, RECORD)
    assert served.put(RECORD, Launchkit_Signature=made, If_Match=etag).json()["changed"] is True
    assert served.get(RECORD).headers[protocol.HEADER_SIGNATURE] == made


def test_an_unsigned_record_need_not_be_vouched_for(served):
    etag = served.put(RECORD).headers["etag"]
    made = signature(served, other_result())
    blind = served.put(other_result(), Launchkit_Signature=made)
    assert (blind.status_code, blind.json()["code"]) == (428, "precondition-required")
    assert served.put(other_result(), Launchkit_Signature=made, If_Match=etag).status_code == 200
    got = served.get(RECORD)
    assert got.content == signing.body(other_result())
    assert got.headers[protocol.HEADER_SIGNATURE] == made


def test_a_signature_of_another_form_is_refused(served):
    assert served.put(RECORD, Launchkit_Signature="v1=short").status_code == 422
    assert served.get(RECORD).status_code == 404
