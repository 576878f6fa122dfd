"""What the config service does not take, and that nothing is stored then."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace

import pytest
from stored import RECORD, record_for

from launchkit import jsonio
from launchkit.keys import KernelId, Toolchain
from launchkit.service import protocol, signing
from launchkit.store import bundle


@pytest.fixture
def served(sqlite_service):
    """The service, in which RECORD is not stored before nor after."""
    yield sqlite_service
    assert sqlite_service.get(RECORD).status_code == 404


@pytest.mark.parametrize("header", ["nonsense", '"short"', f'"{"0" * 64}", "{"1" * 64}"'])
def test_preconditions_that_are_none_are_refused(served, header):
    assert served.put(RECORD, If_Match=header).status_code == 422
    assert served.put(RECORD, If_None_Match=header).status_code == 422


other_kernel = replace(RECORD, kernel=KernelId(RECORD.kernel.name, "0" * 64))
other_device = replace(RECORD, device=replace(RECORD.device, multiprocessors=7))


@pytest.mark.parametrize("other", [record_for(3), other_kernel, other_device])
def test_a_record_is_taken_at_its_own_path_alone(served, other):
    answer = served.put(other, at=RECORD)
    assert (answer.status_code, answer.json()["code"]) == (422, "other-key")
    assert served.get(other).status_code == 404


def test_the_toolchain_of_the_path_is_the_records(served):
    path = protocol.record_path(served.namespace, RECORD)
    answer = served.http.put(
        path, params={"toolchain": "9"}, content=signing.body(RECORD), headers=served.headers
    )
    assert answer.json()["code"] == "other-key"


def changed_document(**changes):
    raw = jsonio.loads(signing.body(RECORD), source="RECORD", limit_bytes=10**6)
    return jsonio.dumps({**raw, **changes})


BAD_BODIES = {
    "empty": b"",
    "no JSON": b"{",
    "HTML": b"<html>502</html>",
    "a duplicate key": b'{"schema": 1, "schema": 1}',
    "another schema": changed_document(schema=2),
    "an unknown field": changed_document(more=1),
    "no record": changed_document(records=[]),
    "NaN": signing.body(RECORD).replace(b'"reps":', b'"reps":NaN,"x":', 1),
    "deep": b"[" * 100_000,
    "surrogates": changed_document().replace(RECORD.kernel.name.encode(), rb"\ud800", 1),
}


@pytest.mark.parametrize("what", BAD_BODIES)
def test_a_body_that_is_no_record_is_refused_with_what_to_do(served, what):
    path = protocol.record_path(served.namespace, RECORD)
    answer = served.http.put(path, content=BAD_BODIES[what], headers=served.headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["message"].endswith(".")


@pytest.mark.parametrize("triton", ["unknown", "", "3.6\x00", "3" * 121])
def test_a_toolchain_that_cannot_be_told_from_others_is_refused(served, triton):
    record = replace(RECORD, toolchain=Toolchain(triton))
    assert served.put(record).status_code == 422


def test_a_lookup_of_too_many_or_of_none_is_refused(served):
    wanted = protocol.wanted_record(RECORD.identity).model_dump()
    for count in (0, protocol.LOOKUP_LIMIT + 1):
        answer = served.send("POST", "/lookup", json={"wanted": [wanted] * count})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_what_is_not_served_says_so_as_json(served):
    for method, path, status, code in (
        ("GET", "/nope", 404, "no-path"),
        ("PATCH", "/status", 405, "no-method"),
        ("GET", "/v1/namespaces/UPPER/bundle", 422, "invalid"),
        ("GET", "/v1/namespaces/..%2f..%2fetc/bundle", 404, "no-path"),
        ("GET", "/v1/namespaces/default/records/a/b/c/d", 422, "invalid"),
        ("GET", f"/v1/namespaces/default/snapshots/{'0' * 64}", 404, "no-snapshot"),
    ):
        answer = served.http.request(method, path, headers=served.headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
        assert answer.json()["request"] == answer.headers[protocol.HEADER_REQUEST]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_a_path_can_be_asked_for_is_said(served):
    path = protocol.record_path("default", RECORD)
    assert served.http.delete(path).headers["allow"] == "GET, PUT"
    assert served.http.get(protocol.lookup_path("default")).headers["allow"] == "POST"


def test_the_document_of_the_api_has_what_it_refers_to(served):
    described = served.http.get("/openapi.json").json()
    parts = described["components"]["schemas"]
    named = re.findall(r'"#/components/schemas/([^"]+)"', jsonio.dumps(described).decode())
    assert "ConfigDocument" in named
    assert set(named) <= set(parts)
    assert parts["ConfigDocument"]["properties"].keys() == {
        "schema", "kernel", "device", "records"
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"wanted": NaN}', b"[" * 50_000, b"\xff"])
def test_a_request_that_is_no_json_is_refused(served, body):
    headers = {"content-type": "application/json"}
    answer = served.send("POST", "/lookup", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("bad-request", "invalid")


def test_a_bundle_that_unpacks_to_more_than_the_service_takes_is_refused(served):
    limit_bytes = served.service.settings.bundle_limit_bytes
    assert limit_bytes < bundle.LIMIT_BYTES
    packed = gzip.compress(b"0" * (limit_bytes + 1), compresslevel=1)
    answer = served.send("POST", "/bundle", content=packed)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    assert "unpacks" in answer.json()["message"]


def test_an_unknown_field_of_a_request_is_refused(served):
    answer = served.send("POST", "/snapshots", json={"kernels": "typo"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert "kernels" in answer.json()["message"]
