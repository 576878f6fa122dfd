"""Who is told how far the reading of a capture has got. A leaf without polars."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told after every piece: what is read, how much of it so far and in all, in rows or bytes."""


def silent(table: str, done: int, whole: int) -> None:
    """Tell nobody."""
