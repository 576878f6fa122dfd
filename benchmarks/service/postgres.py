"""A private PostgreSQL for the service's benchmarks and tests, gone when it is closed. No torch.

The distribution's packages (``apt-get install postgresql``) are enough: a cluster of its own is
made in a temporary directory, on a free port of the loopback, by an account that is not root.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from launchkit.benchmarks import host
from launchkit.errors import UsageError

_PLACES = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"
_ACCOUNTS = "postgres", "nobody"
_TRIES = 5
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "log_min_messages": "warning",
}


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, of the newest version that is installed."""
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return Path(os.path.realpath(on_path)).parent
    found = [folder for place in _PLACES for folder in Path("/").glob(place[1:])]
    found = [folder for folder in found if (folder / "initdb").exists()]
    return max(found, key=_version, default=None)


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name.rpartition("-")[2])
    except ValueError:
        return 0.0


class PrivatePostgres:
    """A PostgreSQL server of its own, with ``durable`` writes or with ones that a power cut may lose.

    ``stop`` and ``start`` may be called again and again: the databases and the port stay. As a
    context manager it is closed at the end. Raises UsageError where PostgreSQL is not installed
    or does not start.
    """

    def __init__(self, *, durable: bool = False, **settings: str) -> None:
        folder = programs()
        if folder is None:
            raise UsageError("PostgreSQL is not installed. Install it: apt-get install postgresql.")
        self._programs = folder
        self._account = _account()
        self.folder = Path(tempfile.mkdtemp(prefix="launchkit-postgres-"))
        self._secret = secrets.token_hex(12)
        self._server: subprocess.Popen[bytes] | None = None
        off = {} if durable else {"fsync": "off"}
        self._settings = {**_SETTINGS, **off, **settings}
        self.port = 0
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PrivatePostgres:
        """Return the running server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it, and remove what it wrote."""
        self.close()

    @property
    def secret(self) -> str:
        """The password in its URLs: no log and no answer may hold it."""
        return self._secret

    @property
    def version(self) -> str:
        """What the server is, as ``PostgreSQL 15.14``."""
        text = self._run("postgres", "--version").strip()
        return "PostgreSQL " + text.rpartition("(PostgreSQL) ")[2].split(" ")[0]

    @property
    def log(self) -> str:
        """What the server wrote to its log."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def url(self, database: str) -> str:
        """Return SQLAlchemy's URL of a database."""
        return f"postgresql+psycopg://launchkit:{self._secret}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Make a new, empty database, and return its URL."""
        name = f"launchkit_{secrets.token_hex(6)}"
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "launchkit"]
        self._run("createdb", *place, "--encoding=UTF8", "--template=template0", name)
        return self.url(name)

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        if self._server is not None:
            return
        for _ in range(_TRIES if self.port == 0 else 1):
            port = self.port or host.free_port()
            if self._started(port):
                self.port = port
                return
        raise UsageError(f"PostgreSQL did not start: {self.log[-1000:]}. Mend what it says.")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``fast`` ends connections in order, ``immediate`` as a crash does."""
        server, self._server = self._server, None
        if server is None:
            return
        self._run("pg_ctl", "stop", "-D", str(self._data), "-m", mode, "-w", "-t", "60")
        server.wait(60)

    def close(self) -> None:
        """Stop the server, and remove everything that it wrote."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _make(self) -> None:
        password = self.folder / "password"
        password.write_text(self._secret, encoding="ascii")
        if self._account is not None:
            shutil.chown(self.folder, self._account)
            shutil.chown(password, self._account)
        self._run(
            "initdb", "-D", str(self._data), "-U", "launchkit", "--auth=scram-sha-256",
            f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        password.unlink()

    def _started(self, port: int) -> bool:
        options = [
            part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")
        ]
        command = [
            str(self._programs / "postgres"),
            "-D",
            str(self._data),
            "-p",
            str(port),
            *options,
        ]
        with open(self.folder / "log", "ab") as log:
            self._server = subprocess.Popen(command, stderr=log, stdout=log, **self._as_account())
        try:
            self._wait(port)
        except UsageError:
            server, self._server = self._server, None
            if server.poll() is None:
                server.terminate()
            server.wait(60)
            return False
        return True

    def _wait(self, port: int) -> None:
        """Wait until connections are taken, or until the server has ended."""
        assert self._server is not None
        while self._server.poll() is None:
            ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
            if subprocess.run(ready, check=False).returncode == 0 and self._server.poll() is None:
                return
            time.sleep(0.02)
        raise UsageError("PostgreSQL ended at its start. Look into its log.")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._programs / program), *arguments], capture_output=True, text=True,
            check=False, **self._as_account(),
        )  # fmt: skip
        if done.returncode:
            reason = (done.stderr or done.stdout).strip()
            raise UsageError(f"PostgreSQL's {program} failed: {reason}. Mend what it names.")
        said: str = done.stdout
        return said

    def _as_account(self) -> dict[str, Any]:
        """Return how a program is started: PostgreSQL refuses to run as root."""
        home = {"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": self._secret}
        own: dict[str, Any] = {"cwd": self.folder, "env": home}
        if self._account is not None:
            entry = pwd.getpwnam(self._account)
            own |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": ()}
        return own


def _account() -> str | None:
    """Return the account that the server runs as, where it must not be this process's own."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in _ACCOUNTS if name in names), None)
    if found is None:
        raise UsageError("PostgreSQL does not run as root. Add an account: adduser postgres.")
    return found
