"""``launchkit profile``: captures, and copies of them that can be shared. Puts its commands together."""

from __future__ import annotations

import typer

from launchkit.tools import profile_scrub, profile_slice

app = typer.Typer(help="Make captures smaller and fit to be shared.", no_args_is_help=True)
app.command("scrub")(profile_scrub.command)
app.command("slice")(profile_slice.command)
