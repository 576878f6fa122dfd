"""Whatever is sent to the service: no answer above 499, and every refusal says what it is."""

from __future__ import annotations

import contextlib
import json
import os

import pytest

from launchkit.service import protocol

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
hypothesis = pytest.importorskip("hypothesis")

EXAMPLES = int(os.environ.get("LAUNCHKIT_TEST_EXAMPLES", "5"))
"""Of each operation, right and wrong ones each; a thorough run takes hundreds."""


@schemathesis.serializer(protocol.MEDIA_BUNDLE)
def as_lines(context, value):
    """A bundle is bytes already, or whatever was drawn instead of it."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@pytest.fixture(scope="module")
def schema(sqlite_service):
    return schemathesis.openapi.from_url(f"{sqlite_service.http.base_url}/openapi.json")


def operations(schema):
    return [found.ok() for found in schema.get_all_operations()]


def test_the_document_describes_every_operation(schema):
    labels = {operation.label for operation in operations(schema)}
    namespace = protocol.namespace_path("{namespace}")
    assert {
        f"PUT {namespace}/records/{{kernel}}/{{digest}}/{{device}}/{{key_hash}}",
        f"POST {namespace}/lookup",
        f"POST {namespace}/leases/{{identity}}",
        f"POST {namespace}/bundle",
        "GET /status",
    } <= labels


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_that_the_document_leads_to_breaks_the_server(schema, sqlite_service, mode):
    token = dict(sqlite_service.token("admin", "*"))
    for operation in operations(schema):
        statuses = asked(operation, mode, token)
        # Of some operations nothing can be wrong.
        assert statuses or mode == "negative", operation.label


def asked(operation, mode, token):
    """Make requests of an operation, and return the statuses of their answers."""
    statuses = set()

    @hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def ask(case):
        answer = case.call(headers=token, timeout=30)
        statuses.add(answer.status_code)
        assert answer.status_code < 500, (case.as_curl_command(), answer.content)
        check_refusal(answer, case.method)

    with contextlib.suppress(hypothesis.errors.Unsatisfiable):
        ask()
    return statuses


def check_refusal(answer, method):
    """An answer above 399 is the service's own, in JSON, and repeats no secret."""
    if answer.status_code < 400 or method == "HEAD" or "html" in answer.headers["content-type"]:
        return
    told = protocol.ErrorAnswer.model_validate_json(answer.content)
    assert told.message
