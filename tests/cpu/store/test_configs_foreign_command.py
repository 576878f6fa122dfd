"""launchkit configs import and export --format: options become what the files leave out."""

from __future__ import annotations

import json
import pathlib

import pytest
from configs_commands import run
from foreign_files import H100, write_json
from sharing import filled
from stored import record_for

from launchkit.configs import identify
from launchkit.keys import KernelId
from launchkit.store import DirectoryStore
from launchkit.store.foreign import FORMATS, OPTIONS
from launchkit.tools.configs_foreign import typed_value

DEVICE = json.dumps({name: getattr(H100, name) for name in H100.__dataclass_fields__})
TOLD = ["--kernel", "scale_rows", "--digest", "ab" * 32, "--device", DEVICE, "--triton", "3.6.0",
        "--parameters", "x_ptr,n,BLOCK", "--tensors", "x_ptr", "--keys", "n"]  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    """A cache of Triton's with one good file and one that is broken."""
    config = {"kwargs": {"BLOCK": 128}, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    good = {"key": [1024, "torch.float16"], "configs_timings": [[config, [0.25, 0.125, 0.375]]]}
    write_json(tmp_path / "cache" / "A" / "scale_rows.autotune.json", good)
    (tmp_path / "cache" / "B").mkdir()
    (tmp_path / "cache" / "B" / "scale_rows.autotune.json").write_bytes(b"{")
    return tmp_path / "cache"


def test_a_tree_of_another_program_is_merged_and_what_is_broken_is_told(tree, tmp_path) -> None:
    place = tmp_path / "store"
    result = run("import", tree, "--store", place, "--format", "triton", *TOLD, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["added"] == 1
    assert [str(tree / "B") in each["place"] for each in found["unreadable"]] == [True]
    assert found["gaps"] == list(FORMATS["triton"].gaps)
    (record,) = DirectoryStore(place).records()
    assert (record.kernel, record.device) == (KernelId("scale_rows", "ab" * 32), H100)
    assert record.key.text == "n=1024 x_ptr:torch.float16"
    assert record.chosen == identify({"BLOCK": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 3})
    assert record.winner.median_us == 250.0


def test_names_that_the_store_knows_are_completed(tree, tmp_path) -> None:
    place = tmp_path / "store"
    run("import", tree, "--store", place, "--format", "triton", *TOLD)
    short = ["--kernel", "scale_rows", "--digest", "abab", "--device", "H100", *TOLD[6:]]
    result = run("import", tree, "--store", place, "--format", "triton", *short, "--json")
    assert json.loads(result.stdout)["same"] == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--device", "H100"),
        ("--device", "{}"),
        ("--device", '{"name": 1}'),
        ("--device", "{"),
        ("--device", DEVICE.replace("80}", '"80"}')),
        ("--digest", "ab"),
        ("--digest", "x"),
        ("--key-value", "n"),
        ("--key-value", "n=1"),
        ("--key-field", "=M"),
    ],
)
def test_bad_options_are_exit_2_and_store_nothing(tree, tmp_path, option, value) -> None:
    told = [*TOLD, option, value]
    result = run("import", tree, "--store", tmp_path / "store", "--format", "triton", *told)
    assert result.exit_code == 2, result.output
    assert not (tmp_path / "store").exists()


def test_what_a_format_needs_and_was_not_told_is_named_by_its_option(tree, tmp_path) -> None:
    result = run("import", tree, "--store", tmp_path / "store", "--format", "triton")
    assert result.exit_code == 2
    for name in FORMATS["triton"].needs:
        assert OPTIONS[name].split()[0] in result.stderr.replace("\n", " ")


def test_every_option_of_a_context_is_an_option_of_the_command() -> None:
    shown = run("import", "--help").stdout
    for option in OPTIONS.values():
        assert option.split()[0] in shown


def test_records_are_written_for_another_program_and_the_rest_is_told(tmp_path) -> None:
    store = filled(tmp_path / "store", record_for(1), record_for(2))
    out = tmp_path / "out"
    result = run("export", out, "--store", store.path, "--format", "fla", "--json")
    written = json.loads(result.stdout)
    (file,) = map(pathlib.Path, written["files"])
    assert (result.exit_code, written["skipped"]) == (0, [])
    assert file.is_relative_to(out)
    assert len(json.loads(file.read_bytes())["autotune_entries"]) == 2
    assert run("export", out, "--store", store.path, "--format", "triton").exit_code == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("int:64", 64), ("int:-1", -1), ("float:0.5", 0.5), ("bool:True", True), ("bool:False", False),
     ("str:", ""), ("str:int:1", "int:1"), ("none", None)],
)  # fmt: skip
def test_values_are_read_with_their_types(text, value) -> None:
    assert typed_value(text) == value
    assert type(typed_value(text)) is type(value)


@pytest.mark.parametrize("text", ["64", "int:x", "bool:true", "bool:1", "none:1", "list:[]", ""])
def test_values_without_a_type_are_refused(text, capsys) -> None:
    with pytest.raises(Exception, match="2"):
        typed_value(text)
    assert "no typed value" in capsys.readouterr().err
