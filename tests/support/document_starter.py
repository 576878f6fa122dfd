"""Starts the programs of documents: one process that has imported torch and Triton, and forks.

An import of both takes seconds, and documents start many programs. ``Starter`` runs this file as
that process; clients of it stand for ``python`` and ``launchkit`` in a document's PATH. A program
sees its own folder, environment, arguments, files and signals, and imports launchkit by itself.
Where a variable is set that is read before, or Python gets options, the client starts the program
plainly.
"""

from __future__ import annotations

import atexit
import importlib
import marshal
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

PRELOADED = (
    *("torch", "triton", "triton.language", "typer", "rich.console", "rich.table", "pydantic"),
    *("orjson", "filelock", "platformdirs", "sqlalchemy", "alembic", "fastapi", "uvicorn", "httpx"),
)
READ_EARLY = ("PYTHON", "TRITON_", "TORCH", "CUDA", "LD_", "OMP_")
"""Beginnings of the names of variables that these, or Python, read as they start."""

CLIENT = """#!{python} -SE
import marshal, os, signal, socket, struct, sys

def plainly():
    os.execv({python!r}, [{python!r}, *{plain!r}, *sys.argv[1:]])

early = {{name: text for name, text in os.environ.items() if name.startswith({early!r})}}
words = [*{plain!r}, *sys.argv[1:]]
if {{**early, "PYTHONPATH": None}} != {{**{known!r}, "PYTHONPATH": None}}:
    plainly()
if not words or (words[0].startswith("-") and words[0] not in ("-c", "-m")):
    plainly()
server = socket.socket(socket.AF_UNIX)
try:
    server.connect({address!r})
except OSError:
    plainly()
job = marshal.dumps((words, os.getcwd(), dict(os.environ)))
socket.send_fds(server, [struct.pack("i", len(job))], [0, 1, 2])
server.sendall(job)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: server.send(bytes([number])))
answer = server.recv(4)
code = struct.unpack("i", answer)[0] if answer else 70
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Job(NamedTuple):
    """One program: what stands behind ``python``, its folder and environment."""

    words: list[str]
    folder: str
    environment: dict[str, str]


class Starter:
    """The process that starts programs; ended by ``close``."""

    def __init__(self, address: Path, environment: Mapping[str, str]) -> None:
        self.address = address
        self.known = {k: v for k, v in environment.items() if k.startswith(READ_EARLY)}
        command = [sys.executable, __file__, str(address)]
        self._process = subprocess.Popen(command, env=dict(environment), stdin=subprocess.PIPE)

    def client(self, plain: list[str]) -> str:
        """Return a script that stands for Python with ``plain`` as its first words."""
        return CLIENT.format(
            python=sys.executable,
            plain=plain,
            early=READ_EARLY,
            known=self.known,
            address=str(self.address),
        )

    def close(self) -> None:
        """End the process and every program that it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class _Server:
    def __init__(self, address: str) -> None:
        self._programs: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for source in (self._listener, self._woken, sys.stdin):
            self._selector.register(source, selectors.EVENT_READ)

    def serve(self) -> Job:
        """Return, in a forked process, what it has to run."""
        while True:
            for key, _ in self._selector.select():
                source: Any = key.fileobj
                if source is self._listener:
                    job = self._start()
                    if job is not None:
                        return job
                elif source is self._woken:
                    source.recv(4096)
                    self._reap()
                elif source is sys.stdin:
                    self._end()
                else:
                    self._pass_on(source, key.data)

    def _start(self) -> Job | None:
        client, _ = self._listener.accept()
        size, files, _, _ = socket.recv_fds(client, 4, 3)
        with client.makefile("rb") as stream:
            job = Job(*marshal.loads(stream.read(struct.unpack("i", size)[0])))
        pid = os.fork()
        if pid == 0:
            self._become(files)
            return job
        for file in files:
            os.close(file)
        self._programs[pid] = client
        self._selector.register(client, selectors.EVENT_READ, pid)
        return None

    def _become(self, files: list[int]) -> None:
        """Leave nothing of the server in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for each in (self._listener, self._woken, self._waker, *self._programs.values()):
            each.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        # The old ones know of another kind of file.
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)

    def _reap(self) -> None:
        for pid in list(self._programs):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                client = self._programs.pop(pid)
                self._selector.unregister(client)
                with suppress(OSError), client:
                    client.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))

    def _pass_on(self, client: socket.socket, pid: int) -> None:
        """Give a program its client's signals; a client that was killed takes it along."""
        try:
            numbers = client.recv(16) or bytes([signal.SIGKILL])
        except OSError:
            numbers = bytes([signal.SIGKILL])
        if pid in self._programs:
            for number in numbers:
                os.kill(pid, number)

    def _end(self) -> None:
        for pid in self._programs:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _run(job: Job) -> None:
    """Be the program, as Python would be after its own start."""
    os.chdir(job.folder)
    given = job.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [each for each in given if each and each not in sys.path]
    os.environ.clear()
    os.environ.update(job.environment)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    _run_python(main, job.words)


def _run_python(main: types.ModuleType, words: list[str]) -> None:
    if words[0] == "-m":
        import runpy

        sys.argv, sys.path[:0] = words[1:], [""]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if words[0] == "-c":
        sys.argv, sys.path[:0] = ["-c", *words[2:]], [""]
        source, name = words[1], "<string>"
    else:
        sys.argv, sys.path[:0] = words, [os.path.dirname(os.path.abspath(words[0]))]
        source, name = Path(words[0]).read_text(encoding="utf-8"), words[0]
        main.__file__ = name
    exec(compile(source, name, "exec"), main.__dict__)


def _end(code: Any) -> None:
    """End as Python does, but leave the modules alone: that takes longer than most programs."""
    _flush()
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the program's threads
    atexit._run_exitfuncs()
    _flush()
    os._exit((code or 0) & 255)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _main() -> None:
    del sys.path[0]  # this file's folder
    server = _Server(sys.argv[1])
    for module in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(module)
    job = server.serve()
    try:
        _run(job)
    except SystemExit as ended:
        _end(ended.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        _end(1)
    _end(0)


if __name__ == "__main__":
    _main()
