"""``launchkit configs import|export --format``: other programs' files into a store and out of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from foreign_files import CONTEXT, H100, write_json
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.keys import Toolchain
from launchkit.store import DirectoryStore
from launchkit.tools.configs import app

KERNEL = ["--kernel", CONTEXT.kernel.name, "--digest", CONTEXT.kernel.digest]
DEVICE = ["--device", jsonio.dumps_compact(asdict(H100)).decode()]
PARAMETERS = ["--parameters", "x_ptr,y_ptr,n,BLOCK"]
TOLD = [*KERNEL, *DEVICE, *PARAMETERS, "--keys", "n"]
FLA = {"kwargs": {"BLOCK": 128}, "num_warps": 4, "num_stages": 3, "num_ctas": 1}
MOE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1,
       "num_warps": 4, "num_stages": 3}  # fmt: skip
NAME = "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3.json"


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def triton_file(tmp_path, n=1024):
    config = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "kwargs": {"BLOCK": 128}}
    key = [n, "torch.float16", "torch.float32"]
    content = {"key": key, "configs_timings": [[config, [0.25, 0.2, 0.3]]]}
    return write_json(tmp_path / f"{n}" / "scale_rows.autotune.json", content)


def test_file_of_triton_goes_into_a_store_and_is_written_for_fla(tmp_path):
    options = ["--triton", "3.6.0", "--tensors", "x_ptr,y_ptr", "--method", "eager+cold"]
    store = ["--store", tmp_path / "store"]
    done = run("import", triton_file(tmp_path), *store, "--format", "triton", *TOLD, *options)
    assert done.exit_code == 0, done.output
    assert "do not tell: the device and Triton's version" in done.stderr
    (record,) = DirectoryStore(tmp_path / "store").records()
    assert (record.winner.median_us, record.winner.method) == (250.0, "eager+cold")
    assert (record.device, record.toolchain) == (H100, Toolchain("3.6.0"))
    done = run("export", tmp_path / "out", *store, "--format", "fla", "--json")
    assert done.exit_code == 0, done.output
    (path,) = json.loads(done.stdout)["files"]
    (entry,) = json.loads(Path(path).read_text())["autotune_entries"].values()
    assert entry["autotune_key"] == [1024, "torch.float16", "torch.float32"]
    done = run("export", tmp_path / "turned", *store, "--format", "fla", "--tensors", "y_ptr,x_ptr")
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "turned").rglob("*.json")
    (entry,) = json.loads(path.read_text())["autotune_entries"].values()
    assert entry["autotune_key"] == [1024, "torch.float32", "torch.float16"]


def test_file_of_vllm_goes_in_and_comes_out_for_sglang(tmp_path):
    path = write_json(tmp_path / NAME, {"triton_version": "3.6.0", "16": MOE, "1": MOE})
    store = ["--store", tmp_path / "store"]
    told = [*KERNEL, *DEVICE, *PARAMETERS, "--keys", "tokens,N,E", "--key-field", "tokens=M"]
    done = run("import", path, *store, "--format", "vllm", *told, "--dtype", "x_ptr=torch.bfloat16")
    assert done.exit_code == 0, done.output
    for record in DirectoryStore(tmp_path / "store").records():
        assert (record.winner.timed, record.winner.method) == (False, "imported:vllm")
    fields = ["--key-field", "tokens=M"]
    done = run("export", tmp_path / "out", *store, "--format", "sglang", *fields)
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "out" / "triton_3_6_0" / NAME).read_text())
    assert list(written.items()) == [("1", MOE), ("16", MOE)]
    for command in (["list"], ["show", "scale_rows"]):
        assert run(*command, *store).exit_code == 0


def test_entry_that_is_left_out_is_told_and_the_rest_is_taken(tmp_path):
    entries = {"0" * 32: {"autotune_key": [1024], "config": FLA}}
    content = {"kernel_name": "scale_rows", "triton_version": "3.6.0", "autotune_entries": entries}
    path = write_json(tmp_path / "scale_rows.json", content)
    options = ["--store", tmp_path / "store", "--format", "fla", *TOLD, "--tensors", "x_ptr"]
    done = run("import", path, *options)
    assert done.exit_code == 1
    assert "its md5 is not that of its key" in done.output
    assert list(DirectoryStore(tmp_path / "store").records()) == []


@pytest.mark.parametrize("missing", ["--device", "--parameters", "--keys", "--kernel"])
def test_what_is_not_told_is_exit_2_and_names_its_option(tmp_path, missing):
    told = ["--triton", "3.6.0", "--tensors", "x_ptr,y_ptr", *TOLD]
    del told[told.index(missing) : told.index(missing) + 2]
    if missing == "--kernel":
        del told[told.index("--digest") : told.index("--digest") + 2]
    done = run("import", triton_file(tmp_path), "--format", "triton", *told)
    assert done.exit_code == 2
    assert f"Give {missing}" in " ".join(done.stderr.split())


def test_file_in_the_way_of_an_export_is_exit_2_and_stays(tmp_path):
    options = ["--triton", "3.6.0", "--tensors", "x_ptr,y_ptr", "--store", tmp_path / "store"]
    run("import", triton_file(tmp_path), "--format", "triton", *TOLD, *options)
    path = write_json(tmp_path / "out" / "NVIDIA_H100_80GB_HBM3" / "scale_rows.json", {})
    done = run("export", tmp_path / "out", "--store", tmp_path / "store", "--format", "fla")
    assert (done.exit_code, path.read_text()) == (2, "{}")
