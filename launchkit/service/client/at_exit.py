"""What is still to be sent when a process ends. Under store.py."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from multiprocessing.util import Finalize
from typing import Protocol

from launchkit import clock

EXIT_S = 2.0
"""How long a process that ends waits for what is still to be sent."""
_log = logging.getLogger("launchkit")
_flushing_pid: int | None = None


class Flushed(Protocol):
    """A store that sends in the background."""

    def flush(self, timeout_s: float) -> int:
        """Wait, at most so long, until all is sent; return how much is not."""

    def describe(self) -> str:
        """Say where it is sent."""


def flush_at_exit(stores: Iterable[Flushed]) -> None:
    """Let this process, when it ends, wait a moment for what ``stores`` have still to send.

    Once a process; multiprocessing's way is also that of its children, which no atexit reaches.
    """
    global _flushing_pid
    if _flushing_pid != os.getpid():
        _flushing_pid = os.getpid()
        Finalize(None, _flush_all, (stores,), exitpriority=100)


def _flush_all(stores: Iterable[Flushed]) -> None:
    deadline_ns = clock.now_ns() + int(EXIT_S * 1e9)
    for store in list(stores):
        left = store.flush(max(0.0, (deadline_ns - clock.now_ns()) / 1e9))
        if left:
            _log.warning(
                "%d tuned configs were not sent to the %s. Send them with: launchkit configs push.",
                left,
                store.describe(),
            )
