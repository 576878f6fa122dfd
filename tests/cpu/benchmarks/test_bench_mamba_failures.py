"""Whatever ends the work on a case of the Mamba benchmark is one error that names the case."""

from __future__ import annotations

import functools
import multiprocessing
import subprocess
import sys

import job_roles
import pytest
import torch

from launchkit.benchmarks.failures import failure, named
from launchkit.benchmarks.mamba import bench
from launchkit.benchmarks.mamba import cases as mamba_cases
from launchkit.benchmarks.mamba import prepare as mamba_prepare
from launchkit.benchmarks.mamba.cases import MambaCase
from launchkit.errors import CompilerError, LaunchkitError, UsageError

# More memory than any address space holds, so that it fails everywhere and at once.
HUGE = MambaCase("Nemotron-3-Nano", sequences=1, tokens=2**36, initial_states=False)
REFUSED = MambaCase("Bamba-9B", sequences=1, tokens=2**31, initial_states=False)


def prepare(*cases):
    return mamba_prepare.prepare(cases, lambda _: None)


def test_a_case_without_memory_is_named_with_what_would_do(capfd):
    with pytest.raises(LaunchkitError, match=r"Nemotron-3-Nano/S1/T68719476736 .*RuntimeError"):
        prepare(HUGE)
    assert multiprocessing.active_children() == []
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_error_of_launchkits_own_keeps_its_advice_and_names_the_case():
    with (
        pytest.raises(LaunchkitError, match=r"^a-case: too long\. Split the batch\.$"),
        named("a-case"),
    ):
        raise UsageError("too long. Split the batch.", op="op")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("the driver is gone"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 TiB."),
        job_roles.Unsendable(1, 2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_any_kind_from_a_process_names_the_model(error, monkeypatch):
    monkeypatch.setattr(
        mamba_prepare, "_prepare_model", functools.partial(job_roles.throw, type(error), error.args)
    )
    with pytest.raises(LaunchkitError, match="Bamba-9B") as caught:
        prepare(REFUSED)
    assert caught.value.__cause__ is not None
    assert multiprocessing.active_children() == []


def test_what_is_wrong_with_the_machine_keeps_its_type(monkeypatch):
    throw = functools.partial(job_roles.throw, CompilerError, ("no compiler. Install gcc.",))
    monkeypatch.setattr(mamba_prepare, "_prepare_model", throw)
    with pytest.raises(CompilerError, match="Install gcc"):
        prepare(REFUSED)


def test_a_compiling_process_that_dies_is_an_error_with_advice(monkeypatch):
    monkeypatch.setattr(mamba_prepare, "_prepare_model", job_roles.die)
    with pytest.raises(LaunchkitError, match=r"Nemotron-3-Nano died.*measure one model at a time"):
        prepare(*mamba_cases.QUICK)


def test_a_process_whose_work_is_not_wanted_any_more_starts_no_further_case(monkeypatch):
    stop = multiprocessing.get_context("spawn").Event()
    built = []

    def build(case, device):
        built.append(case.name)
        stop.set()
        return mamba_cases.build(case, device)

    monkeypatch.setattr(mamba_prepare, "_stops", [stop])
    monkeypatch.setattr(mamba_prepare, "build", build)
    monkeypatch.setattr(mamba_prepare, "count", lambda *_: {})
    cases = mamba_cases.select(["Bamba-9B"], [1], [32])
    assert mamba_prepare._prepare_model(cases) == {cases[0].name: {}}
    assert built == [cases[0].name]


def test_a_case_that_fails_while_it_is_timed_is_named(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(bench, "prepare", lambda cases, _: {c.name: {} for c in cases})
    monkeypatch.setattr(bench, "build", full)
    with pytest.raises(LaunchkitError, match=r"Bamba-9B/S1/T32 .*CUDA out of memory\. Give fewer"):
        bench.measure([MambaCase("Bamba-9B", 1, 32, False)], rounds=2)


def test_a_long_reason_is_cut_and_stays_in_one_line():
    error = failure("a-case", ValueError("at 1:0:\n" + "x = y\n" * 1000))
    assert "\n" not in str(error)
    assert len(str(error)) < 700
    assert error.fields["where"] == "a-case"


def test_the_command_that_runs_out_of_memory_says_so_without_a_traceback():
    code = "from launchkit.tools.cli import main\nmain()"
    sizes = ("--sequences", "1", "--tokens", str(2**31 - 1))
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**36, 2**36))\n{code}"
    result = subprocess.run(
        [sys.executable, "-c", limited, "bench", "mamba", "--model", "Bamba-9B", *sizes],
        capture_output=True,
        check=False,
        text=True,
    )
    assert result.returncode == 2
    said = " ".join(result.stderr.split())
    assert said.startswith("launchkit: Bamba-9B/S1/T2147483647 could not be measured: ")
    assert "Give fewer tokens" in said
    assert "Traceback" not in said
