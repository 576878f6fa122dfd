"""``launchkit``: puts the commands together. Each command's module is imported when it is used."""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler

import launchkit
from launchkit.errors import LaunchkitError
from launchkit.tools import bench, configs, run

app = typer.Typer(
    name="launchkit",
    help="Launch tuned Triton kernels at almost no host cost, and see where host time goes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench.app, name="bench")
app.add_typer(configs.app, name="configs")
# The first word that is no option ends ours: what follows is the program's.
app.command("run", context_settings={"allow_interspersed_args": False})(run.command)


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
    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])


def main() -> None:
    """Run the command line; an error of launchkit's own is a message and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Where there is no µ or ÷, a question mark is better than a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except LaunchkitError as error:
        Console(stderr=True).print(
            f"launchkit: {error}", style="red", markup=False, highlight=False
        )
        sys.exit(2)
    except SystemExit as done:
        if done.code:
            raise
    run.run_pending()
