"""What ``launchkit doctor`` finds out about captures: programs, rights, versions, and who is there first."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which

from launchkit import settings
from launchkit.errors import MissingExtraError
from launchkit.profiling import capturing
from launchkit.tools.doctor_check import FINDING, NOTE, OK, Check, guarded
from launchkit.tools.profile_runs import pyspy_program

# What a profiler sets for the processes that it starts.
_ATTACHED = (
    "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH",
    "NSYS_PROFILING_SESSION_ID",
)  # fmt: skip
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_STATUS = Path("/proc/self/status")
_SYS_PTRACE = 19
"""Number of the capability that lets a process trace others."""
_PROGRAM = ["PROGRAM"]


def checks() -> list[Check]:
    """Return what was found; nothing is captured."""
    return [
        *guarded("capture: nsys", _nsys),
        *guarded("capture: torch", _torch),
        *guarded("capture: py-spy", _pyspy),
        *guarded("capture", _attached),
    ]


def _nsys() -> Iterator[Check]:
    name = "capture: nsys"
    line = capturing.shell_text(capturing.nsys_command(_PROGRAM, capturing.NsysOptions("capture")))
    if which("nsys") is None:
        advice = (
            "Install Nsight Systems (it comes with the CUDA toolkit) to see CUDA calls and the "
            f"GPU, with {line}"
        )
        yield Check(name, NOTE, "nsys is not on the PATH.", advice)
        return
    found, told = _nsys_version()
    if found is None:
        yield Check(
            name, FINDING, f"nsys --version says {told!r}.", "Install Nsight Systems again."
        )
        return
    lost = capturing.ranges_lost(found, capturing.nvtx_release())
    if lost is not None:
        yield Check(name, FINDING, f"{lost}.", capturing.RANGES_LOST_ADVICE)
    export = capturing.shell_text(capturing.nsys_export("capture.nsys-rep", "capture.sqlite"))
    named = ".".join(map(str, found))
    yield Check(name, OK, f"Nsight Systems {named}: {line} && {export}")
    yield Check(
        name,
        NOTE,
        "by default a replay of a CUDA graph is one row, without its kernels.",
        "Keep --cuda-graph-trace=node where graphs are launched.",
    )


def _nsys_version() -> tuple[tuple[int, int, int] | None, str]:
    done = subprocess.run(
        ["nsys", "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    told = (done.stdout or done.stderr).strip()
    return capturing.nsys_version(told), told


def _torch() -> Iterator[Check]:
    try:
        found = version("torch")
    except PackageNotFoundError:
        return
    yield Check("capture: torch", OK, f"torch {found}: launchkit profile --torch -- PROGRAM")


def _pyspy() -> Iterator[Check]:
    name = "capture: py-spy"
    try:
        program = pyspy_program()
    except MissingExtraError as error:
        yield Check(name, NOTE, "launchkit profile --py-spy cannot sample here.", str(error))
        return
    line = capturing.shell_text(capturing.pyspy_command(_PROGRAM, "py-spy.json", pyspy=program))
    yield Check(name, OK, f"launchkit profile --py-spy -- PROGRAM, which runs {line}")
    yield from _rights(name)


def _rights(name: str) -> Iterator[Check]:
    """Say whom this process may trace: its children with scope 0 or 1, all it owns with 0."""
    scope, may_trace = _ptrace_scope(), _has_capability(_SYS_PTRACE)
    if scope is not None and scope >= 2 and not may_trace:
        yield Check(
            name,
            FINDING,
            f"the kernel lets only administrators trace processes (ptrace_scope {scope}).",
            "Run as root or with SYS_PTRACE (docker run --cap-add SYS_PTRACE), or "
            "sysctl kernel.yama.ptrace_scope=1.",
        )
    elif scope == 1 and not may_trace:
        yield Check(
            name,
            NOTE,
            "programs that launchkit profile starts can be sampled; others cannot (ptrace_scope 1).",
            "Start the program with launchkit profile.",
        )


def _ptrace_scope() -> int | None:
    try:
        return int(_SCOPE.read_text())
    except (OSError, ValueError):
        return None  # no such restriction in this kernel


def _has_capability(number: int) -> bool:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return False
    effective = [line.split()[1] for line in lines if line.startswith("CapEff:")]
    return bool(effective) and bool(int(effective[0], 16) >> number & 1)


def _attached() -> Iterator[Check]:
    found = settings.foreign_variables(_ATTACHED)
    if found:
        yield Check(
            "capture",
            FINDING,
            f"a profiler is attached to this process already ({', '.join(found)}).",
            "CUPTI has one subscriber: use one of nsys, torch.profiler and Proton at a time.",
        )
