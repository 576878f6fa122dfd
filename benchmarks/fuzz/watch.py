"""What a worker of ``launchkit bench fuzz`` must not see: writes elsewhere, code run, time, memory.

Python's audit events tell of files and code; the system's limits of time and memory.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY_BYTES = 2**30
"""So much more than when it has loaded its readers a worker may map."""
LIMIT_S = 20.0
"""So long one input may take."""
DEAD_S = 3 * LIMIT_S
"""A reader that stands still where Python cannot interrupt it ends its process after so long."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS = {
    "os.mkdir": (0,), "os.rmdir": (0,), "os.remove": (0,), "os.rename": (0, 1), "os.link": (1,),
    "os.symlink": (1,), "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,),
}  # fmt: skip
_CODE = (
    "exec", "compile", "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.spawn",
    "os.fork", "subprocess.Popen", "socket.connect", "ctypes.dlopen", "marshal.loads", "import",
)  # fmt: skip


class Watch:
    """Sees what happens in this process while it is ``on``; it cannot be taken away again."""

    def __init__(self, allowed: Path) -> None:
        self._allowed = os.path.realpath(allowed)
        self._seen: list[str] = []
        self._on = False
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def on(self) -> Iterator[list[str]]:
        """Watch the block; yield the list of what is seen in it. TimeoutError after the limit.

        Where the block stands still in native code, the process ends.
        """
        self._seen = []
        signal.signal(signal.SIGALRM, _too_slow)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        faulthandler.dump_traceback_later(DEAD_S, exit=True, file=2)
        self._on = True
        try:
            yield self._seen
        finally:
            self._on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event in _CODE:
            self._seen.append(f"{event} {args[0]!r}"[:200])
        elif event == "open":
            if isinstance(args[2], int) and args[2] & _WRITES:
                self._outside(event, args[0])
        else:
            for at in _PATHS.get(event, ()):
                self._outside(event, args[at])

    def _outside(self, event: str, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor: it was opened before
        real = os.path.realpath(os.fsdecode(path))
        if os.path.commonpath((self._allowed, real)) != self._allowed:
            self._seen.append(f"{event} {real}"[:200])


def limit_memory() -> None:
    """Let this process map ``MEMORY_BYTES`` more than it has now; more is a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def peak_bytes() -> int:
    """Return the most memory that this process had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"it took more than {LIMIT_S} s")
