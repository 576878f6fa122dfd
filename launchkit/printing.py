"""Text of others, made fit to be printed and logged. A leaf: imports nothing from the package."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text in which what a terminal or a log would obey is spelled out, as Python writes it.

    Control characters, line breaks among them, marks that turn the direction of writing, and lone
    surrogates, which no encoding holds. Names and reasons come from files that others wrote.
    """
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """Return text of several lines, each as ``printable`` makes it."""
    return "\n".join(map(printable, text.split("\n")))
