"""launchkit tune: every key once, over all GPUs, going on where a killed run ended.

On a stand-in for a GPU: host-only mode that is believed to execute, and kernels with a benchmark of
their own that says BLOCK=32 is the fastest.
"""

from __future__ import annotations

import json
import subprocess
import sys

import manifest_kernels as kernels
import pytest
from manifests import X, session
from typer.testing import CliRunner

import launchkit
from launchkit import settings
from launchkit.dispatch import triton_seam
from launchkit.dispatch.manifest import offline_tuning, tuning_worker
from launchkit.dispatch.manifest.document import Manifest, read_manifest
from launchkit.dispatch.manifest.offline_tuning import tune_manifest
from launchkit.dispatch.manifest.workers import Step
from launchkit.errors import UsageError
from launchkit.tools.cli import app

PRETEND = (Step("job_roles:pretend_to_execute"),)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def manifest(cache_dir, tmp_path_factory):
    """Three keys of one kernel, one of them in two kinds, and a kernel with nothing to tune."""
    path = tmp_path_factory.mktemp("recorded") / "manifest.json"
    with session(cache_dir), launchkit.record_manifest(path):
        for n in (64, 65, 66):
            kernels.tuned[kernels.grid_of_block](X, X, n, 1)
        kernels.tuned[kernels.grid_of_block](X, X, 64, 2)
        kernels.plain[(2,)](X, X, 64, 1, 0.5, BLOCK=16)
    return path


@pytest.fixture
def stand_in(cache_dir, monkeypatch):
    """A session that is believed to execute."""
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    with session(cache_dir):
        monkeypatch.setattr(triton_seam, "executes", lambda: True)
        yield


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "configs")


def tune(manifest, place, gpus=("0",), **options):
    return tune_manifest(
        read_manifest(manifest), store=place, gpus=list(gpus), prepare=PRETEND, **options
    )


def statuses(report):
    return [entry.status for entry in report.entries]


@pytest.mark.usefixtures("stand_in")
def test_killed_worker_fails_its_key_and_two_gpus_share_what_is_left(
    manifest, place, tmp_path, monkeypatch
):
    monkeypatch.setenv("LAUNCHKIT_TEST_DIE_AT", "5")  # in the second key
    report = tune(manifest, place)
    assert not report.complete
    assert statuses(report)[:2] == ["tuned", "failed"]
    assert "SIGKILL" in report.entries[1].reason
    assert "SIGKILL" in str(report)

    monkeypatch.delenv("LAUNCHKIT_TEST_DIE_AT")
    notes, seen = tmp_path / "notes", []
    monkeypatch.setenv("LAUNCHKIT_TEST_NOTES", str(notes))
    again = tune(manifest, place, "01", make="job_roles:note_place", progress=seen.append)
    assert again.complete, again
    assert statuses(again)[:2] == ["stored", "tuned"]
    assert statuses(again)[4] == "nothing to tune"
    assert sorted(seen, key=str) == sorted(again.entries, key=str)
    told = [line.split() for line in notes.read_text().splitlines()]
    assert {where for where, *_ in told} <= {"0", "1"}
    assert {tuple(rest) for _, *rest in told} == {("manifest.tuned", "True")}
    records = list(launchkit.open_store(place).records_of("manifest.tuned"))
    assert len(records) == 3
    blocks = {value.value for each in records for value in each.chosen if value.name == "BLOCK"}
    assert blocks == {"32"}
    with launchkit.use_store(place):
        assert launchkit.warm(manifest).ready


RUN = """
import sys
from manifests import session
from launchkit.dispatch import triton_seam
from launchkit.dispatch.manifest.document import read_manifest
from launchkit.dispatch.manifest.offline_tuning import tune_manifest
from launchkit.dispatch.manifest.workers import Step
manifest, cache_dir, place = sys.argv[1:]
with session(cache_dir):
    triton_seam.executes = lambda: True
    tune_manifest(read_manifest(manifest), store=place, gpus=["0"],
                  prepare=[Step("job_roles:pretend_to_execute")],
                  progress=lambda entry: print(entry.status, flush=True))
"""


def test_run_that_is_killed_goes_on_when_it_is_started_again(
    manifest, place, cache_dir, stand_in, monkeypatch
):
    import os

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    command = [sys.executable, "-c", RUN, str(manifest), str(cache_dir), place]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "tuned\n"
    first.kill()
    first.communicate()
    again = tune(manifest, place)
    assert again.complete
    assert statuses(again)[0] == "stored"


@pytest.fixture
def in_this_process(stand_in, monkeypatch):
    """The jobs are done here instead of by workers."""

    def run_jobs(jobs, role, environments, answered):
        handle = tuning_worker.make_handler(role.options)
        for number, job in enumerate(jobs):
            answered(number, handle(job))

    monkeypatch.setattr(offline_tuning, "run_jobs", run_jobs)


@pytest.mark.usefixtures("in_this_process")
def test_failures_are_collected_with_reasons(manifest, place):
    first, *others = read_manifest(manifest).entries
    gone = {**first, "kernel": {**first["kernel"], "module": "no_such_module"}}
    newer = {**others[0], "grid": {"dims": None, "names": ["BLOCK"], "by_config": {}}}
    listed = {"kernel": "k", "reason": "because"}
    report = tune_manifest(
        Manifest((gone, newer, first), (listed,), 2), store=place, gpus=["0"], prepare=PRETEND
    )
    assert statuses(report) == ["failed", "failed", "tuned"]
    assert "no_such_module" in report.entries[0].reason
    assert "Record the launch again" in report.entries[1].reason
    text = str(report)
    assert "because" in text
    assert "2 kinds" in text
    found = report.as_dict()
    assert (found["complete"], found["counts"]) == (False, {"failed": 2, "tuned": 1})


@pytest.mark.usefixtures("in_this_process")
def test_function_for_arguments_that_fits_another_kernel_is_a_failure(manifest, place):
    entry = read_manifest(manifest).entries[0]
    report = tune_manifest(
        Manifest((entry,)), store=place, gpus=["0"], make="job_roles:make_badly", prepare=PRETEND
    )
    assert "no_such" in report.entries[0].reason


# -- the command


def run(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)])


@pytest.mark.usefixtures("in_this_process")
def test_command_says_what_it_did(manifest, place, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_REQUIRE_TUNED", "1")  # of the server; it must not stop this
    settings.reload()
    done = run(manifest, "--store", place, "--kernel", "manifest.*", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["counts"] == {"tuned": 3, "stored": 1}
    done = run(manifest, "--store", place)
    assert done.stdout.splitlines() == [f"4 stored, 1 nothing to tune; directory {place}"]
    assert run(manifest, "--store", place, "--kernel", "none").stdout.startswith("nothing to tune")


def test_host_only_mode_is_refused(manifest, place, cache_dir):
    with session(cache_dir):
        refused = run(manifest, "--store", place).exception
    assert isinstance(refused, UsageError)
    assert "measures nothing" in str(refused)


def test_without_a_gpu_tune_says_so(manifest, place):
    assert "no GPU" in str(run(manifest, "--store", place).exception)


@pytest.mark.usefixtures("stand_in")
def test_store_that_keeps_nothing_is_refused(manifest):
    assert "keeps nothing" in str(run(manifest, "--store", "memory:").exception)


def test_make_without_a_function_is_refused(manifest):
    assert "module:function" in str(run(manifest, "--make", "module").exception)


def test_gpus_are_named_as_the_system_names_them(monkeypatch):
    from types import SimpleNamespace

    from launchkit.keys import DeviceId

    names = ["A", "B", "A", "A"]
    monkeypatch.setattr(triton_seam, "device_source", lambda: SimpleNamespace(tensors_on_cuda=True))
    monkeypatch.setattr(offline_tuning.torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(
        triton_seam, "device_identity",
        lambda ordinal: DeviceId("cuda", names[ordinal], "sm_90", 132, 1, 80),
    )  # fmt: skip
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert list(offline_tuning.gpu_kinds(None).values()) == [["0", "2", "3"], ["1"]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7, GPU-5,3,1")
    assert list(offline_tuning.gpu_kinds(None).values()) == [["7", "3", "1"], ["GPU-5"]]
    assert list(offline_tuning.gpu_kinds(["3"]).values()) == [["3"]]
    with pytest.raises(UsageError, match="0"):
        offline_tuning.gpu_kinds(["0"])


def test_machine_without_a_gpu_is_told_so_in_own_words(manifest, place, monkeypatch):
    class NoGpu:
        @property
        def active(self):
            raise RuntimeError("0 active drivers ([]). There should only be one.")

    monkeypatch.setattr(triton_seam, "driver_config", NoGpu())
    refused = run(manifest, "--store", place).exception
    assert isinstance(refused, UsageError)
    assert "Triton has no GPU to launch on (no driver finds one)." in str(refused)
