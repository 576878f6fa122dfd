"""A config service in this process that keeps to the protocol, until it is told to misbehave."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from launchkit.configs import TunedRecord, merge_records
from launchkit.service import protocol, signing
from launchkit.service.client import store
from launchkit.store import bundle, document

TOKEN = "a-token-of-the-team"


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """record, lookup, leases, bundle, snapshots, status or readyz."""
        parts = self.path.split("/")
        named = parts[4] if len(parts) > 4 else parts[-1]
        return "record" if named == "records" else named


@dataclass
class Said:
    """One answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        """As it goes over the network."""
        headers = {"Content-Length": str(len(self.body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} -", *(f"{n}: {v}" for n, v in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + self.body


Misbehaviour = Callable[[Asked, socket.socket], "Said | bytes | None"]
"""Gives what is sent instead, or None for nothing: whatever it sent itself is then all."""


def json_said(status: int, value: object, **headers: str) -> Said:
    return Said(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


def error(status: int, code: str, **more: object) -> Said:
    headers = more.pop("headers", {})
    return json_said(status, {"code": code, "message": f"it is {code}.", **more}, **headers)


class FakeService:
    """Listens on a free port of the loopback until ``close``; ``misbehave`` changes its ways."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.records: dict[tuple[str, str], tuple[TunedRecord, str | None]] = {}
        self.leases: dict[str, tuple[str, float]] = {}
        self.granted: Counter[str] = Counter()
        self.snapshots: dict[str, bytes] = {}
        self.misbehave: dict[str, Misbehaviour] = {}
        self.up = True
        self._lock = threading.RLock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/team"

    def close(self) -> None:
        """Let go of everything at once, as a killed server does."""
        self.up = False
        for each in [self._listener, *list(self._open)]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def stored(self) -> list[TunedRecord]:
        with self._lock:
            return [record for record, _ in self.records.values()]

    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def counts(self) -> Counter[str]:
        """Requests by method and kind."""
        return Counter(f"{each.method} {each.kind}" for each in list(self.asked))

    def hold(self, record: TunedRecord, secret: bytes | None = None) -> None:
        """Have a record."""
        parts = "/".join(protocol.record_parts(record.kernel, record.device, record.key))
        signature = None if secret is None else signing.sign(secret, "team", record)
        with self._lock:
            self.records[parts, record.toolchain.triton] = (record, signature)

    def _serve(self) -> None:
        while self.up:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(connection)
            threading.Thread(target=self._connected, args=(connection,), daemon=True).start()

    def _connected(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ValueError),
            connection,
            connection.makefile("rb") as file,
        ):
            while (asked := _read(file)) is not None:
                self.asked.append(asked)
                said = self._said(asked, connection)
                if said is None:
                    break
                connection.sendall(said if isinstance(said, bytes) else said.raw)
        self._open.discard(connection)

    def _said(self, asked: Asked, connection: socket.socket) -> Said | bytes | None:
        for what in (f"{asked.method} {asked.kind}", asked.kind, "everything"):
            if what in self.misbehave:
                return self.misbehave[what](asked, connection)
        return self.behave(asked)

    def behave(self, asked: Asked) -> Said:
        """Answer as a real one would."""
        with self._lock:
            answers = {
                "record": self._record, "leases": self._lease, "bundle": self._bundle,
                "snapshots": self._snapshot, "lookup": self._lookup,
            }  # fmt: skip
            if asked.kind in ("readyz", "status"):
                return json_said(200, {
                    "version": "1", "schema_version": "1", "database": "sqlite", "uptime_s": 1.0,
                    "namespaces": 1, "records": len(self.records), "leases": len(self.leases),
                    "snapshots": 0})  # fmt: skip
            if asked.method != "GET" and asked.kind != "lookup" and (
                asked.headers.get("authorization") != f"Bearer {TOKEN}"
            ):  # fmt: skip
                return error(401, "unauthenticated")
            return answers[asked.kind](asked)

    def _record(self, asked: Asked) -> Said:
        place = (asked.path.split("/records/")[1], asked.query["toolchain"])
        stored, signature = self.records.get(place, (None, None))
        if asked.method == "PUT":
            return self._put(asked, place, stored, signature)
        if stored is None:
            others = any(parts == place[0] for parts, _ in self.records)
            return error(404, "toolchain" if others else "absent")
        body = signing.body(stored)
        headers = {"ETag": f'"{signing.etag(body)}"'}
        if asked.headers.get("if-none-match") == headers["ETag"]:
            return Said(304, b"", headers)
        if signature is not None:
            headers[protocol.HEADER_SIGNATURE] = signature
        return Said(200, body, headers)

    def _put(self, asked, place, stored, signature) -> Said:
        (new,) = document.parse(asked.body, source="a test").records
        etag = None if stored is None else f'"{signing.etag(signing.body(stored))}"'
        if asked.headers.get("if-match", etag) != etag or (
            stored is not None and asked.headers.get("if-none-match") == "*"
        ):
            return error(412, "changed")
        signed = asked.headers.get("launchkit-signature")
        if stored is not None and signed and "if-match" not in asked.headers:
            return error(428, "precondition-required")
        if signature is not None and signed is None:
            return error(409, "signed")
        merged = new if stored is None or signed else merge_records(stored, new)
        self.records[place] = (merged, signed)
        tag = signing.etag(signing.body(merged))
        return json_said(200, {"etag": tag, "created": stored is None, "changed": True})

    def _lease(self, asked: Asked) -> Said:
        name = asked.path.split("/leases/")[1].split("/")[0]
        mine = asked.headers["launchkit-lease"]
        holder, until = self.leases.get(name, ("", 0.0))
        free = holder in ("", mine) or time.monotonic() >= until
        if asked.path.endswith("/complete") or asked.method == "DELETE":
            if holder != mine:
                return error(409, "lease-lost")
            del self.leases[name]
            return Said(204)
        if not free or (asked.method == "PUT" and holder != mine):
            state = {"holder": "another", "expires_in_s": until - time.monotonic(),
                     "retry_after_s": 0.05}  # fmt: skip
            return error(409, "lease-held", lease=state)
        ttl_s = json.loads(asked.body)["ttl_s"]
        self.leases[name] = (mine, time.monotonic() + ttl_s)
        self.granted[name] += asked.method == "POST"
        return json_said(201, {"token": mine, "expires_in_s": ttl_s})

    def _bundle(self, asked: Asked) -> Said:
        if asked.method == "GET":
            name = asked.query.get("kernel")
            found = [r for r in self.stored() if name in (None, r.kernel.name)]
            return Said(200, bundle.dump(found))
        found = bundle.parse(asked.body, source="a test").records
        for record in found:
            self.hold(record)
        counts = {"records": len(found), "created": len(found), "changed": 0, "unchanged": 0}
        return json_said(200, {**counts, "refused": 0})

    def _lookup(self, asked: Asked) -> Said:
        answers = []
        for each in json.loads(asked.body)["wanted"]:
            parts = "/".join(each[n] for n in ("kernel", "digest", "device", "key_hash"))
            record, signature = self.records.get((parts, each["toolchain"]), (None, None))
            if record is None:
                answers.append({"missed": "absent"})
            else:
                body = json.loads(signing.body(record))
                answers.append({"document": body, "signature": signature})
        return json_said(200, {"answers": answers})

    def _snapshot(self, asked: Asked) -> Said:
        data = self.snapshots.get(asked.path.rpartition("/")[2])
        return error(404, "no-snapshot") if data is None else Said(200, data)


def _read(file) -> Asked | None:
    line = file.readline(65536).decode()
    if not line:
        return None
    method, target, _ = line.split(" ")
    headers = {}
    while (line := file.readline(65536).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", 0))
    body = file.read(length)
    if len(body) < length:
        return None
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return Asked(method, unquote(parts.path), query, headers, body)


@contextlib.contextmanager
def running() -> Iterator[FakeService]:
    """A service for the time of a ``with`` block."""
    service = FakeService()
    try:
        yield service
    finally:
        service.close()
        for each in list(store._stores):
            each.close()


# -- ways to misbehave


def hangs(asked: Asked, connection: socket.socket) -> None:
    """Accept, and never answer."""
    connection.recv(1)


def drips(answer: Said, seconds_per_byte: float = 0.05) -> Misbehaviour:
    """A byte at a time."""

    def send(asked: Asked, connection: socket.socket) -> None:
        for byte in answer.raw:
            connection.sendall(bytes([byte]))
            time.sleep(seconds_per_byte)

    return send


def always(answer: Said | bytes) -> Misbehaviour:
    return lambda asked, connection: answer


def disconnects(asked: Asked, connection: socket.socket) -> None:
    """Close without a word."""
