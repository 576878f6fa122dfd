"""After warm() a first launch neither compiles nor tunes; what is not ready is said, with reasons."""

from __future__ import annotations

import re

import manifest_kernels as kernels
import pytest
import torch
from manifests import LAUNCHES, X, first_launch, record, session

import launchkit
from launchkit import hostonly, settings
from launchkit.dispatch import triton_seam
from launchkit.dispatch.manifest import warm_workers, warming
from launchkit.dispatch.manifest.document import Manifest, dump, read_manifest
from launchkit.dispatch.manifest.warming import WarmEntry, WarmReport
from launchkit.errors import BadDocumentError, CaptureError, MissingManifestError, UsageError

THROUGH_TRITON = {"a function", "a tuple", "a descriptor"}
"""Launches that get no plan: Triton launches them, with what it has compiled."""


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    """Triton's disk cache, for sessions that share one."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def manifest(tmp_path):
    return tmp_path / "manifest.json"


@pytest.fixture
def measured(monkeypatch):
    """Host-only mode is believed to execute, so that kernels tune with their own ``do_bench``."""
    monkeypatch.setattr(triton_seam, "executes", lambda: True)
    kernels.MEASURED.clear()
    return kernels.MEASURED


@pytest.mark.usefixtures("each_core")
def test_first_launch_after_warm_neither_compiles_nor_goes_through_triton(manifest, cache_dir):
    record(manifest, cache_dir)
    with session(cache_dir):
        report = launchkit.warm(manifest)
        assert report.ready, report
        assert {entry.status for entry in report.entries} == {"loaded"}
        assert hostonly.launches() == []
        for name in LAUNCHES:
            events, through_triton = first_launch(name)
            assert events == [], name
            assert (through_triton > 0) == (name in THROUGH_TRITON), name


@pytest.mark.parametrize("name", ["plain", "autotuned", "heuristics", "a descriptor"])
def test_first_launch_without_warm_compiles(name, manifest, cache_dir):
    """The proof above can fail."""
    with session(cache_dir):
        events, through_triton = first_launch(name)
        assert events
        assert through_triton


def test_warming_another_alignment_does_not_serve(manifest, cache_dir):
    record(manifest, cache_dir, "plain")
    with session(cache_dir):
        launchkit.warm(manifest)
        assert len(first_launch("at an odd place")[0]) == 1


def test_launches_are_the_same_with_and_without_warm(manifest, cache_dir):
    record(manifest, cache_dir)
    seen = []
    for warmed in (False, True):
        with session(cache_dir):
            if warmed:
                launchkit.warm(manifest)
            for launch in LAUNCHES.values():
                launch()
            seen.append([(each.kernel, each.grid, each.block) for each in hostonly.launches()])
    assert seen[0] == seen[1]


def test_report_tells_compiling_from_loading(manifest, tmp_path, cache_dir):
    record(manifest, cache_dir, "plain", "with options")
    for expected in ("compiled", "loaded"):
        with session(tmp_path / "empty"):
            report = launchkit.warm(manifest, workers=0)
            assert report.counts == {expected: 2}
            assert report.ready
            assert report.as_dict()["entries"][0]["status"] == expected


# -- configs


@pytest.mark.parametrize("required", ["0", "1"])
def test_key_without_a_stored_config_is_said_and_not_tuned(
    required, manifest, cache_dir, measured, monkeypatch
):
    record(manifest, cache_dir, "autotuned")
    launchkit.use_store(launchkit.MemoryStore())
    measured.clear()
    monkeypatch.setenv("LAUNCHKIT_REQUIRE_TUNED", required)
    settings.reload()
    with session(cache_dir):
        report = launchkit.warm(manifest)
        assert (report.counts, report.ready) == ({"no stored config": 1}, False)
        assert measured == []
        head, *lines = str(report).splitlines()
        assert head.startswith("1 no stored config in ")
        assert re.fullmatch(r"no stored config: manifest.tuned\(.*\): absent", lines[0])
        assert "  dtype x_ptr: torch.float32" in lines
        assert not [line for line in lines if line.endswith(": none")]
        assert lines[-1].startswith("Tune what has no config with launchkit tune")


def test_what_many_entries_of_a_kernel_lack_is_told_once_and_each_is_named():
    def lacking(kernel, n, reason):
        return WarmEntry(kernel, f"{kernel}({n})", "no stored config", reason, 0.0)

    entries = [lacking("one", n, "absent\nnothing of it is stored") for n in (1, 2)]
    entries += [lacking("one", 3, "malformed\nits file"), lacking("two", 4, "absent\nnothing")]
    lines = str(WarmReport(tuple(entries), (), 0, 1.0)).splitlines()
    assert lines[1:-1] == [
        "no stored config: one(1): absent", "nothing of it is stored",
        "no stored config: one(2): absent",
        "no stored config: one(3): malformed", "its file",
        "no stored config: two(4): absent", "nothing",
    ]  # fmt: skip


@pytest.mark.usefixtures("each_core")
def test_stored_config_is_the_one_that_is_warmed(manifest, cache_dir, measured):
    record(manifest, cache_dir, "autotuned", "heuristics")
    assert measured
    measured.clear()
    with session(cache_dir):
        assert launchkit.warm(manifest).ready
        for name in ("autotuned", "heuristics"):
            assert first_launch(name) == ([], 0)
            assert hostonly.launches()[-1].grid[0] == 32
    assert measured == []


def test_pre_hook_of_the_config_is_run_before_compiling(manifest, cache_dir, monkeypatch):
    """As for kernels whose hook says a descriptor's block shape."""
    seen = []
    record(manifest, cache_dir, "autotuned")
    with session(cache_dir):
        for config in kernels.CONFIGS:
            monkeypatch.setattr(config, "pre_hook", lambda args: seen.append(args["BLOCK"]))
        assert launchkit.warm(manifest).ready
        assert seen == [16]
        assert first_launch("autotuned")[0] == []


# -- what cannot be warmed


def changed(manifest, **kernel):
    """Write a manifest whose kernel is another one."""
    (entry,) = read_manifest(manifest).entries
    manifest.write_bytes(dump(Manifest(({**entry, "kernel": {**entry["kernel"], **kernel}},))))


def test_module_that_ends_the_program_is_a_failure_and_the_rest_is_warmed(
    manifest, cache_dir, tmp_path, monkeypatch
):
    (tmp_path / "script_without_guard.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    record(manifest, cache_dir, "plain")
    (good,) = read_manifest(manifest).entries
    bad = {**good, "kernel": {**good["kernel"], "module": "script_without_guard"}}
    with session(cache_dir):
        report = launchkit.warm(Manifest((bad, good)), workers=0)
    assert [entry.status for entry in report.entries] == ["failed", "loaded"]
    assert "SystemExit: 3" in report.entries[0].reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"digest": "0" * 64}, "has changed"),
        ({"module": "no_such_module"}, "cannot be imported"),
        ({"qualname": "no_such_kernel"}, "cannot be imported"),
        ({"qualname": "grid_of_block"}, "not a Triton kernel"),
        ({"layer": 3}, "other decorators"),
    ],
    ids=str,
)
def test_kernel_that_is_not_there_is_a_failure_with_its_reason(change, reason, manifest, cache_dir):
    record(manifest, cache_dir, "plain")
    changed(manifest, **change)
    with session(cache_dir):
        report = launchkit.warm(manifest)
        assert (report.counts, report.ready) == ({"failed": 1}, False)
        assert reason in report.entries[0].reason


@pytest.mark.parametrize(
    "argument",
    [
        {"kind": "value", "type": "unheard of", "value": "1"},
        {"kind": "value", "type": "int", "value": "9" * 5000},
        {"kind": "value", "type": "int", "value": "one"},
        {"kind": "value", "type": "enum:no_module.E", "value": "A"},
        {"kind": "value", "type": "torch.dtype", "value": "torch.nn"},
        {"kind": "function", "module": "no_such", "qualname": "f"},
        {"kind": "tensor", "dtype": "torch.float32", "shape": [4], "strides": [4, 1],
         "alignment": 16, "device": "gpu"},
        {"kind": "tensor", "dtype": "torch.float32", "shape": [4], "strides": [1],
         "alignment": 1, "device": "gpu"},
        {"kind": "tensor", "dtype": "torch.no", "shape": [4], "strides": [1],
         "alignment": 16, "device": "gpu"},
    ],
    ids=lambda argument: str(argument)[:60],
)  # fmt: skip
def test_argument_that_cannot_be_made_is_a_failure_with_its_reason(argument, manifest, cache_dir):
    record(manifest, cache_dir, "plain")
    (entry,) = read_manifest(manifest).entries
    with session(cache_dir):
        broken = Manifest(({**entry, "args": [argument, *entry["args"][1:]]},))
        (found,) = launchkit.warm(broken).entries
        assert found.status == "failed"
        assert found.reason


def test_what_does_not_compile_is_a_failure_and_the_rest_is_warmed(manifest, cache_dir):
    record(manifest, cache_dir, "plain", "with options")
    first, second = read_manifest(manifest).entries
    odd = {"kind": "value", "type": "int", "value": "17"}  # no power of two
    broken = {**first, "kwargs": {**first["kwargs"], "BLOCK": odd}}
    with session(cache_dir):
        report = launchkit.warm(Manifest((broken, second)))
        assert [entry.status for entry in report.entries] == ["failed", "loaded"]


def test_manifest_that_is_not_whole_is_not_ready(manifest, cache_dir):
    listed = {"kernel": "k", "reason": "because"}
    with session(cache_dir):
        assert launchkit.warm(Manifest()).ready
        for found in (Manifest(unreplayable=(listed,)), Manifest(dropped=1)):
            assert not launchkit.warm(found).ready
        assert "because" in str(launchkit.warm(Manifest(unreplayable=(listed,))))


def test_tensor_larger_than_memory_is_warmed(manifest, cache_dir):
    record(manifest, cache_dir, "plain")
    (entry,) = read_manifest(manifest).entries
    huge = {**entry["args"][0], "shape": [2**30, 7, 2**10], "strides": [7 * 2**10, 2**10, 1]}
    with session(cache_dir):
        assert launchkit.warm(Manifest(({**entry, "args": [huge, *entry["args"][1:]]},))).ready
        assert first_launch("plain") == ([], 0)


def test_bad_options_are_refused(manifest, cache_dir):
    with session(cache_dir):
        for workers in (-1, True, 1.5, "2"):
            with pytest.raises(UsageError):
                launchkit.warm(Manifest(), workers=workers)
        with pytest.raises(FileNotFoundError) as missing:
            launchkit.warm(manifest)
        assert isinstance(missing.value, MissingManifestError)
        assert f"Record one: LAUNCHKIT_MANIFEST={manifest}" in str(missing.value)
        manifest.write_text("{}")
        with pytest.raises(BadDocumentError):
            launchkit.warm(manifest)
        with hostonly.capturing(), pytest.raises(CaptureError, match="Warm up before"):
            launchkit.warm(Manifest())


def test_random_numbers_of_the_caller_stay_what_they_were(manifest, cache_dir):
    record(manifest, cache_dir, "plain")
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    with session(cache_dir):
        launchkit.warm(manifest)
    assert torch.equal(torch.rand(3), expected)


# -- workers


def test_workers_fill_the_disk_cache(manifest, tmp_path, cache_dir, monkeypatch):
    monkeypatch.setattr(warming, "MIN_FOR_WORKERS", 2)
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    record(manifest, cache_dir)
    with session(tmp_path / "empty"):
        report = launchkit.warm(manifest, workers=2)
        assert report.ready, report
        assert [entry.status for entry in report.entries].count("compiled") == 1
        assert first_launch("autotuned") == ([], 0)
        assert X.sum() == 4560  # nothing was launched on it, here or there


def test_workers_are_not_started_for_a_warm_cache(manifest, cache_dir, monkeypatch):
    monkeypatch.setattr(warming, "MIN_FOR_WORKERS", 1)
    monkeypatch.setattr(warm_workers, "compile_all", pytest.fail)
    record(manifest, cache_dir)
    with session(cache_dir):
        assert launchkit.warm(manifest, workers=2).ready
