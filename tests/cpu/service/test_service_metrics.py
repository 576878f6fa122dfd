"""What the service counts, for Prometheus and for people."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from serving import serving
from sqlalchemy import select
from stored import RECORD, record_for

import launchkit
from launchkit.keys import Toolchain
from launchkit.service import metrics, protocol
from launchkit.service.tables import counters, misses

TUNED = replace(RECORD, seconds=2.5)


def look_up(served, *asked):
    wanted = [protocol.wanted_record(each.identity).model_dump() for each in asked]
    assert served.send("POST", "/lookup", json={"wanted": wanted}).status_code == 200


def exposed(served):
    """Every sample of /metrics, by name and labels."""
    answer = served.http.get("/metrics", headers=served.headers)
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of(served, name, **labels):
    return exposed(served).get(
        (name, tuple(sorted({"namespace": served.namespace, **labels}.items())))
    )


def missed(served):
    with served.service.database.reading() as connection:
        mine = misses.c.namespace == served.namespace
        rows = connection.execute(select(misses).where(mine).order_by(misses.c.count.desc()))
        return [(row.key_hash, row.toolchain, row.reason, row.count) for row in rows]


def counted(served):
    with served.service.database.reading() as connection:
        mine = counters.c.namespace == served.namespace
        rows = connection.execute(select(counters).where(mine))
        return {(row.name, row.label): row.value for row in rows}


def test_hits_and_misses_are_counted_by_reason(served):
    served.put(TUNED)
    newer = replace(TUNED, toolchain=Toolchain("99"))
    look_up(served, TUNED, TUNED, newer, record_for(1))
    served.get(TUNED)
    served.get(record_for(1))
    assert of(served, "launchkit_hits_total") == 3
    assert of(served, "launchkit_gpu_seconds_saved_total") == 7.5
    assert of(served, "launchkit_misses_total", reason="toolchain") == 1
    assert of(served, "launchkit_misses_total", reason="absent") == 2
    assert of(served, "launchkit_writes_total", outcome="created") == 1


def test_size_of_the_database_grows_with_what_it_holds(served):
    before = exposed(served)["launchkit_database_bytes", ()]
    assert before > 0
    for number in range(300):
        served.put(record_for(number))
    assert exposed(served)["launchkit_database_bytes", ()] > before


def test_counts_reach_the_database_and_add_up(served):
    served.put(TUNED)
    for _ in range(2):
        look_up(served, TUNED, record_for(1))
        served.service.metrics.flush()
    sums = counted(served)
    assert sums["hits", ""] == 2
    assert sums["saved_s", ""] == 5.0
    assert sums["misses", "absent"] == 2
    assert missed(served) == [(record_for(1).key.digest, RECORD.toolchain.triton, "absent", 2)]


def test_a_key_that_is_tuned_is_no_longer_among_the_missed(served):
    look_up(served, record_for(1), record_for(2))
    served.service.metrics.flush()
    assert len(missed(served)) == 2
    served.put(record_for(1))
    assert [key for key, *_ in missed(served)] == [record_for(2).key.digest]


def test_of_the_missed_keys_the_latest_are_kept(served):
    for n in range(5):
        look_up(served, record_for(n))
        served.service.metrics.flush()
    metrics.forget_misses(served.service.database, keep=2)
    assert len(missed(served)) <= 2


def test_sizes_and_latencies_are_exposed_without_paths(served):
    served.put(RECORD)
    served.http.get("/some/secret/path", headers=served.headers)
    found = exposed(served)
    assert found["launchkit_stored", (("what", "records"),)] >= 1
    routes = {dict(labels)["route"] for name, labels in found if name.endswith("seconds_count")}
    assert "/v1/namespaces/{namespace}/records/{kernel}/{digest}/{device}/{key_hash}" in routes
    assert not any("secret" in route or served.namespace in route for route in routes)


def test_strangers_make_no_new_series(served):
    for n in range(3):
        served.http.request(f"METHOD{n}", "/status", headers=served.headers)
        served.http.get(f"/path{n}", headers=served.headers)
        elsewhere = replace(served, namespace=f"none{n}", headers=served.token("write", "*"))
        elsewhere.get(RECORD)
        elsewhere.send("POST", f"/leases/{'0' * 32}", json={"holder": "h", "ttl_s": 5})
    labels = {value for _, labels in exposed(served) for _, value in labels}
    assert not [
        each for each in labels if each.startswith(("METHOD", "/path", "none")) and each != "none"
    ]


def test_requests_for_leases_are_counted_by_outcome(served):
    for holder in ("a", "b"):
        served.send("POST", f"/leases/{'0' * 32}", json={"holder": holder, "ttl_s": 5})
    assert of(served, "launchkit_lease_requests_total", outcome="granted") == 1
    assert of(served, "launchkit_lease_requests_total", outcome="held") == 1


def test_status_tells_what_the_server_holds(served):
    served.put(RECORD)
    status = served.http.get("/status", headers=served.headers).json()
    assert status["version"] == launchkit.__version__
    assert status["schema_version"] == served.service.schema
    assert status["database"] == served.service.database.kind
    assert status["records"] >= 1
    assert status["namespaces"] >= 2


def test_counts_are_written_when_a_server_ends(tmp_path):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with serving(url, flush_s=3600.0) as served:
        served.headers = served.token("read")
        look_up(served, RECORD)
        assert counted(served) == {}
    with serving(url) as served:
        assert counted(served) == {("misses", "absent"): 1}
