"""From typed values back to what JSON has, for the files of other programs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from launchkit import jsonio
from launchkit.errors import BadDocumentError
from launchkit.keys import KeyValue
from launchkit.store.foreign.base import LIMIT_BYTES, RefusedError

_JSON_INT_BITS = 63


def plain_value(value: KeyValue) -> object:
    """Return the int, float, bool, str, None or list (of a tuple) that a value stands for.

    Raises RefusedError for dtypes and enums, for what JSON has no number for, and for text that is
    not what its type prints.
    """
    return _plain(value.name, value.type, value.value)


def _plain(name: str, kind: str, text: object) -> object:
    if kind == "tuple":
        return [_plain(name, *_pair(name, item)) for item in _items(name, text)]
    if not isinstance(text, str):
        raise RefusedError(f"{name} is broken")
    if kind == "str":
        return text
    if kind == "none":
        return None
    if kind == "bool" and text in ("True", "False"):
        return text == "True"
    if kind in ("int", "float"):
        return _number(name, kind, text)
    raise RefusedError(f"{name} is a {kind}, which JSON does not have")


def _number(name: str, kind: str, text: str) -> int | float:
    try:
        number = int(text) if kind == "int" else float(text)
    except ValueError:
        raise RefusedError(f"{name} is {text!r}, which is no {kind}") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise RefusedError(f"{name} is {text}, which JSON does not have")
    if isinstance(number, int) and number.bit_length() > _JSON_INT_BITS:
        raise RefusedError(f"{name} is an int of more than {_JSON_INT_BITS} bits")
    return number


def _items(name: str, text: object) -> Sequence[object]:
    if isinstance(text, str):
        try:
            text = jsonio.loads(text.encode(), source=name, limit_bytes=LIMIT_BYTES)
        except (BadDocumentError, UnicodeEncodeError):
            raise RefusedError(f"{name} is no tuple") from None
    if not isinstance(text, list):
        raise RefusedError(f"{name} is no tuple")
    return text


def _pair(name: str, item: object) -> tuple[str, object]:
    if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
        raise RefusedError(f"{name} is no tuple")
    return item[0], item[1]
