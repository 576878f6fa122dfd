"""Real processes of the config service, over SQLite or a PostgreSQL of their own. No torch."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from launchkit import clock
from launchkit.benchmarks import host
from launchkit.benchmarks.service.postgres import PrivatePostgres
from launchkit.errors import UsageError
from launchkit.service import auth, db, migrating
from launchkit.service.options import ServiceSettings
from launchkit.service.protocol import Scope

Kind: TypeAlias = Literal["sqlite", "postgresql"]
NAMESPACE = "bench"
_READY_S = 60.0


class Replica:
    """One ``launchkit serve`` on a port of the loopback that stays its own over restarts."""

    def __init__(self, database_url: str, folder: Path, options: Sequence[str] = ()) -> None:
        self._log = folder / f"replica-{len(list(folder.glob('replica-*')))}.log"
        self._database_url = database_url
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        """The process's number; UsageError where it does not run."""
        if self._process is None:
            raise UsageError("the server does not run. Start it.")
        return self._process.pid

    @property
    def url(self) -> str:
        """Where its namespace is, as ``open_store`` takes it."""
        return f"http://127.0.0.1:{self.port}/{NAMESPACE}"

    @property
    def log(self) -> str:
        """What it wrote so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the process and those below it."""
        return sum(host.resident_bytes(each) for each in (self.pid, *host.children(self.pid)))

    def start(self) -> None:
        """Start the process, and wait until it is ready. UsageError if it ends instead."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Start the process, and wait for nothing."""
        port = self.port or host.free_port()
        command = [
            sys.executable, "-m", "launchkit", "serve", "--host", "127.0.0.1", "--port", str(port),
            *self._options,
        ]  # fmt: skip
        # Not among the arguments, which every account of the machine may read.
        variables = {**os.environ, "LAUNCHKIT_DATABASE": self._database_url}
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=variables)
        self.port = port

    def wait_ready(self, within_s: float = _READY_S) -> None:
        """Wait until it says that it is ready."""
        stop_ns = clock.now_ns() + int(within_s * 1e9)
        while clock.now_ns() < stop_ns:
            if self._process is None or self._process.poll() is not None:
                raise UsageError(f"the server ended: {self.log[-2000:]}. Mend what it says.")
            if self.is_ready():
                return
            time.sleep(0.05)
        raise UsageError(f"the server was not ready in {within_s} s: {self.log[-2000:]}. See why.")

    def is_ready(self) -> bool:
        """Whether it says so now."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/readyz")[0] == 200
        return False

    def ask(
        self, method: str, path: str, token: str | None = None, body: bytes | None = None,
        deadline_s: float = 30.0, **headers: str,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Ask it once, over a connection of its own; returns status and body. OSError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=deadline_s)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def kill(self) -> None:
        """End it as a power cut does; what is below it, too."""
        process, self._process = self._process, None
        if process is not None:
            for each in (*host.children(process.pid), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            process.wait()

    def stop(self, within_s: float = 30.0) -> int:
        """Ask it to end in order, as a supervisor does; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise UsageError(f"the server did not end in {within_s} s. See its log.") from None


class Service:
    """Replicas over one database, with a token for each scope."""

    def __init__(
        self, database_url: str, folder: Path, replicas: int, options: Sequence[str] = ()
    ) -> None:
        self.database_url = database_url
        self.folder = folder
        self._tokens = make_tokens(database_url)
        self.replicas: list[Replica] = []
        try:
            for _ in range(replicas):
                self.replicas.append(Replica(database_url, folder, options))
                self.replicas[-1].begin()
            for replica in self.replicas:
                replica.wait_ready()
        except BaseException:
            self.close()
            raise

    @property
    def urls(self) -> list[str]:
        """Where each replica's namespace is."""
        return [replica.url for replica in self.replicas]

    @property
    def ports(self) -> list[int]:
        """Each replica's port."""
        return [replica.port for replica in self.replicas]

    @property
    def log(self) -> str:
        """What all replicas wrote."""
        return "".join(replica.log for replica in self.replicas)

    def token(self, scope: Scope) -> str:
        """Return the token of this scope in the namespace of the benchmarks."""
        return self._tokens[scope]

    def close(self) -> None:
        """End every replica."""
        for replica in self.replicas:
            replica.kill()


def make_tokens(database_url: str) -> dict[Scope, str]:
    """Make a token of each scope in the benchmarks' namespace, as ``launchkit serve token create`` does."""
    database = db.connect(ServiceSettings(database_url))
    try:
        migrating.prepare(database, migrate=True)
        scopes: tuple[Scope, ...] = ("read", "write", "admin")
        make = auth.create_token
        return {each: make(database, f"bench-{each}", each, (NAMESPACE,)) for each in scopes}
    finally:
        database.close()


@contextlib.contextmanager
def running(
    kind: Kind, replicas: int, options: Sequence[str] = (), *, durable: bool = True
) -> Iterator[tuple[Service, PrivatePostgres | None]]:
    """Give replicas over a new database, and its server where it has one; gone afterwards."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_ending_in_order())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="launchkit-")))
        postgres = None
        url = f"sqlite:///{folder / 'service.db'}"
        if kind == "postgresql":
            postgres = stack.enter_context(PrivatePostgres(durable=durable))
            url = postgres.create_database()
        service = Service(url, folder, replicas, options)
        stack.callback(service.close)
        yield service, postgres


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end the block as an error does: no server is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
