"""The only reader and writer of JSON. A leaf; the one user of orjson and of the stdlib's json.

orjson alone accepts duplicate keys, turns NaN into null and an int above 64 bits into a float.
What passes here has none of these: bad input raises, it is never mended.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import NoReturn

import orjson

from launchkit.errors import BadDocumentError, UsageError

_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
_SPACE = re.compile(r"[ \t\n\r]*")


def dumps(obj: object) -> bytes:
    """Return ``obj`` as JSON for people and diffs: sorted keys, indented, newline at the end.

    Raises UsageError for what JSON cannot hold (NaN, an int above 64 bits, other types).
    """
    return _dump(obj, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def dumps_compact(obj: object) -> bytes:
    """Return the one canonical spelling of ``obj``: sorted keys, no white space; for digests.

    Raises UsageError as ``dumps`` does.
    """
    return _dump(obj, orjson.OPT_SORT_KEYS)


def digest(obj: object) -> str:
    """Return the sha256 of the canonical spelling of ``obj``, as 64 hex digits.

    Raises UsageError as ``dumps`` does.
    """
    return hashlib.sha256(dumps_compact(obj)).hexdigest()


def dumps_in_order(obj: object) -> bytes:
    """Return ``obj`` as JSON for people, with its keys as they stand: for readers that go by them.

    Raises UsageError as ``dumps`` does.
    """
    return _dump(obj, orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def dumps_exact(obj: object) -> bytes:
    """Return ``obj`` as JSON without white space, its keys as they stand, every Decimal exactly.

    For what ``tolerant_decoder`` read. Raises UsageError as ``dumps`` does.
    """
    try:
        return orjson.dumps(obj, default=_exact_number)
    except orjson.JSONEncodeError as error:
        raise UsageError(f"{error}. Leave it out, or give it as a string.") from None


def _exact_number(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    raise TypeError(type(value).__name__)


def dumps_python_compact(obj: object) -> bytes:
    """Return the spelling of Python's own json module: sorted keys, no white space, ASCII.

    For digests that other programs make with it; ints of any size and NaN are written as it
    writes them. Raises UsageError for what it cannot write.
    """
    try:
        return json.dumps(obj, separators=(",", ":"), sort_keys=True).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{error}. Convert it to numbers, strings, lists and dicts.") from None


def loads_python(data: bytes, *, source: str, limit_bytes: int, depth: int = 32) -> object:
    """Parse what Python's own json module writes: NaN and Infinity too, and ints of any size.

    For files of other programs. Raises BadDocumentError as ``loads`` does, and for nesting
    beyond ``depth`` levels.
    """
    _refuse_size(data, source, limit_bytes)
    try:
        parsed: object = json.loads(data.decode("utf-8"), object_pairs_hook=_pairs(source))
    except RecursionError:
        raise BadDocumentError(source, "it is nested too deeply") from None
    except ValueError as error:
        raise BadDocumentError(source, f"it is not valid JSON ({error})") from None
    refuse_depth(parsed, source=source, depth=depth)
    return parsed


def loads(data: bytes, *, source: str, limit_bytes: int) -> object:
    """Parse UTF-8 JSON; ``source`` names it in the error.

    Raises BadDocumentError for input above ``limit_bytes``, empty or invalid input, another
    encoding or a byte order mark, nesting beyond a thousand levels, a key that stands twice
    in one object, NaN and Infinity.
    """
    _refuse_size(data, source, limit_bytes)
    try:
        parsed: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadDocumentError(source, f"it is not valid JSON ({error})") from None
    _refuse_duplicate_keys(data, source)
    return parsed


def tolerant_decoder() -> Callable[[str, int], tuple[object, int]]:
    """Return (text, at) -> (value, end of its text), for a stream of other programs' JSON.

    Fractions become Decimal, exactly; NaN and Infinity None; control characters may stand in
    strings; of two equal keys the last one counts. It raises ``ValueError`` (with the attribute
    ``pos`` where it is known), ``ArithmeticError`` and ``RecursionError`` for what is no value.
    """
    return json.JSONDecoder(
        parse_float=Decimal, parse_constant=lambda _: None, strict=False
    ).raw_decode


def scan(
    data: bytes,
    *,
    source: str,
    limit_bytes: int,
    array: str,
    visit: Callable[[object, int, int], None],
) -> dict[str, object]:
    """Parse a UTF-8 JSON object but for its member ``array``, whose elements are only visited.

    ``visit(element, start, end)`` gets each element and its place in ``data``, in bytes. In what
    is returned the member is an empty tuple, or its value if that is no list. Raises
    BadDocumentError as ``loads`` does, and for what is not an object; an element that passes
    here may still be refused by ``loads``.
    """
    _refuse_size(data, source, limit_bytes)
    try:
        return _Scan(data.decode("utf-8"), source, array, visit).members()
    except RecursionError:
        raise BadDocumentError(source, "it is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, BadDocumentError):
            raise
        raise BadDocumentError(source, f"it is not valid JSON ({error})") from None


class _Scan:
    """One walk over the text of an object."""

    def __init__(
        self, text: str, source: str, array: str, visit: Callable[[object, int, int], None]
    ) -> None:
        self._text, self._array, self._visit = text, array, visit
        self._decode = json.JSONDecoder(
            object_pairs_hook=_pairs(source), parse_int=_int, parse_constant=_refuse_constant
        ).raw_decode
        self._source = source
        self._at = 0
        self._counted = (0, 0)  # characters of the text, and the bytes that they take

    def members(self) -> dict[str, object]:
        found: dict[str, object] = {}
        self._next("{")
        more = self._peek() != "}"
        while more:
            name = self._value() if self._peek() == '"' else None
            self._next(":")
            if not isinstance(name, str) or name in found:
                raise BadDocumentError(self._source, f"the key {name!r} stands twice, or is none")
            if name == self._array and self._peek() == "[":
                found[name] = ()
                self._elements()
            else:
                found[name] = self._value()
            more = self._next(",}") == ","
        if not found:
            self._next("}")
        if self._peek():
            raise ValueError("there is more after its end")
        return found

    def _elements(self) -> None:
        self._next("[")
        if self._peek() == "]":
            self._next("]")
            return
        more = True
        while more:
            self._peek()
            start = self._bytes()
            element = self._value()
            self._visit(element, start, self._bytes())
            more = self._next(",]") == ","

    def _value(self) -> object:
        self._peek()
        value, self._at = self._decode(self._text, self._at)
        return value

    def _peek(self) -> str:
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _next(self, wanted: str) -> str:
        found = self._peek()
        if not found or found not in wanted:
            raise ValueError(f"{wanted!r} expected at character {self._at}")
        self._at += 1
        return found

    def _bytes(self) -> int:
        characters, size = self._counted
        size += len(self._text[characters : self._at].encode())
        self._counted = (self._at, size)
        return size


def refuse_depth(parsed: object, *, source: str, depth: int) -> None:
    """Raise BadDocumentError for what is nested beyond ``depth`` levels."""
    level = [parsed]
    for _ in range(depth):
        level = [inner for item in level for inner in _inside(item)]
    if level:
        raise BadDocumentError(source, f"it is nested beyond {depth} levels")


def read_limited(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Return the content of a regular file of at most ``limit_bytes``.

    Size and kind are checked before a byte is read, so that a huge file, a FIFO or a device
    costs nothing. Raises BadDocumentError for those, OSError where the system refuses.
    """
    source = os.fspath(path)
    _check_readable(os.stat(path), source, limit_bytes)
    # The file may be another one by now: O_NONBLOCK keeps a FIFO from blocking the open.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _check_readable(status, source, limit_bytes)
        # Not up to the limit at once: Python reserves what it is asked to read.
        data = file.read(status.st_size + 1)
        if len(data) > status.st_size:
            data += file.read(limit_bytes + 1 - len(data))
    if len(data) > limit_bytes:
        raise BadDocumentError(source, f"it grew beyond {limit_bytes} bytes while it was read")
    return data


def _check_readable(status: os.stat_result, source: str, limit_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        advice = "Look at what it is: a regular file is needed there."
        raise BadDocumentError(source, "it is not a regular file", advice=advice)
    if status.st_size > limit_bytes:
        raise BadDocumentError(source, f"it has {status.st_size} bytes, more than {limit_bytes}")


def _dump(obj: object, option: int) -> bytes:
    _refuse_unholdable(obj)
    try:
        # A dataclass's fields were not looked at: orjson must not take it apart by itself.
        return orjson.dumps(obj, option=option | orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError as error:
        raise UsageError(
            f"{error}. Convert it to plain numbers, strings, lists and dicts."
        ) from None


def _refuse_unholdable(obj: object) -> None:
    pending = [obj]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise UsageError(f"JSON has no {item!r}. Leave the field out, or give it as None.")
        elif isinstance(item, int) and not _INT64_MIN <= item <= _UINT64_MAX:
            raise UsageError(f"{item:#x} does not fit in 64 bits. Give it as a string.")


def _refuse_size(data: bytes, source: str, limit_bytes: int) -> None:
    if len(data) > limit_bytes:
        raise BadDocumentError(source, f"it has {len(data)} bytes, more than {limit_bytes}")
    if not data.strip():
        raise BadDocumentError(source, "it is empty")


def _inside(item: object) -> Iterable[object]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def _int(text: str) -> int | float:
    """What orjson makes of it; and int() refuses very long ones."""
    return int(text) if len(text) <= 19 else float(text)


def _refuse_duplicate_keys(data: bytes, source: str) -> None:
    # len: the numbers themselves do not matter here, and int() refuses very long ones.
    try:
        json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_once(source),
            parse_int=len,
            parse_float=len,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise BadDocumentError(source, "it is nested too deeply") from None
    except ValueError as error:
        raise BadDocumentError(source, f"it is not valid JSON ({error})") from None


def _once(source: str) -> Callable[[list[tuple[str, object]]], None]:
    """Make what looks at an object's pairs and refuses a key that stands twice."""

    def check(pairs: list[tuple[str, object]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise BadDocumentError(source, f"the key {name!r} stands twice in one object")
            names.add(name)

    return check


def _pairs(source: str) -> Callable[[list[tuple[str, object]]], dict[str, object]]:
    """Make what builds an object of its pairs, each key once."""
    check = _once(source)

    def take(pairs: list[tuple[str, object]]) -> dict[str, object]:
        check(pairs)
        return dict(pairs)

    return take


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
