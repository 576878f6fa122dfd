"""Identities for stored configs: KernelId of a kernel, LaunchKey of arguments. A leaf of dispatch.

A kernel is its declared name and a digest of its tokens without comments, line breaks and
positions, of the functions that it calls, and of the globals that it reads. Unlike Triton's
``cache_key`` it does not move with the line number, and unlike ``ast.dump`` it is the same in
every Python version.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import io
import textwrap
import tokenize
import types
from collections.abc import Iterator, Mapping
from typing import Any

from launchkit.errors import UnfingerprintableError
from launchkit.keys import KernelId, LaunchKey, encode_value

_DROPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
# NEWLINE ends a statement («a = b» and «-c» on two lines are not «a = b - c»); NL only a line.
_LAYOUT = {tokenize.INDENT: "<indent>", tokenize.DEDENT: "<dedent>", tokenize.NEWLINE: "<end>"}
_FSTRING_START = getattr(tokenize, "FSTRING_START", -1)
_FSTRING_END = getattr(tokenize, "FSTRING_END", -1)


def kernel_id(jit: Any, name: str | None = None) -> KernelId:
    """Return the identity of a kernel: ``name`` (default module.qualname) and its digest.

    Raises:
        UnfingerprintableError: the kernel reads a global that has no stable identity.
    """
    hasher = hashlib.sha256()
    for line in _describe(jit, set()):
        hasher.update(line.encode() + b"\n")
    declared = name or f"{jit.fn.__module__}.{jit.fn.__qualname__}"
    return KernelId(declared, hasher.hexdigest())


def launch_key(jit: Any, keys: tuple[str, ...], bound: Mapping[str, Any]) -> LaunchKey:
    """Return the key of a launch: the autotune-key values by name, and each parameter's dtype.

    ``bound`` holds the arguments by parameter name, defaults included; a parameter that a
    config or a heuristic will supply is missing from it.

    Raises:
        UnfingerprintableError: a key value has no stable identity.
    """
    values = tuple(encode_value(name, bound[name]) for name in dict.fromkeys(keys) if name in bound)
    dtypes = tuple((param.name, dtype_text(bound.get(param.name))) for param in jit.params)
    return LaunchKey(values, dtypes)


def bind(jit: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given and defaulted arguments by parameter name; options are left out.

    A required parameter that is not given is left out too: Triton reports it at the launch.
    """
    names = [param.name for param in jit.params]
    bound = dict(zip(names, args, strict=False))
    bound.update((name, value) for name, value in kwargs.items() if name in names)
    for param in jit.params:
        if param.name not in bound and param.default is not inspect.Parameter.empty:
            bound[param.name] = param.default
    return bound


def dtype_text(value: Any) -> str | None:
    """Return an argument's dtype as text, or None if it has none."""
    dtype = getattr(value, "dtype", None)
    return None if dtype is None else str(dtype)


def source_tokens(source: str) -> list[str]:
    """Return the tokens of Python source without comments, line breaks and positions."""
    tokens: list[str] = []
    depth, start = 0, (0, 0)
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        # Python 3.12 cuts f-strings into parts; 3.11 gives one string. Both become the latter.
        if token.type == _FSTRING_START:
            start = token.start if depth == 0 else start
            depth += 1
        elif token.type == _FSTRING_END:
            depth -= 1
            if depth == 0:
                tokens.append(_slice(lines, start, token.end))
        elif depth == 0 and token.type in _LAYOUT:
            tokens.append(_LAYOUT[token.type])
        elif depth == 0 and token.type not in _DROPPED:
            tokens.append(token.string)
    return tokens


def _slice(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    first, last = lines[start[0] - 1][start[1] :], lines[end[0] - 1][: end[1]]
    return "".join([first, *lines[start[0] : end[0] - 1], last])


def _describe(function: Any, seen: set[int]) -> Iterator[str]:
    """Yield text that is the same for the same kernel: its tokens, then what it refers to."""
    seen.add(id(function))
    yield from source_tokens(_source(function))
    for param in getattr(function, "params", ()):
        yield f"param {param.name} {param.do_not_specialize} {param.do_not_specialize_on_alignment}"
    scope = _scope(function)
    for path in sorted(_loaded_paths(ast.parse(_source(function)))):
        found, value = _lookup(path, scope)
        if found:
            yield from _describe_value(".".join(path), value, seen)


def _source(function: Any) -> str:
    source = getattr(function, "src", None)
    if isinstance(source, str):
        return source
    raise UnfingerprintableError(repr(function), "its source is not available")


def _scope(function: Any) -> Mapping[str, Any]:
    plain = function.fn
    scope = dict(plain.__globals__)
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # a closure variable that is not assigned yet
            scope.pop(name, None)
    return scope


def _loaded_paths(tree: ast.AST) -> set[tuple[str, ...]]:
    """Return the dotted names that a function loads, with names that it assigns left out."""
    local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    local |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    paths = (
        _dotted(node) for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute))
    )
    return {path for path in paths if path and path[0] not in local}


def _dotted(node: ast.AST) -> tuple[str, ...]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return (node.id, *parts) if isinstance(node, ast.Name) else ()


def _lookup(path: tuple[str, ...], scope: Mapping[str, Any]) -> tuple[bool, Any]:
    if path[0] not in scope:
        return False, None
    value = scope[path[0]]
    for name in path[1:]:
        # A method or attribute of a value is covered by the value itself.
        if not isinstance(value, types.ModuleType) or not hasattr(value, name):
            return False, None
        value = getattr(value, name)
    return True, value


def _describe_value(name: str, value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, types.ModuleType) or value is getattr(builtins, name, builtins):
        return
    if _is_core(value, "constexpr"):
        name, value = f"constexpr {name}", value.value
    if hasattr(value, "fn") and hasattr(value, "src"):
        if id(value) not in seen and not _from_triton(value):
            yield f"calls {name}"
            yield from _describe(value, seen)
    elif isinstance(value, type) and not _from_triton(value):
        yield f"type {name} {value.__module__}.{value.__qualname__}"
        yield from source_tokens(textwrap.dedent(_class_source(value)))
    elif inspect.isbuiltin(value):
        yield f"builtin {value.__module__}.{value.__qualname__}"
    elif _is_core(value, "dtype") or not _from_triton(value):
        encoded = encode_value(name, value)
        yield f"global {encoded.name} {encoded.type} {encoded.value}"


def _is_core(value: Any, kind: str) -> bool:
    return type(value).__module__ == "triton.language.core" and type(value).__name__ == kind


def _from_triton(value: Any) -> bool:
    """Triton's own functions and types change with the toolchain, which is a field of its own."""
    return (getattr(value, "__module__", None) or "").split(".")[0] == "triton"


def _class_source(value: type) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError) as error:
        raise UnfingerprintableError(repr(value), "its source is not available") from error
