"""A manifest has each kind of launch once, with what another process needs, and no values."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import threading

import manifest_kernels
import pytest
import torch
import triton
from descriptor_kernels import copy_block
from triton.tools.tensor_descriptor import TensorDescriptor

import launchkit
from launchkit import settings
from launchkit.dispatch import launch_notes
from launchkit.dispatch.manifest import recording as manifest_recording
from launchkit.dispatch.manifest.document import Manifest, dump, read_manifest
from launchkit.errors import BadDocumentError, UsageError

pytestmark = pytest.mark.usefixtures("host")

X = torch.arange(96.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deployed" / "manifest.json"


def fresh(kernel):
    """Forget every plan that an earlier test has left on a kernel."""
    for layer in (kernel, getattr(kernel, "fn", kernel), getattr(kernel.fn, "fn", kernel)):
        vars(layer).pop("_launchkit_entry", None)
    return kernel


def launch_plain(n=64, **options):
    kernel = fresh(manifest_kernels.plain)
    launchkit.launch(kernel, (2,), X, X, n, 1, 0.5, BLOCK=16, **options)


def recorded(path):
    return read_manifest(path).entries


def test_entry_says_what_was_launched_and_no_value_of_a_tensor(path):
    with launchkit.record_manifest(path):
        launch_plain(num_warps=2)
    (entry,) = recorded(path)
    kernel = entry["kernel"]
    assert (kernel["module"], kernel["qualname"], kernel["layer"]) == (
        "manifest_kernels", "plain", 0,
    )  # fmt: skip
    assert len(kernel["digest"]) == 64
    tensor = entry["args"][0]
    assert {**tensor, "alignment": 0} == {
        "kind": "tensor", "dtype": "torch.float32", "shape": [96], "strides": [1],
        "alignment": 0, "device": "gpu",
    }  # fmt: skip
    assert entry["args"][2:] == [
        {"kind": "value", "type": "int", "value": "64"},
        {"kind": "value", "type": "int", "value": "1"},
        {"kind": "value", "type": "float", "value": "0.5"},
    ]
    assert entry["kwargs"]["num_warps"] == {"kind": "value", "type": "int", "value": "2"}
    assert entry["grid"]["dims"] == [2]
    assert b"95.0" not in path.read_bytes()


def test_alignment_class_is_recorded(path):
    with launchkit.record_manifest(path):
        launchkit.launch(fresh(manifest_kernels.plain), (2,), X[1:], X, 64, 1, 0.5, BLOCK=16)
    (entry,) = recorded(path)
    assert entry["args"][0]["alignment"] == 4
    assert entry["args"][1]["alignment"] >= 16


@pytest.mark.usefixtures("each_core")
def test_each_kind_is_recorded_once(path):
    kernel = fresh(manifest_kernels.plain)
    with launchkit.record_manifest(path) as recording:
        for n in (64, 80, 64, 65, 67, 2**31, 1):
            for _ in range(2):
                launchkit.launch(kernel, (2,), X, X, n, 1, 0.5, BLOCK=16)
        assert recording.entries == 4  # divisible by 16, not, of 64 bits, and 1
    assert len(recorded(path)) == 4


@pytest.mark.usefixtures("each_core")
def test_a_known_launch_is_not_looked_at(path, monkeypatch):
    kernel = fresh(manifest_kernels.plain)
    launchkit.launch(kernel, (2,), X, X, 64, 1, 0.5, BLOCK=16)
    with launchkit.record_manifest(path) as recording:
        monkeypatch.setattr(recording, "_take", pytest.fail)
        launchkit.launch(kernel, (2,), X, X, 80, 1, 0.25, BLOCK=16)
    assert not path.exists()


def test_nobody_is_told_without_a_recording(path):
    launchkit.record_manifest(path).stop()
    assert launch_notes.active is None


def test_grid_function_is_recorded_for_each_config(path):
    with launchkit.record_manifest(path):
        fresh(manifest_kernels.tuned)[manifest_kernels.grid_of_block](X, X, 64, 1)
    (entry,) = recorded(path)
    assert entry["kernel"]["name"] == "manifest.tuned"
    assert entry["grid"]["names"] == ["BLOCK"]
    assert sorted(entry["grid"]["by_config"].values()) == [[16], [32], [64]]
    assert "BLOCK" not in entry["kwargs"]


@pytest.mark.usefixtures("each_core")
def test_heuristics_below_and_above_are_recorded_at_the_autotuner(path):
    kernel = fresh(manifest_kernels.layered)
    with launchkit.record_manifest(path):
        for x in (X, X, X[1:]):  # the last one misses below the autotuner only
            launchkit.launch(kernel, manifest_kernels.grid_of_block, x, None, 64)
    first, second = recorded(path)
    assert first["kernel"]["layer"] == second["kernel"]["layer"] == 1
    assert first["kwargs"] == {"HAS_BIAS": {"kind": "value", "type": "bool", "value": "False"}}
    assert (first["args"][0]["alignment"], second["args"][0]["alignment"] >= 16) != (4, False)
    assert second["args"][0]["alignment"] == 4


@pytest.mark.usefixtures("each_core")
def test_functions_tuples_and_descriptors_are_recorded(path):
    with launchkit.record_manifest(path):
        launchkit.launch(
            manifest_kernels.with_function, (1,), X, 16, manifest_kernels._double, BLOCK=16
        )
        launchkit.launch(manifest_kernels.with_tuple, (1,), (X, 3), BLOCK=16)
        tiles = TensorDescriptor.from_tensor(torch.zeros(32, 32), [16, 16])
        launchkit.launch(copy_block, (1,), tiles, X, 0, 0, ROWS=16, COLUMNS=16)
    function, pair, descriptor = recorded(path)
    assert function["args"][2] == {
        "kind": "function", "module": "manifest_kernels", "qualname": "_double",
    }  # fmt: skip
    assert [item["kind"] for item in pair["args"][0]["items"]] == ["tensor", "value"]
    assert descriptor["args"][0]["block_shape"] == [16, 16]


@pytest.mark.usefixtures("each_core")
def test_frozen_launch_is_recorded(path):
    with launchkit.record_manifest(path):
        launchkit.freeze(
            fresh(manifest_kernels.plain), (2,), X, X, 64, 1, 0.5, BLOCK=16, varying=("x_ptr",)
        )
    assert len(recorded(path)) == 1


def test_kernels_and_arguments_that_cannot_be_made_again_are_listed_with_reasons(path):
    def inner():
        @triton.jit
        def local(x_ptr, n):
            pass

        return local

    class Odd(int):
        pass

    with launchkit.record_manifest(path) as recording:
        launchkit.launch(inner(), (1,), X, 1)
        launchkit.launch(fresh(manifest_kernels.plain), (1,), X, X, Odd(5), 1, 0.5, BLOCK=16)
        assert (recording.entries, recording.unreplayable) == (0, 2)
    found = read_manifest(path)
    assert found.entries == ()
    reasons = [each["reason"] for each in found.unreplayable]
    assert "no name of the module" in reasons[0]
    assert "Odd" in reasons[1]


def test_launch_that_fails_is_not_recorded(path):
    with launchkit.record_manifest(path), pytest.raises(TypeError):
        launchkit.launch(fresh(manifest_kernels.plain), (2,), X)
    assert not path.exists()


def test_launch_that_lacks_a_config_is_recorded(path, monkeypatch):
    from launchkit import hostonly
    from launchkit.dispatch import triton_seam

    monkeypatch.setattr(triton_seam, "executes", lambda: True)
    kernel = fresh(manifest_kernels.tuned)
    kernel.cache.clear()
    refused = pytest.raises(launchkit.errors.CaptureError)
    with launchkit.record_manifest(path), hostonly.capturing(), refused:
        kernel[manifest_kernels.grid_of_block](X, X, 1234, 1)
    assert len(recorded(path)) == 1


def test_kernel_of_a_module_without_a_python_name_is_recorded(path, tmp_path, monkeypatch):
    (tmp_path / "2d-kernels.py").write_text(
        "import triton\n\n@triton.jit\ndef nothing(pair):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("2d-kernels")
    with launchkit.record_manifest(path):
        launchkit.launch(module.nothing, (1,), (X, 1))
    assert [entry["kernel"]["module"] for entry in recorded(path)] == ["2d-kernels"]
    assert launchkit.warm(path, workers=0).ready


def nested(depth):
    return (X, 1) if depth == 1 else (nested(depth - 1), 1)


def test_tuples_are_recorded_as_deep_as_they_are_described(path):
    with launchkit.record_manifest(path) as recording:
        for depth in (8, 9):
            launchkit.launch(fresh(manifest_kernels.with_nothing), (1,), nested(depth))
        assert (recording.entries, recording.unreplayable) == (1, 1)
    assert launchkit.warm(path, workers=0).counts == {"loaded": 1}


def test_entry_that_no_reader_takes_is_listed_and_spoils_no_other(path, monkeypatch):
    with launchkit.record_manifest(path) as recording:
        launch_plain(64)
        monkeypatch.setattr(manifest_recording.describing, "shown_name", lambda kernel: "k" * 1001)
        launchkit.launch(fresh(manifest_kernels.with_nothing), (1,), (X, 1))
        assert (recording.entries, recording.unreplayable) == (1, 1)
    (listed,) = read_manifest(path).unreplayable
    assert len(recorded(path)) == 1
    assert "1000 characters" in listed["reason"]


# -- the file


def test_manifest_behind_a_link_is_continued_where_it_is(path, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(path)
    for n in (64, 65):
        with launchkit.record_manifest(link):
            launch_plain(n)
    assert link.is_symlink()
    assert len(recorded(path)) == 2


def test_manifest_of_a_newer_launchkit_is_left_alone(path, caplog):
    with launchkit.record_manifest(path) as recording:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"schema": 2, "document": "launchkit manifest", "later": 1}')
        launch_plain()
        assert not recording.write()
        assert "Upgrade launchkit" in caplog.text
        assert [each.name for each in path.parent.glob("*.json*")] == [path.name]
        path.unlink()
    assert len(recorded(path)) == 1


def test_second_recording_continues_the_file(path):
    for n in (64, 65, 64):
        with launchkit.record_manifest(path):
            launch_plain(n)
    assert len(recorded(path)) == 2


def test_two_recorders_of_one_file_lose_nothing(path):
    first, second = launchkit.record_manifest(path), launchkit.record_manifest(path)
    launch_plain(64)
    first.stop()
    launch_plain(65)
    second.stop()
    assert len(recorded(path)) == 2


def test_entries_of_a_kernel_that_has_changed_give_way(path):
    with launchkit.record_manifest(path):
        launch_plain(64)
    (entry,) = recorded(path)
    old = {**entry, "kernel": {**entry["kernel"], "digest": "0" * 64}, "kind": "0" * 16}
    path.write_bytes(dump(Manifest((old,))))
    with launchkit.record_manifest(path):
        launch_plain(64)
    assert recorded(path) == (entry,)


def test_kinds_beyond_the_limit_are_counted(path):
    with launchkit.record_manifest(path, limit=2) as recording:
        for warps in (1, 2, 4, 8, 8):
            launch_plain(num_warps=warps)
        assert recording.dropped == 2
    found = read_manifest(path)
    assert (len(found.entries), found.dropped) == (2, 2)


def test_file_that_breaks_meanwhile_is_set_aside(path, caplog):
    with launchkit.record_manifest(path):
        launch_plain()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{")
    assert len(recorded(path)) == 1
    assert len(list(path.parent.glob("*.bad-*"))) == 1
    assert "set aside" in caplog.text


def test_file_that_cannot_be_written_is_a_warning_and_tried_again(path, caplog, monkeypatch):
    recording = launchkit.record_manifest(path)
    with monkeypatch.context() as patch:
        patch.setattr(manifest_recording.files, "replace_file", refuse)
        launch_plain(64)
        assert not recording.write()
    assert "not written" in caplog.text
    launch_plain(65)
    recording.stop()
    assert len(recorded(path)) == 2


def test_stop_waits_for_what_another_thread_is_writing(path, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    replace_file = manifest_recording.files.replace_file

    def slow(*given):
        begun.set()
        assert may_end.wait(60)
        replace_file(*given)

    monkeypatch.setattr(manifest_recording.files, "replace_file", slow)
    recording = launchkit.record_manifest(path)
    launch_plain()
    assert begun.wait(60)  # the thread that writes a moment later
    stopping = threading.Thread(target=recording.stop)
    stopping.start()
    stopping.join(0.2)
    waited = stopping.is_alive()
    may_end.set()
    stopping.join(60)
    assert waited
    assert len(recorded(path)) == 1


def refuse(*_):
    raise OSError("no room")


def test_trouble_in_recording_fails_no_launch(path, caplog, monkeypatch):
    monkeypatch.setattr(manifest_recording.describing, "describe_grid", lambda *_: 1 / 0)
    with launchkit.record_manifest(path):
        launch_plain()
    assert "was not recorded" in caplog.text


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None])
def test_bad_limit_is_refused(path, limit):
    with pytest.raises(UsageError):
        launchkit.record_manifest(path, limit=limit)


def test_path_that_is_no_manifest_is_refused(tmp_path):
    with pytest.raises(UsageError, match="directory"):
        launchkit.record_manifest(tmp_path)
    (tmp_path / "other.json").write_text('{"schema": 1}')
    with pytest.raises(BadDocumentError, match="not a launchkit manifest"):
        launchkit.record_manifest(tmp_path / "other.json")


PROGRAM = """
import torch
from launchkit import hostonly
import launchkit, manifest_kernels
with hostonly.activate(devices=2):
    x = torch.arange(96.0)
    manifest_kernels.plain[(2,)](x, x, 64, 1, 0.5, BLOCK=16)
"""


def test_variable_records_a_program_that_is_run(tmp_path, path, monkeypatch):
    import os

    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    monkeypatch.setenv("LAUNCHKIT_MANIFEST", str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "launchkit", "run", str(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (entry,) = recorded(path)
    assert entry["kernel"]["qualname"] == "plain"


def test_variable_with_a_bad_path_is_a_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_MANIFEST", str(tmp_path))
    settings.reload()
    monkeypatch.setattr(manifest_recording, "_begun", False)
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        launch_plain()
    assert "LAUNCHKIT_MANIFEST" in caplog.text
