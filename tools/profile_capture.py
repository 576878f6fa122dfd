"""``launchkit profile -- PROGRAM``: captures a program. A command.

Exit codes: the program's own; 1 it succeeded and nothing was captured; 2 bad use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launchkit import jsonio
from launchkit.errors import UsageError
from launchkit.profiling import capturing
from launchkit.tools.output_files import check_output, write
from launchkit.tools.profile_runs import Plan, Result, launches, nsys, pyspy, torch

Program = Annotated[
    list[str],
    typer.Argument(
        metavar="PROGRAM", help="The command to run, or a Python script, and its arguments."
    ),
]
Nsys = Annotated[bool, typer.Option("--nsys", help="Capture with Nsight Systems.")]
Torch = Annotated[bool, typer.Option("--torch", help="Trace with torch.profiler.")]
PySpy = Annotated[
    bool, typer.Option("--py-spy", help="Sample Python frames: shares by range, no times.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="New or empty directory for the files. Default: named by the time."
    ),
]
Install = Annotated[
    bool, typer.Option("--install", help="Let all Triton kernels launch through launchkit.")
]
Rate = Annotated[int, typer.Option(help="Samples a second of --py-spy.")]
Native = Annotated[bool, typer.Option("--native", help="With --py-spy: frames of C code, too.")]
Blocking = Annotated[
    bool, typer.Option("--blocking", help="With --py-spy: stop the program for each sample.")
]
OfRange = Annotated[
    str | None, typer.Option("--range", help="With --nsys: capture only while this range is open.")
]
Osrt = Annotated[bool, typer.Option("--osrt", help="With --nsys: system calls, too.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the command, and run nothing.")]
AsJson = Annotated[
    Path | None, typer.Option("--json", help="Write what was done to this file as JSON.")
]


def command(
    program: Program,
    with_nsys: Nsys = False,
    with_torch: Torch = False,
    with_pyspy: PySpy = False,
    output: Output = None,
    install: Install = False,
    rate: Rate = capturing.USUAL_RATE_HZ,
    native: Native = False,
    blocking: Blocking = False,
    of_range: OfRange = None,
    osrt: Osrt = False,
    dry_run: DryRun = False,
    json_output: AsJson = None,
) -> None:
    """Run a program and capture where its host time goes.

    Without an option each launch through launchkit is recorded, by range. Options for launchkit come
    before the program; -- may stand between them.
    """
    chosen = [(with_nsys, nsys), (with_torch, torch), (with_pyspy, pyspy)]
    wanted = [run for given, run in chosen if given]
    if len(wanted) > 1:
        raise UsageError(
            "a program has one profiler at a time: they are in each other's way. Give one of --nsys, "
            "--torch and --py-spy, and run it again with the next."
        )
    check_output(json_output)
    _check_options(with_nsys, with_pyspy, rate, native or blocking, of_range is not None or osrt)
    changes = {"LAUNCHKIT_INSTALL": "1"} if install else {}
    plan = Plan(
        capturing.program_of(program), _directory(output), changes, rate, native, blocking,
        of_range, osrt, dry_run,
    )  # fmt: skip
    result = (wanted[0] if wanted else launches)(plan)
    _show(result)
    if json_output is not None:
        write(json_output, jsonio.dumps(result.as_dict()))
    if result.exit_code or dry_run:
        raise typer.Exit(result.exit_code)
    raise typer.Exit(0 if result.files else 1)


def _check_options(
    with_nsys: bool, with_pyspy: bool, rate: int, of_pyspy: bool, of_nsys: bool
) -> None:
    if not 1 <= rate <= 10_000:
        raise UsageError(f"--rate {rate} is not from 1 to 10000 samples a second. Give 500.")
    if of_pyspy and not with_pyspy:
        raise UsageError("--native and --blocking belong to --py-spy. Give it, too.")
    if of_nsys and not with_nsys:
        raise UsageError("--range and --osrt belong to --nsys. Give it, too.")


def _directory(output: Path | None) -> Path:
    found = output or Path(f"launchkit-profile-{capturing.stamp()}")
    if found.exists() and (not found.is_dir() or any(found.iterdir())):
        raise UsageError(
            f"{found} exists and is not empty. Give another directory with --output.",
            output=str(found),
        )
    return found.absolute()


def _show(result: Result) -> None:
    console = Console(stderr=not result.dry_run, highlight=False)
    for line in result.lines():
        console.print(line, markup=False, soft_wrap=True)
