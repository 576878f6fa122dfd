"""The OpenAPI document: what FastAPI knows, and the schema of config documents. Of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from launchkit.store import document

_PREFIX = "ConfigDocument"


def publisher(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Return what makes the OpenAPI document, once; to be set as ``app.openapi``."""
    plain = app.openapi
    made: dict[str, Any] = {}

    def publish() -> dict[str, Any]:
        if not made:
            schema = plain()
            schema["components"]["schemas"].update(_schemas())
            made.update(schema)
        return made

    return publish


def _schemas() -> dict[str, Any]:
    found = document.json_schema(f"#/components/schemas/{_PREFIX}{{model}}")
    parts = found.pop("$defs", {})
    return {_PREFIX: found} | {f"{_PREFIX}{name}": part for name, part in parts.items()}
