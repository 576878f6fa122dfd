"""``launchkit serve`` and the commands about its database, put together. Of the tools."""

from __future__ import annotations

from launchkit.tools import serve_admin
from launchkit.tools.serve import app

app.add_typer(serve_admin.tokens, name="token")
app.add_typer(serve_admin.namespaces, name="namespace")
app.command("migrate")(serve_admin.migrate)
app.command("prune")(serve_admin.prune)

__all__ = ["app"]
