"""The bash that a document's commands run in, and the folder and environment that they see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from document_site import PORT, write_commands, write_entry_points
from document_starter import Starter

from launchkit.benchmarks.host import free_port

LIMIT_S = 180


class Surroundings:
    """A document's folders below ``root``: to work in, a home with caches, and commands."""

    def __init__(self, root: Path, starter: Starter | None = None) -> None:
        self.root = root
        self.work = root / "work"
        self.home = root / "home"
        self.commands = root / "bin"
        self.site = root / "site"
        self.port = free_port()
        for folder in (self.work, self.home / ".cache" / "launchkit", self.commands, self.site):
            folder.mkdir(parents=True)
        write_commands(self.commands, self.port, starter)
        write_entry_points(self.site)

    def share_compiled(self) -> None:
        """Let host-only launches take what this user compiled before."""
        from launchkit.hostonly.driver import default_cache_dir

        cache = default_cache_dir()
        cache.mkdir(parents=True, exist_ok=True)
        (self.home / ".cache" / "launchkit" / cache.name).symlink_to(cache)

    def variables(self) -> dict[str, str]:
        """Return the environment: this process's, without what would change a document."""
        kept = quiet_environment()
        path = [str(self.commands), str(Path(sys.executable).parent), kept.get("PATH", "")]
        return kept | {
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "XDG_DATA_HOME": str(self.home / ".local" / "share"),
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(self.site), kept.get("PYTHONPATH")])),
        }

    def from_document(self, text: str) -> str:
        """Return what a document says with the port that is served here."""
        return text.replace(PORT, f":{self.port}")

    def as_documented(self, printed: str) -> str:
        """Return what was printed with the port that documents have."""
        return printed.replace(f":{self.port}", PORT)


def quiet_environment() -> dict[str, str]:
    """Return this process's environment without what changes launches, colours or widths."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LAUNCHKIT_") or name == "LAUNCHKIT_NATIVE"
    }
    for name in ("PYTHONSAFEPATH", "FORCE_COLOR", "XDG_CONFIG_HOME"):
        kept.pop(name, None)
    return kept | {
        "TERM": "dumb",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        # Triton 3.9 announces a default of 3.10 on the first compilation.
        "PYTHONWARNINGS": "ignore:TRITON_DEFAULT_FP_FUSION is unset:UserWarning",
    }


class Shell:
    """One bash; each command's output goes to a file of its own."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._outputs = surroundings.root / "outputs"
        self._outputs.mkdir()
        self._count = 0
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=surroundings.work,
            env=surroundings.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[int | None, str]:
        """Run one command; return its exit code, None where it ended or outlived bash's patience."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._count += 1
        text, output = (self._outputs / f"{self._count}.{end}" for end in ("command", "output"))
        text.write_text(self._surroundings.from_document(command) + "\n", encoding="utf-8")
        timer = threading.Timer(LIMIT_S, self._kill, [signal.SIGKILL])
        timer.start()
        with suppress(BrokenPipeError):
            self._bash.stdin.write(
                f'eval "$(cat {text})" >{output} 2>&1 </dev/null; echo "ended $?"\n'
            )
            self._bash.stdin.flush()
        answer = self._bash.stdout.readline().split()
        timer.cancel()
        return (int(answer[1]) if answer else None), self.printed()

    def printed(self) -> str:
        """Return what the last command has printed so far."""
        output = self._outputs / f"{self._count}.output"
        found = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
        return self._surroundings.as_documented(found)

    def wait_until(self, holds: Callable[[str], bool]) -> str:
        """Return what the last command has printed when that is as it should be, or time is up."""
        deadline = time.monotonic() + LIMIT_S
        while not holds(printed := self.printed()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return printed

    def close(self) -> None:
        """End bash and whatever it left running."""
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._kill(signal.SIGTERM)
        deadline = time.monotonic() + 5
        while self._kill(0) and time.monotonic() < deadline:
            self._bash.poll()
            time.sleep(0.01)
        self._kill(signal.SIGKILL)
        self._bash.wait()
        assert self._bash.stdout is not None
        self._bash.stdout.close()

    def _kill(self, number: int) -> bool:
        try:
            os.killpg(self._bash.pid, number)
        except ProcessLookupError:
            return False
        return True
