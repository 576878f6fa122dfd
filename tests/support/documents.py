"""The code blocks of a document: found with their lines, and run in the document's order.

What is run, by the words behind the three backquotes:

* ``python``: in one module a document, on the host-only driver, with ``device="cpu"`` for "cuda".
* ``python file=NAME.py``: written to the document's folder; a program with ``device="cuda"`` gets
  the host-only driver as well.
* ``console``: ``$ `` lines are commands of one bash; lines below are their output, in which ``...``
  stands for anything; ``[exit N]`` as the last line is the exit code of one that fails. What
  a command that ends in ``&`` shows is waited for; it is ended with the document.
* ``text output``: what the python blocks above it printed.
* ``python gpu``, ``console gpu``: on a GPU, with its real driver, and nothing else of the document
  but ``console both``, which is run here and there.
* ``console other``: never. Other languages are shown.

Files of tests/data that a document links to lie in its folder. Port 8477 is a free one.

A comment whose first line is ``<!-- python`` or ``<!-- console``, with words as above, is a block
that a reader does not see: what an example takes from its surroundings.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchkit import jsonio

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {"bash", "diff", "json", "text", "toml", "yaml"}
RUN = {"python", "console"}
CAPTURES = {
    "docs/reading-timelines.md": ["capture.sqlite", "rank0.sqlite", "rank1.sqlite"],
    "docs/timelines.md": ["capture.sqlite"],
}
"""Files in a document's folder from its beginning, each the project's own capture of an H200."""
_FENCE = re.compile(r"( *)(```+)(.*)")
_HIDDEN = re.compile(r"<!-- (?=(?:python|console)\b)(.*)")


class DocumentError(AssertionError):
    """A block of a document that is not what it says; names the document and the line."""


@dataclass(frozen=True)
class Block:
    """One block: where its first line stands, what it is, and its text."""

    document: str
    line: int
    language: str
    options: tuple[str, ...]
    text: str
    hidden: bool = False

    @property
    def place(self) -> str:
        """The document and the block's first line."""
        return f"{self.document}:{self.line}"

    @property
    def file(self) -> str | None:
        """NAME of ``file=NAME``."""
        names = [word.removeprefix("file=") for word in self.options if word.startswith("file=")]
        return names[0] if names else None

    def fails(self, why: str, line: int | None = None) -> DocumentError:
        """Return the error of this block, or of one of its lines."""
        return DocumentError(f"{self.document}:{self.line if line is None else line}: {why}")


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the lines that it is said to print."""

    line: int
    text: str
    shown: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """What it should exit with."""
        match = re.fullmatch(r"\[exit (\d+)\]", self.shown[-1]) if self.shown else None
        return int(match[1]) if match else 0

    @property
    def in_background(self) -> bool:
        """Whether bash does not wait for it; then what it shows is waited for."""
        return self.text.endswith(" &")

    @property
    def output(self) -> str:
        """What it should print; empty if nothing is said of it."""
        return "\n".join(self.shown[:-1] if self.exit_code else self.shown)


def documents() -> list[Path]:
    """Return every document whose blocks are run."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def name_of(path: Path) -> str:
    """Return a document's path as errors and tests name it."""
    return path.relative_to(ROOT).as_posix()


def blocks_of(path: Path) -> list[Block]:
    """Return a document's blocks; raises DocumentError for one that does not end."""
    document, lines = name_of(path), path.read_text(encoding="utf-8").splitlines()
    found = []
    at = 0
    while at < len(lines):
        fence, hidden = _FENCE.fullmatch(lines[at]), _HIDDEN.fullmatch(lines[at])
        match = fence or hidden
        if match is None:
            at += 1
            continue
        end, first = ("-->", at + 1) if fence is None else (fence[2], at + 1)
        while (at := at + 1) < len(lines) and lines[at].strip() != end:
            pass
        words = match[3 if fence else 1].split()
        language, options = (words[0] if words else ""), tuple(words[1:])
        indent = len(fence[1]) if fence else 0
        text = "".join(line[indent:] + "\n" for line in lines[first:at])
        block = Block(document, first + 1, language, options, text, fence is None)
        if at == len(lines):
            raise block.fails(f"the block has no end: no line {end}")
        found.append(block)
        at += 1
    return found


def data_of(path: Path) -> list[Path]:
    """Return the files of tests/data that a document links to: they lie in its folder."""
    text = path.read_text(encoding="utf-8")
    found = [(path.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", text)]
    return [file for file in found if file.is_relative_to(ROOT / "tests/data") and file.is_file()]


def commands_of(block: Block) -> Iterator[Command]:
    """Yield the commands of a console block."""
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        first = at
        if not lines[at].startswith("$ "):
            raise block.fails("a console block begins with '$ ' and a command", block.line + at)
        command = [lines[at][2:]]
        while command[-1].endswith("\\") and at + 1 < len(lines):
            at += 1
            command.append(lines[at].removeprefix("> "))
        at += 1
        below = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        shown = [line.rstrip() for line in lines[below:at]]
        while shown and not shown[-1]:
            shown.pop()
        yield Command(block.line + first, "\n".join(command), tuple(shown))


def unlike(printed: str, shown: str) -> str | None:
    """Return None if ``shown`` describes what was printed, else the differing lines."""
    have, want = _plain(printed), _plain(shown)
    pieces = re.sub(r"^\.\.\.\n|\.\.\.", "\0", want, flags=re.MULTILINE).split("\0")
    if _in_order(have, pieces):
        return None
    lines = difflib.ndiff(want.splitlines(), have.splitlines())
    return "\n".join(line.rstrip() for line in lines if not line.startswith("?"))


def _plain(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return "".join(line + "\n" for line in lines)


def _in_order(text: str, pieces: list[str]) -> bool:
    """Whether text is these pieces with anything between them."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(last) >= at and text.endswith(last)


def result(name: str) -> dict[str, Any]:
    """Return a result that documents quote, by its file in ``benchmarks/results``."""
    path = ROOT / "benchmarks" / "results" / name
    found = jsonio.loads(path.read_bytes(), source=path.name, limit_bytes=10**7)
    assert isinstance(found, dict)
    return found
