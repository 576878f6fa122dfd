"""launchkit configs: what is stored, for people and as JSON, with honest exit codes."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from launchkit.configs import TunedConfig, identify
from launchkit.keys import KernelId
from launchkit.store import DirectoryStore, document
from launchkit.tools.configs import app

GOLDEN = (pathlib.Path(__file__).parents[2] / "data" / "config_document_v1.json").read_bytes()
RECORDS = document.parse(GOLDEN, source="golden").records


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "400"}).invoke(app, [str(each) for each in arguments])


@pytest.fixture
def place(tmp_path) -> pathlib.Path:
    store = DirectoryStore(tmp_path / "store")
    for record in RECORDS:
        store.put(record)
    return store.path


def test_list_names_each_record_and_its_chosen_config(place) -> None:
    result = run("list", "--store", place)
    assert result.exit_code == 0
    for word in (
        "state_passing_kernel",
        "NVIDIA H200",
        "triton 3.6.0",
        "headdim=64",
        "9.98",
        "1.23",
    ):
        assert word in result.stdout
    assert "BLOCK=128 num_ctas=1 num_stages=3 num_warps=4" in result.stdout


def test_list_as_json_has_a_row_for_each_record(place) -> None:
    result = run("list", "--store", place, "--json")
    raw = json.loads(result.stdout)
    assert result.exit_code == 0
    assert raw["store"] == f"directory {place}"
    assert len(raw["records"]) == 3
    row = next(each for each in raw["records"] if each["configs"] == 3)
    assert (row["failed"], row["median_us"], row["slowest_us"]) == (1, 9.984, 12.288)
    assert row["spread"] == pytest.approx(12.288 / 9.984)
    assert row["kernel"]["name"] == "state_passing_kernel"


def test_show_marks_the_chosen_config_and_gives_reasons_of_failures(place) -> None:
    result = run("show", "passing", "--store", place)
    assert result.exit_code == 0
    (chosen,) = [each for each in result.stdout.splitlines() if "chosen" in each and "9.98" in each]
    assert "BLOCK=128" in chosen
    assert "9.75" in chosen
    assert "10.25" in chosen
    assert "100" in chosen
    assert "Required: 262144" in result.stdout


def test_show_as_json_is_the_stored_record(place) -> None:
    raw = json.loads(run("show", "state", "--store", place, "--json").stdout)
    stored = [document.record_object(record) for record in DirectoryStore(place).records()]
    for shown, record in zip(raw["records"], json.loads(json.dumps(stored)), strict=True):
        assert {name: shown[name] for name in record} == record
        assert shown["device"]["name"] == "NVIDIA H200"


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_an_empty_store_says_where_it_looked(tmp_path, as_json) -> None:
    for command in (["list"], ["show", "kernel"]):
        result = run(*command, "--store", tmp_path / "empty", *as_json)
        assert result.exit_code == 1
        assert str(tmp_path / "empty") in result.stderr.replace("\n", "")
        if as_json:
            assert json.loads(result.stdout)["records"] == []
    assert not (tmp_path / "empty").exists()


def test_a_kernel_that_is_not_there_is_exit_1(place) -> None:
    assert run("show", "no_such_kernel", "--store", place).exit_code == 1


def test_bad_use_is_exit_2_and_no_traceback(tmp_path) -> None:
    (tmp_path / "file").touch()
    for arguments in (
        ["list", "--store", "redis://host"],
        ["list", "--store", tmp_path / "file"],
        ["show"],
        ["list", "--nonsense"],
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Traceback" not in result.output
        assert isinstance(result.exception, SystemExit)


def test_a_foreign_documents_names_cannot_steer_the_terminal(place, caplog) -> None:
    evil = replace(RECORDS[0], kernel=KernelId("k\x1b[2J", "0" * 64))
    store = DirectoryStore(place)
    store.put(evil)
    (path,) = place.glob("v1/*/k_*/*.json")
    path.parent.rename(path.parent.with_name("elsewhere-000000000000"))
    assert run("list", "--store", place).exit_code == 0
    assert "not what its place says" in caplog.text
    assert "\x1b" not in caplog.text


def test_stored_text_cannot_steer_the_terminal(tmp_path) -> None:
    store = DirectoryStore(tmp_path)
    evil = TunedConfig.failed(identify({"BLOCK": 1}), "\x1b[2J[bold]x[/bold]\x07", method="[/]")
    record = replace(
        RECORDS[0],
        kernel=KernelId("k\x1b]0;title\x07", "0" * 64),
        configs=(*RECORDS[0].configs, evil),
    )
    assert store.put(record)
    for command in (["list"], ["show", "k"]):
        result = run(*command, "--store", tmp_path)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        assert "\x07" not in result.stdout
    assert "[bold]x[/bold]" in result.stdout
