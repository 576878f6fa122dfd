"""The commands that capture, word for word, and when Nsight Systems loses Python's ranges."""

from __future__ import annotations

import sys

import pytest

from launchkit.profiling import capturing
from launchkit.profiling.capturing import NsysOptions

PROGRAM = ["python", "train.py", "--steps", "3"]


def test_nsys_command_traces_nodes_and_children_and_samples_nothing() -> None:
    assert capturing.nsys_command(PROGRAM, NsysOptions("/tmp/out dir/capture")) == [
        "nsys", "profile", "--trace=cuda,nvtx", "--cuda-graph-trace=node",
        "--trace-fork-before-exec=true", "--sample=none", "--cpuctxsw=none",
        "--force-overwrite=false", "--output=/tmp/out dir/capture", *PROGRAM,
    ]  # fmt: skip


def test_nsys_command_for_a_range_lets_the_program_go_on_after_it() -> None:
    options = NsysOptions("c", capture_range="step 3", osrt=True, replace=True)
    command = capturing.nsys_command(PROGRAM, options, nsys="/opt/nsys")
    assert command[:3] == ["/opt/nsys", "profile", "--trace=cuda,nvtx,osrt"]
    assert "--force-overwrite=true" in command
    at = command.index("--capture-range=nvtx")
    assert command[at : at + 4] == [
        "--capture-range=nvtx", "--nvtx-capture=step 3@launchkit", "--capture-range-end=stop",
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
    ]  # fmt: skip
    assert command[at + 4 :] == PROGRAM


def test_export_is_what_the_report_reads() -> None:
    assert capturing.nsys_export("c.nsys-rep", "c.sqlite") == [
        "nsys", "export", "--type=sqlite", "--force-overwrite=true", "--output=c.sqlite",
        "c.nsys-rep",
    ]  # fmt: skip


def test_pyspy_does_not_stop_the_program_unless_it_has_to() -> None:
    usual = capturing.pyspy_command(PROGRAM, "o.json", rate_hz=250)
    assert usual == [
        "py-spy", "record", "--format=chrometrace", "--rate=250", "--subprocesses", "--idle",
        "--output=o.json", "--nonblocking", "--", *PROGRAM,
    ]  # fmt: skip
    assert "--nonblocking" not in capturing.pyspy_command(PROGRAM, "o", blocking=True)
    native = capturing.pyspy_command(PROGRAM, "o", native=True)
    assert "--native" in native
    assert "--nonblocking" not in native  # py-spy refuses the pair


def test_a_script_is_given_to_this_python_and_a_command_stays() -> None:
    assert capturing.program_of(["a/b.py", "-x"]) == [sys.executable, "a/b.py", "-x"]
    assert capturing.program_of(["torchrun", "b.py"]) == ["torchrun", "b.py"]
    assert capturing.shell_text(["a b", "c"]) == "'a b' c"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0", (2023, 4, 4)),
        ("NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0\n", (2025, 3, 2)),
        ("nothing", None),
        ("", None),
    ],
)
def test_version_of_nsys(text, version) -> None:
    assert capturing.nsys_version(text) == version


@pytest.mark.parametrize(
    ("nsys", "nvtx", "lost"),
    [
        ((2022, 4, 2), "0.2.13", True),
        ((2023, 4, 4), "0.2.12", True),
        ((2023, 4, 4), "0.2.17", True),
        ((2023, 4, 4), "0.2.11", False),
        ((2025, 3, 2), "0.2.17", False),
        ((2023, 4, 4), None, False),
        ((2023, 4, 4), "odd", False),
    ],
)
def test_which_pairs_lose_ranges(nsys, nvtx, lost) -> None:
    why = capturing.ranges_lost(nsys, nvtx)
    assert (why is not None) == lost
    if why:
        assert str(nvtx) in why
        assert ".".join(map(str, nsys)) in why
