"""How ``launchkit profile`` runs a program under each profiler, and what comes of it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

from launchkit import LaunchProfile, settings
from launchkit.errors import LaunchkitError, MissingExtraError, UsageError
from launchkit.profiling import capturing
from launchkit.settings import ProfileRequest

_SHELL_FDS = 10
"""A POSIX shell knows file descriptors of one digit."""
_DONE = re.compile(rb"Samples: (\d+) Errors: (\d+)")


@dataclass(frozen=True)
class Plan:
    """What is to be captured, and how."""

    program: list[str]
    directory: Path
    changes: dict[str, str]
    """Environment variables to set."""
    rate: int = capturing.USUAL_RATE_HZ
    native: bool = False
    blocking: bool = False
    of_range: str | None = None
    osrt: bool = False
    dry_run: bool = False


@dataclass
class Result:
    """What was run, and what came of it; ``files`` are those to report."""

    mode: str
    commands: list[list[str]]
    exit_code: int = 0
    files: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dry_run: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "schema": 1,
            "mode": self.mode,
            "commands": self.commands,
            "exit_code": self.exit_code,
            "files": [str(path) for path in self.files],
            "warnings": self.warnings,
        }

    def lines(self) -> list[str]:
        """Return what people read of it."""
        if self.dry_run:
            return [capturing.shell_text(command) for command in self.commands]
        told = [f"warning: {warning}" for warning in self.warnings]
        if self.exit_code:
            told.insert(0, f"the program ended with exit code {self.exit_code}")
        if not self.files:
            return [*told, "nothing was captured."]
        shown = capturing.shell_text(["launchkit", "report", *map(str, self.files)])
        return [*told, f"Captured. To read it: {shown}"]


_NO_LAUNCH = {
    False: "no launch went through launchkit. Give --install, and all Triton kernels do; or capture "
    "what Triton itself launches with --nsys or --torch",
    True: "no Triton kernel was launched: see that the program gets as far as that, or capture "
    "what it does instead with --nsys or --torch",
}
"""What is said of a profile without launches, by whether all Triton kernels were let through."""


def launches(plan: Plan) -> Result:
    """Record each launch through launchkit, in every Python process of the program."""
    result = _hooked(plan, "launches")
    if plan.dry_run:
        return result
    if result.files and not any(_launched(path) for path in result.files):
        result.warnings.append(_NO_LAUNCH[bool(plan.changes)])
    if not result.files:
        result.warnings.append(
            "no process imported Triton and ended well: killed ones leave nothing, and Python with "
            "-I or -E does not see the hook"
        )
    return result


def _launched(path: Path) -> bool:
    try:
        return LaunchProfile.load(path).seen > 0
    except LaunchkitError:
        return True  # the report says what is wrong with it


def torch(plan: Plan) -> Result:
    """Trace every Python process of the program that imports torch."""
    result = _hooked(plan, "torch")
    if not plan.dry_run and not result.files:
        result.warnings.append("no process imported torch and ended well")
    return result


def _hooked(plan: Plan, how: Any) -> Result:
    result = Result(how, [plan.program], dry_run=plan.dry_run)
    if not plan.dry_run:
        request = ProfileRequest(how, str(plan.directory))
        result.exit_code = _run(plan.program, plan, request)
        result.files = sorted(plan.directory.glob(capturing.CAPTURED[how]))
    return result


def nsys(plan: Plan) -> Result:
    """Capture with Nsight Systems, and export what it captured."""
    export = plan.directory / capturing.CAPTURED["nsys"]
    report = export.with_suffix(".nsys-rep")
    options = capturing.NsysOptions(
        str(report.with_suffix("")), capture_range=plan.of_range, osrt=plan.osrt
    )
    result = Result(
        "nsys",
        [
            capturing.nsys_command(plan.program, options),
            capturing.nsys_export(str(report), str(export)),
        ],
        dry_run=plan.dry_run,
    )
    if plan.dry_run:
        return result
    if which("nsys") is None:
        raise UsageError(
            "nsys is not on the PATH. Install Nsight Systems (it comes with the CUDA toolkit), or "
            "capture with --torch, which needs nothing more; --dry-run shows what would be run."
        )
    result.warnings += nsys_warnings()
    result.exit_code = _run(result.commands[0], plan, None)
    if not report.exists():
        result.warnings.append(f"nsys left no report ({report})")
        return result
    exported = subprocess.run(result.commands[1], capture_output=True, text=True, check=False)
    if exported.returncode or not export.exists():
        told = (exported.stderr or exported.stdout).strip()[-500:]
        result.warnings.append(f"nsys could not export {report}: {told}")
    else:
        result.files = [export]
    return result


def nsys_warnings() -> list[str]:
    """Return what is known to go wrong with the nsys that is on the PATH."""
    done = subprocess.run(["nsys", "--version"], capture_output=True, text=True, check=False)
    found = capturing.nsys_version(done.stdout)
    lost = capturing.ranges_lost(found, capturing.nvtx_release()) if found else None
    return [f"{lost}. {capturing.RANGES_LOST_ADVICE}"] if lost else []


def pyspy_program() -> str:
    """Return where py-spy is: on the PATH, or beside this Python. Raises MissingExtraError."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else which("py-spy")
    if found is None:
        raise MissingExtraError("profile", "py-spy")
    return found


def pyspy(plan: Plan) -> Result:
    """Sample the program, and join what was seen with the ranges that its processes noted."""
    trace, output = plan.directory / "py-spy.json", plan.directory / capturing.CAPTURED["py-spy"]
    program = pyspy_program()
    line = capturing.pyspy_command(
        plan.program, str(trace), rate_hz=plan.rate, native=plan.native, blocking=plan.blocking,
        pyspy=program,
    )  # fmt: skip
    result = Result("py-spy", [line], dry_run=plan.dry_run)
    if plan.dry_run:
        return result
    printed = plan.directory / "py-spy.log"
    request = ProfileRequest("samples", str(plan.directory), plan.rate)
    result.exit_code = _run(line, plan, request, printed)
    if not trace.exists():
        result.warnings.append(f"py-spy wrote nothing: {_tail(printed)}")
        return result
    try:
        _join(plan, program, trace, printed.read_bytes(), output)
    except LaunchkitError as error:
        result.warnings.append(str(error))
    else:
        result.files = [output]
    return result


def _join(plan: Plan, program: str, trace: Path, printed: bytes, output: Path) -> None:
    from launchkit.profiling.sampling import pyspy as format_of_pyspy
    from launchkit.profiling.sampling import samples_file
    from launchkit.profiling.sampling.combining import Sampler, combined, read_session

    sessions = [read_session(path) for path in sorted(plan.directory.glob("session-*.json"))]
    done = _DONE.search(printed)
    named = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = named.stdout.strip().removeprefix("py-spy ")
    counts = (int(done[1]), int(done[2])) if done else (None, None)
    blocking = plan.blocking or plan.native
    sampler = Sampler(version, plan.rate, plan.native, blocking, *counts)
    members = combined(format_of_pyspy.read(trace), sessions, sampler)
    samples_file.write(output, members)


def _tail(printed: Path) -> str:
    return printed.read_text("utf-8", "replace").strip()[-500:] or "it printed nothing"


def _run(
    command: Sequence[str], plan: Plan, request: ProfileRequest | None, printed: Path | None = None
) -> int:
    """Run a command, and return its exit code. An interrupt is the program's to obey."""
    plan.directory.mkdir(parents=True, exist_ok=True)
    env = settings.profiled_environment(request, capturing.HOOK, plan.changes)
    # A handler, not SIG_IGN: the program would inherit that.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return _exit_code(command, env, printed)
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be run: {error.strerror}. Give a command or a Python script."
        ) from error
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_code(command: Sequence[str], env: dict[str, str], printed: Path | None) -> int:
    if printed is None:
        code = subprocess.run(command, env=env, check=False).returncode
    else:
        code = _with_log(command, env, printed)
    return code if code >= 0 else 128 - code


def _with_log(command: Sequence[str], env: dict[str, str], printed: Path) -> int:
    """Run py-spy, and keep what it prints: its counts stand there. The program's output goes past it."""
    own, program = command[: command.index("--") + 1], command[command.index("--") + 1 :]
    outside = fcntl.fcntl(1, fcntl.F_DUPFD, 3)
    try:
        if outside < _SHELL_FDS:
            program = ["/bin/sh", "-c", f'exec "$@" >&{outside} {outside}>&-', "sh", *program]
        with subprocess.Popen(
            [*own, *program], env=env, stdout=subprocess.PIPE, pass_fds=(outside,)
        ) as process, printed.open("wb") as log:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                sys.stderr.buffer.write(line)
                sys.stderr.flush()
                log.write(line)
        return process.returncode
    finally:
        os.close(outside)
