"""The command lines that capture a program, and what tells whether they can work here. A leaf."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which

from launchkit import clock
from launchkit.profiling.names import DOMAIN

HOOK = str(Path(__file__).with_name("hook"))
"""The folder that goes first into PYTHONPATH: its sitecustomize begins a capture."""

CAPTURED = {
    "launches": "launches-*.json.gz",
    "nsys": "capture.sqlite",
    "torch": "trace-*.json.gz",
    "py-spy": "samples.json.gz",
}
"""What ``launchkit profile`` leaves in its directory to be reported, by mode."""

USUAL_RATE_HZ = 500

_NSYS_VERSION = re.compile(r"(?:version\s+)?(\d{4})\.(\d+)\.(\d+)")
_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Found by trying: no range of nvtx 0.2.12 and later reached these; 2025.3 has them.
_DROPPING_NSYS = ((2022, 0), (2023, 9))
_PROVEN_NSYS = (2025, 3)
_DROPPED_NVTX = (0, 2, 12)


@dataclass(frozen=True)
class NsysOptions:
    """What ``nsys_command`` puts into the command: see its docstring."""

    output: str
    capture_range: str | None = None
    osrt: bool = False
    replace: bool = False


def nsys_command(program: Sequence[str], options: NsysOptions, nsys: str = "nsys") -> list[str]:
    """Return the command that captures ``program`` with Nsight Systems.

    NVTX and CUDA are traced, the nodes of CUDA graphs one by one, child processes too; CPU sampling
    is off, since it slows launches. ``capture_range``: only while this range of launchkit's domain
    is open, the first time. ``osrt``: system calls as well. ``replace``: an existing report is
    replaced.
    """
    traces = "cuda,nvtx,osrt" if options.osrt else "cuda,nvtx"
    command = [
        nsys, "profile", f"--trace={traces}", "--cuda-graph-trace=node",
        "--trace-fork-before-exec=true", "--sample=none", "--cpuctxsw=none",
        f"--force-overwrite={'true' if options.replace else 'false'}",
        f"--output={options.output}",
    ]  # fmt: skip
    if options.capture_range is not None:
        command += [
            "--capture-range=nvtx", f"--nvtx-capture={options.capture_range}@{DOMAIN}",
            "--capture-range-end=stop", "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
        ]  # fmt: skip
    return [*command, *program]


def nsys_export(report: str, output: str, nsys: str = "nsys") -> list[str]:
    """Return the command that makes ``launchkit report`` able to read a report of Nsight Systems."""
    return [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={output}", report]


def pyspy_command(
    program: Sequence[str], output: str, *, rate_hz: int = USUAL_RATE_HZ, native: bool = False,
    blocking: bool = False, pyspy: str = "py-spy",
) -> list[str]:  # fmt: skip
    """Return the command that samples ``program`` and its Python children.

    Idle threads are sampled too: py-spy writes changes only, and would count their idle time as
    that of the last stack seen. ``blocking``: the program is stopped for each sample, which is
    exact, and may stop a process of hundreds of threads for good. ``native`` implies it.
    """
    command = [pyspy, "record", "--format=chrometrace", f"--rate={rate_hz}", "--subprocesses",
               "--idle", f"--output={output}"]  # fmt: skip
    if native:
        command.append("--native")
    elif not blocking:
        command.append("--nonblocking")
    return [*command, "--", *program]


def program_of(words: Sequence[str]) -> list[str]:
    """Return the program to start: a Python script is given to this Python."""
    first, *arguments = words
    if first.endswith(".py") and not (which(first) and "/" not in first):
        return [sys.executable, first, *arguments]
    return [first, *arguments]


def shell_text(command: Sequence[str]) -> str:
    """Return a command as one types it."""
    return shlex.join(command)


def stamp() -> str:
    """Return the time for a directory's name: ``20260131-235959``."""
    return f"{clock.utc_now():%Y%m%d-%H%M%S}"


def nsys_version(text: str) -> tuple[int, int, int] | None:
    """Return the version that ``nsys --version`` printed: year, release, patch."""
    found = _NSYS_VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def nvtx_release() -> str | None:
    """Return the version of the Python package nvtx that is installed."""
    try:
        return version("nvtx")
    except PackageNotFoundError:
        return None


def ranges_lost(nsys: tuple[int, int, int], nvtx: str | None) -> str | None:
    """Return why Nsight Systems of this version gets no range of this nvtx, or None if it does.

    A version between those that were tried gets the benefit of the doubt.
    """
    found = _RELEASE.match(nvtx or "")
    release = (int(found[1]), int(found[2]), int(found[3])) if found else None
    if release is None or release < _DROPPED_NVTX:
        return None
    least, most = _DROPPING_NSYS
    if not least <= nsys[:2] <= most:
        return None
    named = ".".join(map(str, nsys))
    return f"Nsight Systems {named} records no range of nvtx {nvtx}"


RANGES_LOST_ADVICE = f"Use Nsight Systems {_PROVEN_NSYS[0]}.{_PROVEN_NSYS[1]} or later, or pip install 'nvtx==0.2.11'."
