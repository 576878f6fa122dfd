"""Processes that share out jobs among them: the parent's end of worker_main.py. Knows no torch.

Each takes one job at a time. One that dies fails its job and is replaced for the next.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launchkit import jsonio, settings
from launchkit.dispatch.manifest.worker_main import LINE_LIMIT_BYTES
from launchkit.errors import BadDocumentError

_CODE = "import sys; sys.path[:] = {path!r}; from launchkit.dispatch.manifest.worker_main import main; main({fd})"
_STOP_S = 10.0
_STARTS = 2
"""Processes that a place gets to become ready; then its jobs are left to the others."""

Answered = Callable[[int, "dict[str, Any]"], None]
"""Called with a job's number and its answer, one call at a time; ``died`` in the answer says that
the process ended over it, and how."""


@dataclass(frozen=True)
class Step:
    """A function to call in a new worker: ``module:qualname`` and its keyword options."""

    call: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Role:
    """What workers are for: ``module:qualname`` of a function that makes a Handler of options."""

    call: str
    options: Mapping[str, Any] = field(default_factory=dict)
    prepare: tuple[Step, ...] = ()
    """Called before, in order."""


class WorkerDied(Exception):  # noqa: N818 - caught in this file, and told as an answer
    """A worker ended; the text says how."""


def run_jobs(
    jobs: Sequence[Mapping[str, Any]],
    role: Role,
    environments: Sequence[Mapping[str, str]],
    answered: Answered,
) -> None:
    """Give every job to a worker; return when each is answered.

    ``environments``: variables to set, one mapping for each worker.
    """
    pool = _Pool(jobs, role, answered)
    threads = [threading.Thread(target=pool.serve, args=(each,), daemon=True)
               for each in environments]  # fmt: skip
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        pool.close()  # also when this thread is interrupted
    pool.give_up()


class _Pool:
    def __init__(self, jobs: Sequence[Mapping[str, Any]], role: Role, answered: Answered) -> None:
        self._waiting: queue.SimpleQueue[tuple[int, Mapping[str, Any]]] = queue.SimpleQueue()
        for item in enumerate(jobs):
            self._waiting.put(item)
        self._setup = _setup(role)
        self._answered = answered
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._closed = False
        self._trouble = "no worker could be started"

    def serve(self, environment: Mapping[str, str]) -> None:
        """Take jobs until there are none: the thread of one worker after another."""
        worker: _Worker | None = None
        starts = 0
        while not self._closed:
            try:
                number, job = self._waiting.get_nowait()
            except queue.Empty:
                break
            try:
                if worker is None:
                    starts += 1
                    worker = self._start(environment)
                    starts = 0
            except (WorkerDied, OSError) as error:
                self._waiting.put((number, job))
                self._trouble = f"a worker did not start: {error}"
                if starts >= _STARTS:
                    break
                continue
            worker = self._ask(worker, number, job)
        if worker is not None:
            worker.stop()

    def _start(self, environment: Mapping[str, str]) -> _Worker:
        worker = _Worker(environment)
        with self._lock:
            self._workers.add(worker)
        try:
            worker.ask(self._setup)
        except WorkerDied:
            worker.stop()
            raise
        return worker

    def _ask(self, worker: _Worker, number: int, job: Mapping[str, Any]) -> _Worker | None:
        """Have a job done; return the worker if it can take another."""
        try:
            answer = worker.ask(job)
        except WorkerDied as error:
            answer = {"died": str(error)}
        with self._lock:
            if not self._closed:
                self._answered(number, answer)
        if "died" in answer or answer.get("fatal"):
            worker.stop()
            return None
        return worker

    def close(self) -> None:
        """End every worker."""
        self._closed = True
        with self._lock:
            for worker in self._workers:
                worker.kill()

    def give_up(self) -> None:
        """Answer for the jobs that nobody could take."""
        with contextlib.suppress(queue.Empty):
            while True:
                number, _ = self._waiting.get_nowait()
                self._answered(number, {"died": self._trouble})


class _Worker:
    def __init__(self, environment: Mapping[str, str]) -> None:
        read, write = os.pipe()
        command = [sys.executable, "-c", _CODE.format(path=sys.path, fd=write)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=2,  # a module that prints must not spoil what the parent prints
                pass_fds=(write,),
                env=settings.child_environment(environment),
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._answers = os.fdopen(read, "rb")

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer; raises WorkerDied."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(jsonio.dumps_compact(dict(request)) + b"\n")
            self._process.stdin.flush()
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line:
            raise WorkerDied(self._ending())
        return _answer(line)

    def _ending(self) -> str:
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            return "the worker does not answer"
        if code >= 0:
            return f"the worker ended with exit code {code}"
        with contextlib.suppress(ValueError):
            return f"the worker was killed by {signal.Signals(-code).name}"
        return f"the worker was killed by signal {-code}"

    def stop(self) -> None:
        """Let the process end by itself, or end it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._answers.close()

    def kill(self) -> None:
        """End the process now; whoever waits for its answer learns of it."""
        self._process.kill()
        self._process.wait()


def _answer(line: bytes) -> dict[str, Any]:
    try:
        answer = jsonio.loads(line, source="an answer", limit_bytes=LINE_LIMIT_BYTES)
    except BadDocumentError as error:  # a module may write to whatever is open
        raise WorkerDied(f"the worker's answer cannot be read: {error.reason}") from None
    if not isinstance(answer, dict):
        raise WorkerDied("the worker's answer is no object")
    return answer


def _setup(role: Role) -> dict[str, Any]:
    prepare = [{"call": step.call, "options": dict(step.options)} for step in role.prepare]
    return {"role": role.call, "options": dict(role.options), "prepare": prepare}
