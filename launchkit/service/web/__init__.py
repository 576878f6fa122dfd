"""The web page of the config service. Of its server; templates and static files lie beside it."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

from launchkit.service import answers
from launchkit.service.web import activity, diffs, login, views

__all__ = ["install"]


def install(app: FastAPI, threads: int) -> None:
    """Serve the pages too; of so many threads a quarter at most works for them."""
    app.state.pages_at_once = asyncio.Semaphore(max(1, threads // 4))
    # The last one answers whatever the others do not know.
    for part in (views, activity, diffs, login):
        answers.serve(app, part.router)
