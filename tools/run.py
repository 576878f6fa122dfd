"""``launchkit run``: a Python program whose Triton kernels launch through launchkit. A command.

Exit codes: the program's own; 2 bad use.
"""

from __future__ import annotations

import atexit
import runpy
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from launchkit import jsonio, settings
from launchkit.errors import UsageError
from launchkit.tools import afterwards
from launchkit.tools.output_files import check_output

Program = Annotated[
    list[str],
    typer.Argument(metavar="SCRIPT", help="The program, and behind it its arguments."),
]
AsModule = Annotated[
    bool, typer.Option("-m", help="SCRIPT is the name of a module, as for python -m.")
]
Include = Annotated[
    list[str] | None,
    typer.Option(help="Pattern over module.qualname of the kernels; may be repeated. Default: *."),
]
Exclude = Annotated[
    list[str] | None, typer.Option(help="Kernels to leave to Triton; may be repeated.")
]
Stats = Annotated[bool, typer.Option("--stats", help="Print a table of launches at exit.")]
AsJson = Annotated[
    Path | None, typer.Option("--json", help="Write the launches to this file as JSON at exit.")
]


def command(
    program: Program,
    as_module: AsModule = False,
    include: Include = None,
    exclude: Exclude = None,
    stats: Stats = False,
    output: AsJson = None,
) -> None:
    """Run a Python program, unedited, with every Triton kernel launched through launchkit.

    Options for launchkit come before the program. Python processes that it starts install too,
    where they import launchkit; vLLM's workers do by themselves.
    """
    name, *arguments = program
    if not as_module and not Path(name).exists():
        raise UsageError(f"there is no {name}. Give a script, or -m and a module.", script=name)
    check_output(output)
    _install(include or ["*"], exclude or [])
    if stats or output is not None:
        _report_at_exit(stats, output)
    afterwards.leave(lambda: _run(name, as_module, arguments))


def _install(include: list[str], exclude: list[str]) -> None:
    try:
        from launchkit.dispatch import install
    except ModuleNotFoundError as error:
        raise UsageError(
            f"launching needs torch and Triton: {error}. Install launchkit-triton[torch]."
        ) from error
    settings.install_in_children(include, exclude)
    install.install_as_set()


def _run(name: str, as_module: bool, arguments: list[str]) -> None:
    sys.argv = [name, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        # What Python puts there for the command itself.
        sys.path[0] = "" if as_module else str(Path(name).resolve().parent)
    try:
        if as_module:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
    except ImportError as error:
        if not _found_nothing(error):
            raise
        print(
            f"launchkit: {error}. Give a script, or -m and a module that can be run.",
            file=sys.stderr,
        )
        sys.exit(2)


def _found_nothing(error: ImportError) -> bool:
    """Tell whether runpy raised this itself, before it ran or imported anything."""
    assert error.__traceback__ is not None
    raised_in = error.__traceback__.tb_next
    while raised_in is not None:
        if raised_in.tb_frame.f_globals.get("__name__") != "runpy":
            return False
        raised_in = raised_in.tb_next
    return True


def _report_at_exit(table: bool, output: Path | None) -> None:
    import launchkit

    launchkit.count_launches()

    def report() -> None:
        found = launchkit.stats()
        if table:
            print(found, file=sys.stderr)
        if output is not None:
            _write(output, jsonio.dumps(found.as_dict()))

    atexit.register(report)


def _write(output: Path, data: Any) -> None:
    try:
        output.write_bytes(data)
    except OSError as error:
        print(f"launchkit: the launches were not written: {error}", file=sys.stderr)
