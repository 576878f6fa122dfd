"""Calls that no caller waits for beyond a deadline. Under link.py.

Resolving a host's name cannot be interrupted, so it happens in a thread that can be left behind.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

MAX_THREADS = 4
IDLE_S = 30.0
"""A thread that has had nothing to do for so long ends."""


class NoThreadError(Exception):
    """The system starts no thread any more: there are too many, or the process ends."""


def start_thread(work: Callable[[], None], name: str) -> bool:
    """Start a daemon thread; False where none can be started: no launch may fail of that."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


class _Task:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.done = threading.Event()
        self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if not self.abandoned:
                self.result = self.work()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self.error = error
        self.done.set()


class BoundedCalls:
    """A few daemon threads, started when they are needed, that make calls for others."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0

    def run(self, work: Callable[[], Any], timeout_s: float) -> Any:
        """Return what ``work`` returns, or raise what it raises; TimeoutError after so long.

        What has begun by then goes on, and its result is dropped. Raises NoThreadError where there
        is no thread for it.
        """
        task = _Task(work)
        with self._lock:
            self._tasks.put(task)
            start = self._idle < self._tasks.qsize() and self._threads < MAX_THREADS
            self._threads += start
            self._idle += start
        if start and not start_thread(self._work, self._name):
            self._forget_thread(task)
        if not task.done.wait(timeout_s):
            task.abandoned = True
            raise TimeoutError
        if task.error is not None:
            raise task.error
        return task.result

    def _forget_thread(self, task: _Task) -> None:
        """A thread that did not start; if there is another, the task may wait for that."""
        with self._lock:
            self._threads -= 1
            self._idle -= 1
            task.abandoned = self._threads == 0
        if task.abandoned:
            raise NoThreadError

    def _work(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            del task
            with self._lock:
                self._idle += 1

    def _next(self) -> _Task | None:
        """Wait for a task; None if there was none for long, and this thread is to end."""
        with contextlib.suppress(queue.Empty):
            task = self._tasks.get(timeout=IDLE_S)
            with self._lock:
                self._idle -= 1
            return task
        with self._lock:
            with contextlib.suppress(queue.Empty):  # one that has just come
                task = self._tasks.get_nowait()
                self._idle -= 1
                return task
            self._threads -= 1
            self._idle -= 1
        return None
