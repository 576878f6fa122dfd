"""Inputs for ``launchkit bench fuzz``: valid JSON changed in its structure, or in its bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from launchkit import jsonio
from launchkit.errors import UsageError

_TEXTS = (
    "", "0", "1", "1024", "-1", "0.5", "1e3", "on", "None", "True", "nan", "NaN", "Infinity", "λ",
    "torch.float16", "int", "str", "a, b", "x: y", "back\\slash", "'", '"', "\n", "\x00", "\ud800",
    "../../outside", "/outside", "~", "a/b", "imported:vllm", "eager", "x" * 5000, "__import__('os')",
)  # fmt: skip
_NUMBERS = (
    0, 1, -1, 2, 4096, 2**31, 2**63, 2**64, 2**70, 10**400, 0.5, -0.0, 1e-320, 1e308, 1e16,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
_TOKENS = (
    b"Infinity", b"-Infinity", b"NaN", b"1e999", b"null", b"true", b"[[[[[[[[", b"]]", b"{}", b"{",
    b'"\\ud800"', b'"\\u0000"', b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"0" * 5000, b"-", b",", b":",
    b"\x1f\x8b\x08\x00", b"\n", b"\r\n", b'"', b"\\", b"// x", b"1.", b"01", b"{}{}",
)  # fmt: skip
_NAMED = re.compile(rb'"(?:[^"\\]|\\.)*":')
_LIMIT_BYTES = 2**20


def mutated(rng: Random, content: object) -> Any:
    """Return a copy of JSON values with one to four changes of their structure."""
    root = [copied(content)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change(rng, root)
    return root[0]


def copied(value: Any) -> Any:
    """Return a copy of JSON values, in which no list or object is that of ``value``."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def damaged(rng: Random, data: bytes) -> bytes:
    """Return bytes with one to three changes, at most a mebibyte of them."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(_DAMAGES)(rng, data)
    return data[:_LIMIT_BYTES]


def noise(rng: Random) -> bytes:
    """Return random bytes, or random JSON tokens in a row."""
    if rng.random() < 0.5:
        return rng.randbytes(rng.choice((0, 1, 7, 64, 512)))
    return b"".join(rng.choice(_TOKENS) for _ in range(rng.randrange(12)))


def spelled(rng: Random, content: object) -> bytes:
    """Return JSON values as a file; now and then damaged besides."""
    try:
        data = jsonio.dumps_python_compact(content)
    except UsageError:
        return noise(rng)
    return damaged(rng, data) if rng.random() < 0.25 else data


def some_json(rng: Random, content: object) -> bytes:
    """Return a file of this content: mostly changed in structure, else in bytes, or mere noise."""
    kind = rng.random()
    if kind < 0.02:
        return noise(rng)
    if kind < 0.22:
        return damaged(rng, jsonio.dumps_python_compact(content))
    return spelled(rng, mutated(rng, content))


def a_value(rng: Random) -> Any:
    """Return a value that a reader may not expect."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(_TEXTS)
    if kind < 6:
        return rng.choice(_NUMBERS)
    return rng.choice((None, True, False, [], {}, [1, [2, [3]]], {"a": 1}, _nested(rng)))


def _nested(rng: Random) -> Any:
    value: Any = rng.choice(_NUMBERS)
    for _ in range(rng.choice((5, 33, 200))):
        value = [value] if rng.random() < 0.7 else {"a": value}
    return value


def _change(rng: Random, root: list[Any]) -> None:
    parent, key = _somewhere(rng, root)
    choice = rng.randrange(7)
    if choice == 0 and parent is not root:
        del parent[key]
    elif choice == 1 and isinstance(parent, dict):
        parent[rng.choice((*_TEXTS, *parent))] = parent.pop(key)
    elif choice == 2 and isinstance(parent, list) and parent is not root:
        parent.insert(rng.randrange(len(parent) + 1), copied(parent[key]))
    elif choice == 3:
        other, place = _somewhere(rng, root)
        parent[key] = copied(other[place])
    elif choice == 4 and isinstance(parent[key], str):
        parent[key] = _edited(rng, parent[key])
    elif choice == 5 and type(parent[key]) in (int, float):
        parent[key] *= rng.choice((2, -1, 3, 10**6))
    else:
        parent[key] = a_value(rng)


def _somewhere(rng: Random, root: list[Any]) -> tuple[Any, Any]:
    """Return a container and a key in it: any of all, or by levels, so that few are not missed."""
    if rng.random() < 0.7:
        return rng.choice(list(everywhere(root)))
    parent: Any = root
    key: Any = 0
    while True:
        inner = parent[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.15:
            return parent, key
        parent = inner
        key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))


def everywhere(root: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the container and the key of every value below ``root``."""
    pending: list[Any] = [root]
    while pending:
        parent = pending.pop()
        for key in list(parent) if isinstance(parent, dict) else range(len(parent)):
            yield parent, key
            if isinstance(parent[key], dict | list):
                pending.append(parent[key])


def _edited(rng: Random, text: str) -> str:
    if not text or rng.random() < 0.2:
        return text + rng.choice(_TEXTS)
    at = rng.randrange(len(text))
    return text[:at] + rng.choice((*_TEXTS[:20], text[at:][:3])) + text[at + rng.randrange(2) :]


def _flip(rng: Random, data: bytes) -> bytes:
    return _splice(rng, data, bytes([rng.randrange(256)]), 1)


def _token(rng: Random, data: bytes) -> bytes:
    return _splice(rng, data, rng.choice(_TOKENS), rng.choice((0, 0, 1, 4)))


def _cut(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _drop(rng: Random, data: bytes) -> bytes:
    return _splice(rng, data, b"", rng.randrange(64))


def _repeat(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.randrange(1, 64)]
    return data[:at] + piece * rng.choice((2, 3, 100, 3000)) + data[at:]


def _twice(rng: Random, data: bytes) -> bytes:
    """Let a key stand twice in its object."""
    start = rng.randrange(len(data) + 1)
    named = _NAMED.search(data, start, start + 4096) or _NAMED.search(data, 0, 4096)
    if named is None:
        return data
    return data[: named.start()] + named[0] + b"0," + data[named.start() :]


def _deep(rng: Random, data: bytes) -> bytes:
    deep = rng.choice((b"[", b'{"a":')) * rng.choice((50, 1200, 100_000))
    return _splice(rng, data, deep, 0)


def _recoded(rng: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-32-le", "latin-1", "utf-8-sig")), "replace")


def _splice(rng: Random, data: bytes, piece: bytes, replaced: int) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + piece + data[at + replaced :]


_DAMAGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    _flip, _flip, _token, _token, _cut, _drop, _repeat, _twice, _deep, _recoded,
)  # fmt: skip
