"""The client of a config service that does what it should."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import fake_service
import pytest
from fake_service import TOKEN, error
from service_clients import SECRET, client, reason, settled
from sharing import one
from stored import RECORD, get, record_for

from launchkit.errors import ServiceError, StoreError, UsageError
from launchkit.keys import Toolchain
from launchkit.service.client import urls
from launchkit.service.client.store import ServiceStore
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore


def test_record_of_the_service_is_found_once_asked_for_and_remembered(service):
    service.hold(RECORD)
    store = client(service)
    assert [get(store, RECORD) for _ in range(3)] == [RECORD] * 3
    assert service.counts() == {"GET record": 1}
    assert store.holds(RECORD)


def test_what_the_service_does_not_have_is_not_asked_for_again_for_a_while(service):
    store = client(service)
    assert [reason(store) for _ in range(3)] == ["absent"] * 3
    assert service.counts() == {"GET record": 1}


def test_record_for_another_triton_is_a_miss_that_says_so(service):
    service.hold(RECORD)
    other = replace(RECORD, toolchain=Toolchain("9.9.0"))
    assert reason(client(service), other) == "toolchain"


def test_unknown_triton_is_neither_asked_for_nor_sent(service):
    store = client(service)
    unknown = replace(RECORD, toolchain=Toolchain("unknown"))
    assert reason(store, unknown) == "toolchain"
    store.put(unknown)
    settled(store)
    assert not service.asked


def test_what_is_put_is_there_at_once_and_reaches_the_service(service):
    store = client(service)
    store.put(RECORD)
    assert get(store, RECORD) == RECORD
    settled(store)
    assert service.stored() == [RECORD]
    assert get(client(service), RECORD) == RECORD


def test_records_put_by_two_clients_are_merged(service):
    first, second = one(1, 128, 5.0), one(1, 256, 4.0)
    for record in (first, second):
        store = client(service)
        store.put(record)
        settled(store)
    (merged,) = service.stored()
    assert {tuned.config for tuned in merged.configs} == {first.chosen, second.chosen}


def test_without_a_token_nothing_is_written_and_leases_are_left_alone(service):
    store = client(service, token=None)
    assert store.read_only
    assert store.put(RECORD) is False
    assert get(store, RECORD) == RECORD
    with store.enter_flight(RECORD.identity, 1.0) as outcome:
        assert outcome == "alone"
    assert store.put_all([record_for(1)]) == [record_for(1)]
    settled(store)
    assert service.counts() == {}


def test_layer_in_front_is_asked_first_and_what_it_is_given_is_sent(service, tmp_path):
    mine = DirectoryStore(tmp_path)
    store = LayeredStore([mine, client(service)])
    assert store.put(RECORD)
    assert mine.holds(RECORD)
    settled(store.layers[1])
    assert service.stored() == [RECORD]
    asked = len(service.asked)
    assert get(store, RECORD) == RECORD
    assert len(service.asked) == asked


def test_many_put_into_a_layer_in_front_are_sent_too(service, tmp_path):
    store = LayeredStore([DirectoryStore(tmp_path), client(service)])
    several = [record_for(n) for n in range(5)]
    assert store.put_all(several) == []
    settled(store.layers[1])
    assert sorted(r.key.text for r in service.stored()) == sorted(r.key.text for r in several)


def test_put_all_waits_for_the_service_and_names_what_it_did_not_take(service):
    several = [record_for(n) for n in range(5)]
    store = client(service)
    assert store.put_all(several) == []
    assert len(service.stored()) == 5
    service.misbehave["POST bundle"] = fake_service.always(error(507, "storage-full"))
    assert store.put_all([RECORD]) == [RECORD]


def test_records_are_listed_whole_and_by_kernel(service):
    several = [record_for(n) for n in range(3)]
    for record in several:
        service.hold(record)
    store = client(service)
    assert {r.identity for r in store.records()} == {r.identity for r in several}
    assert {r.identity for r in store.records_of(RECORD.kernel.name)} == {
        r.identity for r in several
    }
    assert list(store.records_of("another.kernel")) == []
    (found,) = store.records_of(RECORD.kernel.name, several[1].key)
    assert found == several[1]
    assert service.counts()["GET bundle"] == 3


def test_signed_records_count_and_others_do_not(service):
    trusted, forged = record_for(1), record_for(2)
    service.hold(trusted, SECRET)
    service.hold(forged)
    store = client(service, secret=SECRET)
    assert [reason(store, each) for each in (trusted, forged)] == ["hit", "unsigned"]
    service.hold(record_for(3), b"another secret of theirs")
    assert reason(store, record_for(3)) == "unsigned"
    assert list(store.records()) == [trusted]


def test_listing_says_how_many_records_do_not_count(service, caplog):
    service.hold(record_for(1), SECRET)
    service.hold(record_for(2))
    service.hold(record_for(3), b"another secret of theirs")
    store = client(service, secret=SECRET)
    assert store.download() == ((record_for(1),), 2)
    assert list(store.records()) == [record_for(1)]
    assert "2 records of the config service" in caplog.text
    assert client(service).download().unsigned == 0


def test_signed_records_that_an_answer_leaves_out_are_asked_for_again(service):
    wanted = [record_for(n) for n in range(5)]
    for record in wanted:
        service.hold(record, SECRET)

    def two_at_most(asked, connection):
        said = json.loads(service.behave(asked).body)
        left_out = [{"missed": "omitted"}] * len(said["answers"][2:])
        return fake_service.json_said(200, {"answers": said["answers"][:2] + left_out})

    service.misbehave["POST lookup"] = two_at_most
    found = client(service, secret=SECRET).download()
    assert {each.key for each in found.records} == {each.key for each in wanted}
    assert (found.unsigned, service.counts()["POST lookup"]) == (0, 3)


@pytest.mark.parametrize("answers", [[], [{"missed": "omitted"}], [{"missed": "absent"}] * 2])
def test_lookup_that_answers_something_else_is_no_listing(service, answers):
    service.hold(RECORD, SECRET)
    said = fake_service.json_said(200, {"answers": answers})
    service.misbehave["POST lookup"] = fake_service.always(said)
    with pytest.raises(ServiceError) as caught:
        client(service, secret=SECRET).download()
    assert caught.value.reason == "bad-answer"


def test_request_without_a_token_that_is_known_says_what_to_set(service):
    refused = json.loads(error(401, "unauthenticated").body)["message"]
    service.misbehave["everything"] = fake_service.always(error(401, "unauthenticated"))
    with pytest.raises(ServiceError) as caught:
        client(service).download()
    assert str(caught.value).endswith(
        f"(401: {refused.rstrip('.')}). Set LAUNCHKIT_SERVICE_TOKEN to a token that it knows."
    )


def test_signature_of_another_key_or_namespace_does_not_count(service):
    service.hold(record_for(1), SECRET)
    ((_, signature),) = service.records.values()
    service.hold(record_for(2), SECRET)
    places = list(service.records)
    service.records[places[1]] = (record_for(2), signature)
    assert reason(client(service, secret=SECRET), record_for(2)) == "unsigned"
    assert reason(client(service.url.replace("team", "other"), secret=SECRET), record_for(1)) == (
        "unsigned"
    )


def test_signing_clients_merge_each_others_records_and_both_are_trusted(service):
    first, second = one(1, 128, 5.0), one(1, 256, 4.0)
    for record in (first, second):
        store = client(service, secret=SECRET)
        store.put(record)
        settled(store)
    merged = get(client(service, secret=SECRET), first)
    assert {tuned.config for tuned in merged.configs} == {first.chosen, second.chosen}


def test_signing_client_does_not_vouch_for_what_nobody_signed(service):
    service.hold(one(1, 128, 5.0))
    store = client(service, secret=SECRET)
    store.put(one(1, 256, 4.0))
    store.flush(10.0)
    assert service.stored() == [one(1, 256, 4.0)]


def test_token_stands_in_every_request_and_in_no_description(service):
    store = client(service)
    reason(store)
    store.put(RECORD)
    settled(store)
    assert {each.headers["authorization"] for each in service.asked} == {f"Bearer {TOKEN}"}
    assert TOKEN not in store.describe() + str(store.examine()) + repr(store)


def test_connection_is_kept_for_the_next_request(service):
    store = client(service)
    for n in range(5):
        reason(store, record_for(n))
    assert len(service._open) == 1


def test_copy_answers_while_the_service_is_silent(service, tmp_path):
    service.hold(RECORD)
    copy = DirectoryStore(tmp_path)
    assert get(client(service, copy=copy), RECORD) == RECORD
    store = client(service, copy=copy)
    get(store, RECORD)
    settled(store)
    service.close()
    later = client(service, copy=DirectoryStore(tmp_path))
    assert get(later, RECORD) == RECORD
    assert reason(later, record_for(1)) == "unreachable"
    assert list(later.records_of(RECORD.kernel.name)) == [RECORD]
    assert list(later.records_of("another")) == []


def test_copy_does_not_answer_for_a_service_that_no_longer_has_the_record(service, tmp_path):
    copy = DirectoryStore(tmp_path)
    copy.put(RECORD)
    assert reason(client(service, copy=copy)) == "absent"


def test_forked_child_asks_by_itself_and_sends_nothing_of_its_parents(service):
    service.hold(record_for(1))
    store = client(service)
    assert reason(store, record_for(2)) == "absent"
    service.misbehave["PUT record"] = fake_service.hangs
    store.put(RECORD)
    child = os.fork()
    if child == 0:
        os._exit(0 if reason(store, record_for(1)) == "hit" and len(store._queue) == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(("url", "parts"), [
    ("http://host", ("http", "host", 80, "", "default")),
    ("https://Host:8443/team", ("https", "host", 8443, "", "team")),
    ("https://host/below/this/team/", ("https", "host", 443, "/below/this", "team")),
    ("http://[::1]:80/a.b-c_d", ("http", "::1", 80, "", "a.b-c_d")),
])  # fmt: skip
def test_url_names_service_and_namespace(url, parts):
    address = urls.parse(url)
    assert (address.scheme, address.host, address.port, address.prefix, address.namespace) == parts
    assert urls.parse(address.text) == address


@pytest.mark.parametrize("url", [
    "https://", "https:///team", "http://host:99999/team", "http://host:x/team", "https://host/Team",
    "https://host/a b", "https://host/..", "https://host/team?x=1", "https://host/team#x",
    "https://token@host/team", "https://user:secret@host/team", "ftp://host/team", "http://[::1/team",
])  # fmt: skip
def test_other_url_is_refused_without_its_secrets(url):
    with pytest.raises(StoreError) as caught:
        ServiceStore(url)
    assert "secret" not in str(caught.value)
    assert "token@" not in str(caught.value)


def test_short_signing_key_is_refused():
    with pytest.raises(UsageError):
        ServiceStore("http://host/team", secret=b"short")


def test_layer_of_a_service_counts_no_record_twice_and_none_by_listing_all(service):
    service.hold(RECORD)
    health = LayeredStore([MemoryStore(), client(service)]).examine()
    assert health.records == 1
    assert service.counts() == {"GET status": 1}


def test_missing_package_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpcore", None)
    with pytest.raises(StoreError, match=r"launchkit-triton\[service\]"):
        ServiceStore("http://host/team")
