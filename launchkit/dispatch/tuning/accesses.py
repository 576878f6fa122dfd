"""Which arguments a compiled kernel reads and writes, by its Triton IR. A leaf: pure text.

Every value is followed back to the arguments that it is computed from. Where that is not certain
(a call, inline assembly, an operation that is not known) the answer holds more rather than less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_MEMORY = "<memory>"
"""Stands for the argument that a loaded pointer would come from; no name is spelled so."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_ARGUMENT = re.compile(r"(%[\w.$-]+): ([^%]*)")
_OPERATION = re.compile(
    r'^(?:(%[\w.$-]+(?::\d+)?(?:, %[\w.$-]+(?::\d+)?)*) = )?("?)([a-z_]\w*\.[\w.]+)\2'
)
_PAIR = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")
_BLOCK = re.compile(r"^\^\w+(?:\((.*)\))?")

_PURE_DIALECTS = ("arith", "math", "scf", "cf", "ub", "builtin")
_IMPURE = ("tt.call", "tt.elementwise_inline_asm", "tt.extern_elementwise", "tt.map_elementwise")
_ENDS = ("scf.yield", "scf.condition", "scf.reduce.return", "tt.reduce.return", "tt.scan.return")
# Without results and without effect on memory.
_HARMLESS = ("tt.return", "tt.print", "tt.assert", "gpu.barrier", "llvm.intr.assume")


@dataclass(frozen=True)
class Accesses:
    """What a kernel does to the memory behind its arguments, by the names of its parameters."""

    read: frozenset[str]
    written: frozenset[str]
    indirect: bool
    """It also writes through addresses that it reads from memory: to what no argument names."""


def accesses(ir: str, pointers: Sequence[tuple[str, str]]) -> Accesses | None:
    """Return what a kernel reads and writes; None for a text that is not understood.

    Args:
        ir: the kernel's Triton IR (``compiled.asm["ttir"]``).
        pointers: (parameter, kind) of each pointer (``ptr``) and descriptor (``tensordesc``) among
            the kernel's arguments, in order. The text has names too, but those of variables.
    """
    try:
        return _Reader(pointers).read(ir)
    except _UnknownTextError:
        return None


def accesses_of(compiled: Any) -> Accesses | None:
    """Return the same of a compiled kernel; None where there is no Triton IR."""
    try:
        ir, signature = compiled.asm["ttir"], compiled.src.signature
        pointers = [found for name, kind in signature.items() for found in _pointers(name, kind)]
    except (AttributeError, KeyError, TypeError):
        return None
    return accesses(ir, pointers) if isinstance(ir, str) else None


def _pointers(name: str, kind: Any) -> Iterator[tuple[str, str]]:
    """Give a parameter's pointers as Triton's signature of a kernel types them."""
    if isinstance(kind, (tuple, list)):
        for part in kind:
            yield from _pointers(name, part)
    elif kind.startswith("tensordesc"):
        yield name, "tensordesc"
    elif kind.startswith(("*", "nvTmaDesc")):
        yield name, "ptr"


class _UnknownTextError(Exception):
    """The text is not what Triton writes."""


@dataclass
class _Region:
    """An operation with a body: what its body ends with becomes its results, or its arguments."""

    results: list[str]
    arguments: list[str]
    loops: bool
    positional: bool


@dataclass
class _Reader:
    pointers: Sequence[tuple[str, str]]
    names: dict[str, str] = field(default_factory=dict)
    """Pointer argument in the text -> parameter."""
    sources: dict[str, set[str]] = field(default_factory=dict)
    read_from: set[str] = field(default_factory=set)
    written_to: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    """Given to what may do anything with it."""
    regions: list[_Region] = field(default_factory=list)

    def read(self, ir: str) -> Accesses:
        lines = _kernel_lines(ir)
        self._header(next(lines, ""))
        for line in lines:
            self._line(line)
        anything = self._origins(self.touched)
        read = self._origins(self.read_from) | anything
        written = self._origins(self.written_to) | anything
        to = [self._origins({value}) for value in self.written_to]
        indirect = any(not origins or _MEMORY in origins for origins in to)
        return Accesses(self._named(read), self._named(written), indirect)

    def _header(self, line: str) -> None:
        arguments = line.partition("(")[2]
        found = [
            (name, "tensordesc" if "!tt.tensordesc" in rest else "ptr")
            for name, rest in _ARGUMENT.findall(arguments)
            if "!tt.tensordesc" in rest or "!tt.ptr" in rest
        ]
        if [kind for _, kind in found] != [kind for _, kind in self.pointers]:
            raise _UnknownTextError(line)
        parameters = (parameter for parameter, _ in self.pointers)
        self.names = dict(zip((name for name, _ in found), parameters, strict=True))

    def _line(self, line: str) -> None:
        if block := _BLOCK.match(line):
            self._block_arguments(block[1] or "")
            return
        if line.startswith("}"):
            self._close(line)
            return
        found = _OPERATION.match(line)
        if found is None:
            raise _UnknownTextError(line)
        results = _results(found[1] or "")
        body = _STRING.sub("", line[found.end() :])
        operands = _VALUE.findall(body)
        self._effect(found[3], results, operands)
        if body.rstrip().endswith("{") or body.rstrip().endswith("({"):
            self._open(found[3], results, operands, body)
        elif found[3] in _ENDS or found[3].endswith(".return"):
            self._end(operands[1:] if found[3] == "scf.condition" else operands)
        elif found[3] == "tt.load" and results:
            # What was loaded comes from the argument's memory, not from the argument.
            if _loads_pointers(body):
                self.sources.setdefault(results[0], set()).add(_MEMORY)
        else:
            self._flow(operands, results)

    def _effect(self, operation: str, results: list[str], operands: list[str]) -> None:
        """Note what an operation reads and writes through its operands."""
        dialect, _, name = operation.partition(".")
        if dialect in _PURE_DIALECTS or operation in _HARMLESS or not operands:
            return
        if "atomic" in name or "descriptor_reduce" in name:
            self.read_from.add(operands[0])
            self.written_to.add(operands[0])
        elif "store" in name or name.endswith("_scatter"):
            self.written_to.add(operands[0])
        elif "load" in name or name.endswith("_gather"):
            self.read_from.add(operands[0])
        elif operation in _IMPURE or dialect != "tt" or not (results or name.endswith("return")):
            self.touched.update(operands)

    # -- bodies

    def _open(self, operation: str, results: list[str], operands: list[str], body: str) -> None:
        carried = body.partition("iter_args(")[2] if operation == "scf.for" else body
        pairs = _PAIR.findall(carried) if operation in ("scf.for", "scf.while") else []
        arguments = [name for name, _ in pairs]
        for name, start in pairs:
            self._flow([start], [name])
        positional = operation in ("scf.for", "scf.if")
        if not positional:
            self._flow(operands, [*results, *arguments])
        loops = operation != "scf.if"
        for start, result in zip([start for _, start in pairs], results, strict=False):
            self._flow([start], [result])  # a loop may run no time
        self.regions.append(_Region(results, arguments, loops, positional))

    def _block_arguments(self, text: str) -> None:
        names = _VALUE.findall(_STRING.sub("", text))
        if self.regions:
            region = self.regions[-1]
            self._flow([*region.arguments, *region.results], names)
            region.arguments.extend(names)
        elif names:  # a jump within the function: any value may arrive
            raise _UnknownTextError(text)

    def _end(self, operands: list[str]) -> None:
        if not self.regions:
            return
        region = self.regions[-1]
        if region.positional:
            for place, value in enumerate(operands):
                self._flow([value], region.results[place : place + 1])
                if region.loops:
                    self._flow([value], region.arguments[place : place + 1])
        else:
            self._flow(operands, [*region.results, *region.arguments])

    def _close(self, line: str) -> None:
        again = line.rstrip().endswith("{") or line.rstrip().endswith("({")
        if self.regions and not again:  # «} else {» and «} do {» go on with the same operation
            self.regions.pop()

    # -- values

    def _flow(self, operands: Sequence[str], results: Sequence[str]) -> None:
        for result in results:
            self.sources.setdefault(result, set()).update(operands)

    def _origins(self, values: set[str]) -> set[str]:
        """Return what values are computed from, at last: pointer arguments and memory."""
        seen: set[str] = set()
        waiting = set(values)
        while waiting:
            value = waiting.pop()
            seen.add(value)
            waiting |= self.sources.get(value, set()) - seen
        return {value for value in seen if value in self.names or value == _MEMORY}

    def _named(self, values: set[str]) -> frozenset[str]:
        return frozenset(self.names[value] for value in values if value in self.names)


def _kernel_lines(ir: str) -> Iterator[str]:
    """Give the lines of the public function, its header first."""
    inside = False
    for raw in ir.splitlines():
        line = raw.strip()
        if "tt.func public" in line:
            inside = True
        elif inside and raw.startswith("  }"):
            return
        if inside and line:
            yield line
    if not inside:
        raise _UnknownTextError("no kernel")


def _results(text: str) -> list[str]:
    """Return the names that an operation defines: ``%a:2`` is ``%a#0`` and ``%a#1``."""
    found: list[str] = []
    for part in filter(None, text.split(", ")):
        name, _, count = part.partition(":")
        found.extend([f"{name}#{place}" for place in range(int(count))] if count else [name])
    return found


def _loads_pointers(body: str) -> bool:
    # The type that is written is the address's: a pointer to a pointer.
    return body.count("!tt.ptr") > 1
