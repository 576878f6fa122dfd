"""Leases: one holder at a time, by the database's clock, whatever replica is asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import serving
from sqlalchemy import update
from stored import RECORD

from launchkit.service import protocol
from launchkit.service.db import NowMs
from launchkit.service.tables import leases
from launchkit.store.flights import identity_digest

IDENTITY = identity_digest(RECORD.identity)


def acquire(served, holder="host-1", ttl_s=60.0, secret=None):
    headers = {} if secret is None else {protocol.HEADER_LEASE: secret}
    body = {"holder": holder, "ttl_s": ttl_s, "kernel": "k", "key": "n=1"}
    return served.send("POST", f"/leases/{IDENTITY}", json=body, headers=headers)


def with_secret(granted):
    return {protocol.HEADER_LEASE: granted.json()["token"]}


def expire(served):
    with served.service.database.writing() as connection:
        mine = leases.c.namespace == served.namespace
        connection.execute(update(leases).where(mine).values(expires_ms=NowMs() - 1))


def test_a_lease_that_is_held_tells_by_whom_and_how_long(served):
    granted = acquire(served, "host-1", ttl_s=60)
    assert (granted.status_code, granted.json()["expires_in_s"]) == (201, 60.0)
    refused = acquire(served, "host-2")
    assert (refused.status_code, refused.json()["code"]) == (409, "lease-held")
    state = protocol.LeaseState(**refused.json()["lease"])
    assert state.holder == "host-1"
    assert 0 < state.expires_in_s <= 60
    assert 0 < state.retry_after_s <= 2


@pytest.mark.parametrize("ending", ["complete", "release"])
def test_a_lease_that_was_given_back_is_free(served, ending):
    own = with_secret(acquire(served))
    if ending == "complete":
        ended = served.send("POST", f"/leases/{IDENTITY}/complete", headers=own)
    else:
        ended = served.send("DELETE", f"/leases/{IDENTITY}", headers=own)
    assert ended.status_code == 204
    assert acquire(served, "host-2").status_code == 201


def test_an_expired_lease_goes_to_the_next_and_is_lost_to_its_holder(served):
    late = with_secret(acquire(served, "host-1"))
    expire(served)
    assert acquire(served, "host-2").status_code == 201
    for method, rest in (("PUT", ""), ("POST", "/complete"), ("DELETE", "")):
        body = {"json": {"ttl_s": 5}} if method == "PUT" else {}
        answer = served.send(method, f"/leases/{IDENTITY}{rest}", headers=late, **body)
        assert (answer.status_code, answer.json()["code"]) == (409, "lease-lost")
    assert acquire(served, "host-3").json()["lease"]["holder"] == "host-2"
    assert served.put(RECORD).status_code == 201  # a late result is taken all the same


def test_a_lease_from_before_the_clock_was_put_back_is_free(served):
    acquire(served)
    with served.service.database.writing() as connection:
        mine = leases.c.namespace == served.namespace
        day_on = {leases.c.expires_ms: leases.c.expires_ms + 86_400_000}
        connection.execute(update(leases).values(day_on).where(mine))
    assert acquire(served, "host-2").status_code == 201
    assert acquire(served, "host-3").status_code == 409


def test_a_renewed_lease_lasts_from_now(served):
    own = with_secret(acquire(served, ttl_s=1))
    renewed = served.send("PUT", f"/leases/{IDENTITY}", json={"ttl_s": 500}, headers=own)
    assert (renewed.status_code, renewed.json()["expires_in_s"]) == (200, 500.0)
    assert acquire(served, "host-2").json()["lease"]["expires_in_s"] > 400


def test_an_expired_lease_that_nobody_took_can_be_renewed(served):
    own = with_secret(acquire(served))
    expire(served)
    renewed = served.send("PUT", f"/leases/{IDENTITY}", json={"ttl_s": 60}, headers=own)
    assert renewed.status_code == 200
    assert acquire(served, "host-2").status_code == 409


def test_who_shows_the_same_secret_is_the_same_holder(served):
    secret = "chosen-by-the-client"
    assert acquire(served, secret=secret).json()["token"] == secret
    assert acquire(served, secret=secret).status_code == 201
    assert acquire(served, "host-2", secret="another-one-of-16").status_code == 409


def test_of_many_at_once_one_gets_it(served):
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: acquire(served, f"host-{n}"), range(24)))
    assert sorted(each.status_code for each in answers) == [201] + [409] * 23


def test_replicas_over_one_database_give_one_lease(served):
    url = served.service.database.engine.url.render_as_string(hide_password=False)
    with serving(url) as replica:
        other = type(served)(replica.service, replica.http, served.namespace, served.headers)
        assert acquire(served).status_code == 201
        assert acquire(other, "host-2").status_code == 409


def test_leases_of_other_namespaces_and_keys_are_others(served):
    acquire(served)
    other = served.send("POST", f"/leases/{'0' * 32}", json={"holder": "h", "ttl_s": 5})
    assert other.status_code == 201
    elsewhere = type(served)(served.service, served.http, "default", served.token("write", "*"))
    assert acquire(elsewhere).status_code == 201


@pytest.mark.parametrize("ttl_s", [0, 0.5, 3601, -1, "soon", None])
def test_a_time_that_cannot_be_is_refused(served, ttl_s):
    assert acquire(served, ttl_s=ttl_s).status_code == 422


def test_a_secret_is_stored_as_a_hash_alone(served):
    secret = acquire(served).json()["token"]
    with served.service.database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM leases").fetchall()
    assert secret not in str(rows)
    assert acquire(served, "x\x00y").status_code == 422
