"""launchkit doctor on captures: the exact commands, and what would spoil them here."""

from __future__ import annotations

import shlex

import pytest

from launchkit.errors import MissingExtraError
from launchkit.profiling import capturing
from launchkit.tools import doctor_captures


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine as told: its nsys, its nvtx, who may trace whom, and what is attached."""

    def made(nsys=None, nvtx="0.2.17", scope=None, capabilities="0", attached=()):
        for name in doctor_captures._ATTACHED:
            monkeypatch.delenv(name, raising=False)
        for name in attached:
            monkeypatch.setenv(name, "/opt/a library.so")
        monkeypatch.setenv("PATH", str(tmp_path))
        if nsys is not None:
            program = tmp_path / "nsys"
            program.write_text(f"#!/bin/sh\necho {shlex.quote(nsys)}\n", encoding="utf-8")
            program.chmod(0o755)
        monkeypatch.setattr(capturing, "nvtx_release", lambda: nvtx)
        for name, text in (("_SCOPE", scope), ("_STATUS", f"Name: x\nCapEff:\t{capabilities}\n")):
            path = tmp_path / name
            if text is not None:
                path.write_text(text, encoding="utf-8")
            monkeypatch.setattr(doctor_captures, name, path)
        return doctor_captures.checks()

    return made


def findings(checks):
    return [(check.name, check.says, check.advice) for check in checks if check.state == "finding"]


def test_commands_are_those_that_profile_runs(machine) -> None:
    checks = machine(nsys="NVIDIA Nsight Systems version 2025.3.2.474-1v0")
    told = " ".join(check.says for check in checks)
    line = capturing.nsys_command(["PROGRAM"], capturing.NsysOptions("capture"))
    assert shlex.join(line) in told
    assert shlex.join(capturing.nsys_export("capture.nsys-rep", "capture.sqlite")) in told
    assert "launchkit profile --torch -- PROGRAM" in told
    assert "record --format=chrometrace --rate=500 --subprocesses --idle" in told
    assert "a replay of a CUDA graph is one row" in told
    assert findings(checks) == []


def test_without_nsys_its_command_is_still_told_and_nothing_is_a_finding(machine) -> None:
    (check, *_) = machine()
    assert (check.name, check.state) == ("capture: nsys", "note")
    assert "--cuda-graph-trace=node" in check.advice
    assert check.advice


@pytest.mark.parametrize(("nvtx", "lost"), [("0.2.12", True), ("0.2.11", False)])
def test_a_pair_of_nsys_and_nvtx_that_loses_ranges_is_a_finding(machine, nvtx, lost) -> None:
    found = findings(machine(nsys="NVIDIA Nsight Systems version 2023.4.4.54-1v0", nvtx=nvtx))
    assert len(found) == lost
    if lost:
        assert "no range of nvtx 0.2.12" in found[0][1]
        assert "2025.3" in found[0][2]


def test_an_nsys_that_does_not_say_its_version_is_a_finding(machine) -> None:
    ((_, says, _),) = findings(machine(nsys="error: no license"))
    assert "error: no license" in says


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        (None, "0", None),
        ("0", "0", None),
        ("1", "0", "note"),
        ("1", "80000", None),
        ("2", "0", "finding"),
        ("2", "80000", None),
        ("3", "0", "finding"),
        ("odd", "0", None),
    ],
)
def test_who_may_trace_whom(machine, scope, capabilities, state) -> None:
    told = [check for check in machine(scope=scope, capabilities=capabilities)
            if "ptrace_scope" in check.says]  # fmt: skip
    assert [check.state for check in told] == ([state] if state else [])
    assert all(check.advice for check in told)


def test_a_second_subscriber_is_a_finding(machine) -> None:
    ((_, says, advice),) = findings(machine(attached=["CUDA_INJECTION64_PATH"]))
    assert "CUDA_INJECTION64_PATH" in says
    assert "one subscriber" in advice


def test_a_missing_pyspy_is_a_note_that_names_the_extra(machine, monkeypatch) -> None:
    def missing():
        raise MissingExtraError("profile", "py-spy")

    monkeypatch.setattr(doctor_captures, "pyspy_program", missing)
    (check,) = [check for check in machine() if check.name == "capture: py-spy"]
    assert check.state == "note"
    assert "launchkit-triton[profile]" in check.advice
