"""``launchkit profile``: captures of a program, and copies that can be shared. Puts commands together."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from launchkit.tools import profile_capture, profile_scrub, profile_slice

_CAPTURE = "capture"


class _CaptureByDefault(TyperGroup):
    """A group in which what names no command is a program to capture."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = [_CAPTURE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_CaptureByDefault,
    help="Capture a program: launchkit profile [--nsys|--torch|--py-spy] -- PROGRAM. Or make captures "
    "smaller and fit to be shared.",
    no_args_is_help=True,
)
app.command(_CAPTURE, context_settings={"allow_interspersed_args": False})(profile_capture.command)
app.command("scrub")(profile_scrub.command)
app.command("slice")(profile_slice.command)
