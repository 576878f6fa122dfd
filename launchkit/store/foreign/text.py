"""Values that a file keeps as text: read by a type that somebody gave, never by their looks. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launchkit.store.foreign.base import RefusedError

TYPES = ("int", "float", "bool", "str", "none")
"""What text can be read as. ``A|B`` takes the one of both that fits, where just one does."""

_LITERAL = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
_TUPLE = re.compile(rf"\(\)|\((?:{_LITERAL}),\)|\((?:{_LITERAL})(?:, (?:{_LITERAL}))+\)")
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_NAME = re.compile(r"[A-Za-z_]\w*")


def typed(name: str, kind: str, text: str) -> object:
    """Return the value that Python prints as ``text``, of the type ``kind``.

    Raises RefusedError unless printing the value gives ``text`` again.
    """
    kinds = kind.split("|")
    if not set(kinds) <= set(TYPES):
        raise RefusedError(f"{kind!r} is no type of {name}: use {', '.join(TYPES)}, or A|B")
    values = [value for each in kinds for value in _fitting(each, text)]
    if len(values) != 1:
        raise RefusedError(f"{name} is {text!r}, which is no {' or '.join(kinds)} alone")
    return values[0]


def strings_of(text: str) -> tuple[str, ...]:
    """Return the tuple of strings that Python prints as ``text``; nothing is evaluated.

    Raises RefusedError for anything else, and where printing it does not give ``text`` again.
    """
    if not _TUPLE.fullmatch(text):
        raise RefusedError(f"{text!r} is no tuple of strings")
    found = tuple(_unescape(each[1:-1]) for each in re.findall(_LITERAL, text))
    if repr(found) != text:
        raise RefusedError(f"{text!r} is not how a tuple of strings is printed")
    return found


def printed_values(text: str) -> Mapping[str, str]:
    """Return the values, as text, of what Triton prints for a config: ``A: 1, num_warps: 4``.

    A value that holds ``", "`` cannot be told from two: the name that it then seems to hold is
    unknown, or stands twice, and either is refused.
    """
    values: dict[str, str] = {}
    for part in text.split(", "):
        name, colon, value = part.partition(": ")
        if not colon or not _NAME.fullmatch(name):
            raise RefusedError(f"{part!r} is no name and value of a config")
        if name in values:
            raise RefusedError(f"{name} stands twice in a config")
        values[name] = value
    return values


def _fitting(kind: str, text: str) -> list[object]:
    if kind == "str":
        return [text]
    if kind == "none":
        return [None] if text == "None" else []
    if kind == "bool":
        return [text == "True"] if text in ("True", "False") else []
    try:
        value = int(text) if kind == "int" else float(text)
    except ValueError:
        return []
    return [value] if repr(value) == text else []


def _unescape(inner: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            point = int(code[1:], 16)
            return chr(point) if point <= 0x10FFFF else "\0"
        return _PLAIN_ESCAPES.get(code, "\0")

    return _ESCAPE.sub(one, inner)
