"""``launchkit``: puts the commands together. Each command's module is imported when it is used."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from typing import Annotated, NoReturn, TextIO

import typer
from rich.console import Console

import launchkit
from launchkit.errors import LaunchkitError
from launchkit.printing import printable_lines
from launchkit.tools import afterwards, commands
from launchkit.tools.command_examples import epilog

app = typer.Typer(
    name="launchkit",
    help="Launch tuned Triton kernels at almost no host cost, and see where host time goes.",
    epilog=epilog(""),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
commands.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"launchkit {launchkit.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand == "run":
        return  # the program sets up its own logging
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False)
    handler.setFormatter(_Printable())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _Printable(logging.Formatter):
    """Messages quote what others wrote."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def main() -> None:
    """Run the command line; an error of launchkit's own, or of the system's, is exit code 2.

    A pipe that nobody reads any more ends it silently with exit code 1.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Where there is no µ or ÷, a question mark is better than a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except LaunchkitError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        from launchkit.tools import extras

        told = extras.missing(error)
        if told is None:
            raise
        _fail(str(told))
    except OSError as error:
        if error.errno is None:
            raise
        _fail(
            f"the system refused: {error}. See that the files and the output that it was given can "
            "be used and have room."
        )
    except SystemExit as done:
        if done.code:
            raise
    afterwards.do_what_is_left()


def _fail(message: str) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        _give_up_unwritable(stream)
    with contextlib.suppress(OSError):
        Console(stderr=True).print(
            f"launchkit: {printable_lines(message)}",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,  # a command in it stays one line, for the terminal to break
        )
    _give_up_unwritable(sys.stderr)
    sys.exit(2)


def _give_up_unwritable(stream: TextIO | None) -> None:
    """Let go of what a stream could not write: Python would try again at exit, and complain."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
