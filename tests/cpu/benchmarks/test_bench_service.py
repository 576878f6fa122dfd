"""``launchkit bench service``: what it calls right is, what grows is seen, and bad use is refused."""

from __future__ import annotations

import random

import pytest
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.errors import UsageError
from launchkit.tools import bench_service, cli

pytest.importorskip("sqlalchemy", reason="the extra [service] is not installed")

from launchkit.benchmarks import host
from launchkit.benchmarks.service import bench, faults, filling, fleet, records, servers, soak


def samples(bytes_per_s: float, step_bytes: int = 0) -> list[dict[str, float]]:
    rng = random.Random(5)
    return [
        {"at_s": second, "rss_bytes": 1.5e8 + second * bytes_per_s + rng.randrange(-9, 9) * 4096
         + (step_bytes if second > 300 else 0), "threads": 30, "files": 40}
        for second in range(0, 600, 5)
    ]  # fmt: skip


def test_noise_and_one_large_piece_of_memory_are_flat() -> None:
    assert soak.grown(samples(0))["flat"]
    assert soak.grown(samples(0, step_bytes=2**22))["flat"]


def test_forty_bytes_a_request_are_not_flat() -> None:
    found = soak.grown(samples(40 * 400))
    assert not found["flat"]
    assert found["bytes_per_s"] == pytest.approx(16_000, rel=0.05)


HOST = {"host": 0, "key": 0, "tuned": False, "outcome": "waited", "waited_s": 1.0, "result": "a"}


def seen(*hosts: dict[str, object], tuned: int = 1) -> dict[str, object]:
    all_hosts = [HOST | {"host": number} | host for number, host in enumerate(hosts)]
    return {
        "codes": [0] * len(hosts), "wall_s": 1.0, "hosts": all_hosts, "torch": False,
        "tuned": [{"key": 0, "host": 0, "moment_s": 0.0}] * tuned, "warnings": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("two tuned", seen({}, {}, tuned=2)),
        ("nobody tuned", seen({}, {}, tuned=0)),
        ("one has nothing", seen({}, {"result": None})),
        ("one has another result", seen({}, {"result": "b"})),
        ("one said nothing", {**seen({}, {}), "hosts": [HOST]}),
        ("one failed", {**seen({}, {}), "codes": [0, 1]}),
    ],
)
def test_a_fleet_of_which_all_is_not_right_is_not_ok(monkeypatch, what, said) -> None:
    monkeypatch.setattr(fleet, "play", lambda *_, **__: said)
    assert fleet.together(None, 2, 1, 0)["ok"] is False, what
    monkeypatch.setattr(fleet, "play", lambda *_, **__: seen({}, {}))
    assert fleet.together(None, 2, 1, 0)["ok"] is True


def test_records_are_distinct_and_their_rows_are_those_of_the_service(tmp_path) -> None:
    service = pytest.importorskip("launchkit.service.records")
    from sqlalchemy import select

    from launchkit.service import db, tables
    from launchkit.service.options import ServiceSettings

    url = f"sqlite:///{tmp_path / 'rows.db'}"
    servers.make_tokens(url)
    filling.write(url, range(3))
    database = db.connect(ServiceSettings(url))
    with database.writing() as connection:
        copied = connection.execute(select(tables.records)).mappings().all()
        connection.execute(tables.records.delete())
        for number in range(3):
            record = records.record(number)
            service.put(database, connection, service.Put(servers.NAMESPACE, record, "bench"))
        put = connection.execute(select(tables.records)).mappings().all()
    database.close()
    by_place = sorted(copied, key=lambda row: row["place"])
    assert len({row["place"] for row in by_place}) == 3
    for one, other in zip(by_place, sorted(put, key=lambda row: row["place"]), strict=True):
        assert {**one, "updated_ms": 0} == {**other, "updated_ms": 0}


def test_a_lost_write_and_an_unexpected_answer_are_not_ok(monkeypatch) -> None:
    monkeypatch.setattr(faults, "writing", Writing)
    monkeypatch.setattr(faults, "missing", lambda service, numbers: numbers[: Writing.lost])
    numbers, rows = faults.Numbers(), []
    for Writing.lost, Writing.status in ((0, "201"), (1, "201"), (0, "500")):
        rows.append(faults.row(None, "x", lambda: None, 1, numbers))
    assert [row["ok"] for row in rows] == [True, False, False]
    assert [row["lost"] for row in rows] == [0, 1, 0]


class Writing:
    """Writers whose every write is acknowledged before the fault, and as many after it."""

    lost, status = 0, "201"

    def __init__(self, service, written, numbers) -> None:
        self.written = written

    def __enter__(self) -> None:
        written = self.written
        written.note(1, self.status, 0.1)
        written.acknowledged = Growing([1])

    def __exit__(self, *_: object) -> None:
        pass


class Growing(list):
    """A list that is longer each time its length is asked for."""

    def __len__(self) -> int:
        self.append(2)
        return super().__len__()


def test_processes_below_this_one_are_found() -> None:
    import subprocess
    import sys

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in host.children(host.os.getpid())
        assert host.resident_bytes(child.pid) > 0
        child.communicate(b"\n")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--fleet", "--load"], ["--load", "--records", "10"], ["--fleet", "--clients", "0"],
     ["--soak", "--seconds", "0"], ["--soak", "--seconds", "inf"], ["--load", "--seconds", "nan"],
     ["--soak", "--per-s", "nan"], ["--soak", "--per-s", "0"], ["--soak", "--per-s", "inf"],
     ["--faults", "--rounds", "0"], ["--fleet", "--replicas", "0"],
     ["--fleet", "-o", "/no/where"]],
)  # fmt: skip
def test_bad_use_is_refused_before_anything_is_started(arguments, monkeypatch) -> None:
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("it was started"))
    result = CliRunner().invoke(cli.app, ["bench", "service", *arguments])
    assert isinstance(result.exception, UsageError)


@pytest.mark.parametrize(("right", "code"), [(True, 0), (False, 1)])
def test_what_is_not_right_is_exit_code_1_and_written_all_the_same(
    right, code, monkeypatch, tmp_path
) -> None:
    document = {
        "trial": "fleet", "replicas": 2, "database": "SQLite", "ok": right,
        "machine": {"cores": 2, "cpu": "x"},
        "rows": [{"scene": "all", "hosts": 3, "keys": 1, "tuned": 1, "got_the_result": 3,
                  "waited_median_s": 0.1, "waited_max_s": 123.4, "ok": right}],
    }  # fmt: skip
    monkeypatch.setattr(bench, "measure", lambda *_: document)
    out = tmp_path / "out.json"
    result = CliRunner().invoke(cli.app, ["bench", "service", "--fleet", "-o", str(out)])
    assert result.exit_code == code
    assert ("NOT as it must be" in result.stdout) is not right
    assert "123.4" in result.stdout
    assert jsonio.loads(out.read_bytes(), source="out", limit_bytes=10**6) == document


@pytest.mark.parametrize("trial", ["fleet", "load", "soak", "faults"])
def test_each_trial_has_columns(trial) -> None:
    assert trial in bench_service._COLUMNS
