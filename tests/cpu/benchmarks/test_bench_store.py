"""``launchkit bench store``: each figure is of what it is named for, and bad use is refused."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.benchmarks.store import bench
from launchkit.benchmarks.store import records as store_records
from launchkit.errors import UsageError
from launchkit.store import DirectoryStore
from launchkit.tools import bench_store, cli

COUNT = 300


@pytest.fixture(scope="module")
def document():
    return bench.measure((COUNT, 64), lookups=50)


def test_there_is_a_row_for_each_number_of_keys(document) -> None:
    assert [row["keys"] for row in document["rows"]] == [64, COUNT]
    for row in document["rows"]:
        assert row["keys"] / 4 < row["files"] <= min(row["keys"], 256)
        assert row["stored_bytes"] > row["keys"] * 1000
        assert row["stored_bytes"] / row["files"] <= row["largest_file_bytes"]
        times = {name: value for name, value in row.items() if name.endswith("_us")}
        assert len(times) == 10
        assert all(value > 0 for value in times.values())
        for what in ("first", "other", "again", "absent"):
            assert row[f"get_{what}_median_us"] <= row[f"get_{what}_p95_us"]
        assert row["memory_bytes"] > 0


def test_records_are_distinct_and_stand_as_a_store_lists_them(tmp_path) -> None:
    records = list(store_records.records(0, COUNT))
    assert len({record.key for record in records}) == COUNT
    store = DirectoryStore(tmp_path)
    assert store.put_all(records) == []
    assert list(DirectoryStore(tmp_path).records()) == records


def test_a_lookup_that_finds_something_else_is_no_result(tmp_path) -> None:
    DirectoryStore(tmp_path).put_all(store_records.records(0, 63))
    with pytest.raises(RuntimeError, match="key 63"):
        store_records.look_up(str(tmp_path), 64, 8, seed=1)
    with pytest.raises(UsageError, match="looking keys up failed: RuntimeError: key 63"):
        bench._in_a_new_process(str(tmp_path), 64, 8, 1)


def test_progress_is_told_of_every_batch(monkeypatch) -> None:
    monkeypatch.setattr(bench, "_BATCH", 25)
    told: list[int] = []
    assert len(list(bench._counted(store_records.records(0, 110), told.append))) == 110
    assert told == [25] * 4


def test_the_table_has_a_line_for_each_row(document, capsys) -> None:
    bench_store.show(document)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines if line[:1] in (["64"], ["300"])] == ["64", "300"]
    assert all(len(line) == 11 for line in lines if line[:1] in (["64"], ["300"]))


def test_the_command_writes_what_it_prints(tmp_path) -> None:
    out = tmp_path / "out.json"
    arguments = ["bench", "store", "--keys", "64", "--lookups", "8", "--json", "-o", str(out)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0
    assert result.stdout_bytes == out.read_bytes()
    found = jsonio.loads(out.read_bytes(), source="out", limit_bytes=10**6)
    assert [row["keys"] for row in found["rows"]] == [64]


@pytest.mark.parametrize("arguments", [["--keys", "63"], ["--lookups", "0"], ["-o", "/no/where"]])
def test_bad_use_is_refused(arguments) -> None:
    result = CliRunner().invoke(cli.app, ["bench", "store", *arguments])
    assert isinstance(result.exception, UsageError)  # exit code 2 where the program ends
    with pytest.raises(UsageError):
        bench.measure(())
