"""What a worker process runs: lines of JSON come in, an answer goes out for each. Below workers.py.

Knows no torch; what is asked for may. When the parent dies its pipe closes, and so does the worker.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from launchkit import jsonio

LINE_LIMIT_BYTES = 2**20

Handler = Callable[["dict[str, Any]"], "dict[str, Any]"]
"""What a role makes of its options: takes a request, returns the answer."""


def main(answers_fd: int) -> None:
    """Set the process up as its first line says, then answer line by line."""
    requests = sys.stdin.buffer
    with os.fdopen(answers_fd, "wb") as answers:
        setup = _read(requests.readline())
        handle = _set_up(setup)
        _write(answers, {"ready": True})
        for line in requests:
            answer = handle(_read(line))
            _write(answers, answer)
            if answer.get("fatal"):
                return


def _set_up(setup: Mapping[str, Any]) -> Handler:
    for step in setup["prepare"]:
        imported(step["call"])(**step["options"])
    handler: Handler = imported(setup["role"])(setup["options"])
    return handler


def imported(name: str) -> Any:
    """Return what ``module:qualname`` names.

    Raises what importing it raises, AttributeError and ValueError.
    """
    module, _, qualname = name.partition(":")
    value: Any = importlib.import_module(module)
    for part in qualname.split("."):
        value = getattr(value, part)
    return value


def _read(line: bytes) -> dict[str, Any]:
    read = jsonio.loads(line, source="a request", limit_bytes=LINE_LIMIT_BYTES)
    assert isinstance(read, dict), "the parent writes objects"
    return read


def _write(answers: BinaryIO, answer: Mapping[str, Any]) -> None:
    answers.write(jsonio.dumps_compact(dict(answer)) + b"\n")
    answers.flush()
