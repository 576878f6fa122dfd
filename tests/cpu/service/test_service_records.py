"""Records of the config service over HTTP, on SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from stored import RECORD, record_for

from launchkit import jsonio
from launchkit.configs import TunedConfig, identify, merge_records
from launchkit.keys import DeviceId, KernelId, Toolchain
from launchkit.service import protocol, signing
from launchkit.store import document


def documents(response):
    assert response.status_code == 200, response.text
    return document.parse(response.content, source="an answer").records


def with_config(block, us=7.5, **changes):
    """RECORD's key, tuned with one other config."""
    config = identify({"BLOCK": block, "num_warps": 4})
    tuned = TunedConfig.measured(config, us, reps=3, method="eager")
    return replace(RECORD, configs=(tuned,), chosen=config, chosen_method=None, **changes)


def test_what_is_put_is_what_is_got(served):
    assert served.get(RECORD).status_code == 404
    put = served.put(RECORD)
    assert put.status_code == 201
    assert put.json()["created"] is True
    got = served.get(RECORD)
    assert documents(got) == (RECORD,)
    assert got.headers["etag"] == put.headers["etag"] == protocol.quoted(put.json()["etag"])


def test_an_entity_tag_is_the_digest_of_the_body(served):
    served.put(RECORD)
    got = served.get(RECORD)
    assert got.headers["etag"] == protocol.quoted(signing.etag(got.content))


def test_a_second_put_of_the_same_changes_nothing(served):
    first = served.put(RECORD)
    second = served.put(RECORD)
    assert second.status_code == 200
    assert second.json() == {"etag": first.json()["etag"], "created": False, "changed": False}


def test_a_put_is_merged_as_the_store_merges(served):
    new = with_config(4096)
    served.put(RECORD)
    assert served.put(new).json()["changed"] is True
    (stored,) = documents(served.get(RECORD))
    merged = merge_records(RECORD, new)
    assert stored == document.parse(signing.body(merged), source="merged").records[0]


def test_of_writers_at_once_no_ones_results_are_lost(served):
    several = [with_config(2**n, us=5.0 + n) for n in range(16)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(served.put, several))
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [201]
    (stored,) = documents(served.get(RECORD))
    assert {each.config for each in stored.configs} == {each.chosen for each in several}


def test_toolchains_are_records_of_their_own(served):
    newer = replace(RECORD, toolchain=Toolchain("99.0"))
    served.put(RECORD)
    missed = served.get(newer)
    assert (missed.status_code, missed.json()["code"]) == (404, "toolchain")
    served.put(newer)
    assert documents(served.get(newer)) == (newer,)
    whole = served.http.get(protocol.record_path(served.namespace, RECORD), headers=served.headers)
    assert set(documents(whole)) == {RECORD, newer}


def test_a_known_entity_tag_costs_no_body(served):
    etag = served.put(RECORD).headers["etag"]
    for header in (etag, f'"{"0" * 64}", W/{etag}', "*"):
        answer = served.get(RECORD, If_None_Match=header)
        assert (answer.status_code, answer.content) == (304, b"")
    assert served.get(RECORD, If_None_Match=f'"{"0" * 64}"').status_code == 200


def test_preconditions_of_a_put_hold_or_nothing_changes(served):
    wrong = served.put(RECORD, If_Match=f'"{"0" * 64}"')
    assert (wrong.status_code, wrong.json()["code"]) == (412, "changed")
    assert served.get(RECORD).status_code == 404
    etag = served.put(RECORD, If_None_Match="*").headers["etag"]
    again = served.put(with_config(4096), If_None_Match="*")
    assert (again.status_code, again.json()["etag"]) == (412, protocol.unquoted(etag))
    assert documents(served.get(RECORD)) == (RECORD,)
    assert served.put(with_config(4096), If_Match=etag).status_code == 200


def test_names_of_any_text_are_kept_as_they_are(served):
    for name in (
        "a/b",
        "..",
        "%2e%2e",
        "é'; DROP TABLE records; --",
        "a\x00b",
        "{{7*7}}",
        "n" * 999,
    ):
        device = DeviceId("cuda", name, "sm_90", 1, 2, 3)
        record = replace(RECORD, kernel=KernelId(name, "1" * 64), device=device)
        assert served.put(record).status_code == 201
        assert documents(served.get(record)) == (record,)


def test_a_lookup_answers_in_the_order_of_its_questions(served):
    newer = replace(RECORD, toolchain=Toolchain("99.0"))
    stored = [RECORD, record_for(1), record_for(2)]
    for each in stored:
        served.put(each)
    asked = [record_for(2), record_for(9), newer, RECORD, record_for(1), RECORD]
    wanted = [protocol.wanted_record(each.identity).model_dump() for each in asked]
    answer = served.send("POST", "/lookup", json={"wanted": wanted})
    found = protocol.LookupAnswers.model_validate_json(answer.content).answers
    assert [each.missed for each in found] == [None, "absent", "toolchain", None, None, None]
    for each, record in zip(found, asked, strict=True):
        if each.missed is None:
            got = document.from_object(each.document, source="an answer")
            assert got.records == (record,)
            assert each.etag == signing.etag(jsonio.dumps_compact(each.document))


def test_an_answer_that_would_be_too_large_omits_records(served, monkeypatch):
    served.put(RECORD)
    served.put(record_for(1))
    monkeypatch.setattr(protocol, "ANSWER_LIMIT_BYTES", len(served.get(RECORD).content) + 200)
    both = [protocol.wanted_record(each.identity).model_dump() for each in (RECORD, record_for(1))]
    found = served.send("POST", "/lookup", json={"wanted": both}).json()["answers"]
    assert [each.get("missed") for each in found] == [None, "omitted"]


def test_nothing_is_shared_between_namespaces(served):
    served.put(RECORD)
    other = replace(served, namespace="default", headers=served.token("admin", "*"))
    assert other.get(RECORD).status_code == 404


def test_a_namespace_that_does_not_exist_is_told(served):
    other = replace(served, namespace="nowhere", headers=served.token("admin", "*"))
    wanted = [protocol.wanted_record(RECORD.identity).model_dump()]
    answers = [
        other.get(RECORD),
        other.put(RECORD),
        other.send("POST", "/lookup", json={"wanted": wanted}),
        other.send("GET", "/bundle"),
        other.send("GET", "/snapshots"),
        other.send("POST", "/snapshots", json={}),
        other.send("GET", f"/snapshots/{'0' * 64}"),
        other.send("POST", f"/leases/{'0' * 32}", json={"holder": "h", "ttl_s": 5}),
    ]
    assert {(each.status_code, each.json()["code"]) for each in answers} == {(404, "no-namespace")}
