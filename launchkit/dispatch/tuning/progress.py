"""A progress bar for one tuning, on a terminal only, never in a log. A leaf of tuning."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from launchkit import settings
from launchkit.configs import TunedConfig

# A tuning may start within another one's hook; two bars on one terminal spoil each other.
_shown = threading.Lock()

MAX_TEXT = 60
"""Characters of a kernel's name or key that are shown."""


class Steps:
    """Counts the configs of one key; shows nothing."""

    def __init__(self) -> None:
        self.best: TunedConfig | None = None

    def done(self, tuned: TunedConfig) -> None:
        """Say that one config has been measured, or has failed."""
        faster = self.best is None or (tuned.median_us or 0) < (self.best.median_us or 0)
        if tuned.ok and faster:
            self.best = tuned


class _Bar(Steps):
    def __init__(self, progress: Any, task: Any) -> None:
        super().__init__()
        self._progress, self._task = progress, task

    def done(self, tuned: TunedConfig) -> None:
        super().done(tuned)
        text = "" if self.best is None else f"best {self.best.median_us:.1f} us: {self.best.text}"
        self._progress.update(self._task, advance=1, best=text)


@contextlib.contextmanager
def steps(kernel: str, key: str, total: int) -> Iterator[Steps]:
    """Show how far the tuning of a key is; where nobody looks, only count."""
    if not _wanted() or not _shown.acquire(blocking=False):
        yield Steps()
        return
    try:
        with _progress() as progress:
            task = progress.add_task(_tail(kernel), total=total, key=_short(key), best="")
            yield _Bar(progress, task)
    finally:
        _shown.release()


def _wanted() -> bool:
    stream = sys.stderr
    return settings.current().progress and stream is not None and _is_terminal(stream)


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # replaced by an object of a test runner's, or closed
        return False


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("tuning {task.description}", markup=False),
        TextColumn("{task.fields[key]}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}", markup=False),
        console=Console(file=sys.stderr),
        transient=True,
        # What a program prints stays where it prints it.
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _tail(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"…{text[1 - MAX_TEXT :]}"
