"""The client of the config service: a config store whose records a fleet shares. Above the store.

It can only help. A lookup has a short deadline; a service that is down, slow or lying is a miss
with a reason, and is not asked for a while; what is tuned is sent in the background.
"""

from __future__ import annotations

import contextlib
import os
import re
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import get_args

from launchkit.configs import TunedRecord
from launchkit.errors import ServiceError, UsageError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain
from launchkit.service import protocol, signing
from launchkit.service.client import urls
from launchkit.service.client.at_exit import flush_at_exit
from launchkit.service.client.bulk import Bulk, Listing
from launchkit.service.client.leases import FleetFlights
from launchkit.service.client.link import Link, read_message
from launchkit.service.client.memory import ShortMemory
from launchkit.service.client.telling import Telling
from launchkit.service.client.transport import Answer
from launchkit.service.client.trust import Trust
from launchkit.service.client.write_behind import Sent, WriteBehind
from launchkit.service.client.writes import Writer, outcome
from launchkit.store import ConfigStore, MemoryStore, Miss, MissReason, StoreHealth
from launchkit.store.flights import Identity, Outcome

TIMEOUT_S, LEASE_S = 0.5, 30.0
"""How long a launch waits for a lookup, and for how long a killed holder keeps a lease."""
_LONGEST_S = 3600.0
_UNHURRIED_S, _WRITE_S = 60.0, 10.0
_ABSENT_S, _NEAR_S = 60.0, 60.0
_SILENT = {"unreachable", "slow", "refused"}
_stores: weakref.WeakSet[ServiceStore] = weakref.WeakSet()


class ServiceStore(ConfigStore):
    """The records of one namespace of a config service, as ``https://host:port/namespace`` names it.

    Without a ``token`` it is read-only; the token ``-`` writes without one, to a service that lets
    everybody write. With a ``secret`` only records count that were signed with
    it, and what is put is. ``copy`` keeps what the service gave, and answers while it is silent.
    ``counters`` counts hits, misses by reason, and warnings. Raises StoreError for a bad URL, and
    where httpcore is not installed; UsageError for a secret below 16 bytes, a token that no header
    can hold, and times that are none or that no service takes.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        secret: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
        lease_s: float = LEASE_S,
        copy: ConfigStore | None = None,
    ) -> None:
        _refuse_unusable(token, secret, timeout_s, lease_s)
        self._address = urls.parse(url)
        self._given = (token, timeout_s, lease_s)
        self._trust = Trust(self._address.text, self._address.namespace, secret)
        self._copy = copy
        self._begin()
        _stores.add(self)

    def _begin(self) -> None:
        """Start with nothing: no connection, no thread. A forked child does so too."""
        token, timeout_s, lease_s = self._given
        self._told = Telling()
        self._known = MemoryStore()
        self._etags: ShortMemory[str] = ShortMemory(3600.0)
        self._missing: ShortMemory[Miss] = ShortMemory(_ABSENT_S)
        self._near: ShortMemory[tuple[TunedRecord, ...]] = ShortMemory(_NEAR_S)
        self._link = Link(self._address, token, timeout_s)
        self._writer = Writer(self._link, self._trust)
        self._bulk = Bulk(self._link, self._trust, self._writer)
        self._queue = WriteBehind(self._send)
        self._flights = FleetFlights(self._link, self._queue, self._look, lease_s)
        self._bulk_s = timeout_s

    def get(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        """Return the record of exactly this identity, or why there is none."""
        identity = (kernel, device, toolchain, key)
        found: TunedRecord | Miss = self._known.get(*identity)
        if isinstance(found, Miss):
            found = self._missing.get(identity) or self._ask(identity)
        if isinstance(found, Miss) and found.reason in _SILENT and self._copy is not None:
            copied = self._copy.get(*identity)
            found = found if isinstance(copied, Miss) else copied
        self._told.count(f"miss {found.reason}" if isinstance(found, Miss) else "hit")
        return found

    def put(self, record: TunedRecord) -> bool:
        """Keep ``record`` in the copy, and send it in the background.

        True if later processes of this machine will have it whatever becomes of the service.
        """
        self._known.put(record)
        self.offer(record)
        return not self.read_only and self._copy is not None and self._copy.put(record)

    def offer(self, record: TunedRecord) -> None:
        """Send, in the background, a record that another layer keeps."""
        if self.read_only or not record.toolchain.known:
            return
        self._known.put(record)
        self._missing.forget(record.identity)
        flush_at_exit(_stores)
        if not self._queue.put(record):
            self._told.warn("queue", "tuned configs are not all sent to it. Send them with: launchkit "
                                "configs push.")  # fmt: skip

    def put_all(self, records: Iterable[TunedRecord]) -> list[TunedRecord]:
        """Send each record, and wait for it; return those that the service did not take."""
        given = list(records)
        if self.read_only:
            self._told.warn("token", "it is read without a token. Set LAUNCHKIT_SERVICE_TOKEN.")
            return given
        refused, problem = self._bulk.send(given, _UNHURRIED_S)
        if problem is not None:
            self._told.warn("put_all", str(problem))
        return refused

    def records(self) -> Iterator[TunedRecord]:
        """Yield every record that the service has, sorted; nothing, with a warning, if it fails."""
        yield from self._listed(None, max(self._bulk_s, _UNHURRIED_S))

    def records_of(self, kernel_name: str, key: LaunchKey | None = None) -> Iterator[TunedRecord]:
        """Yield every record of kernels of this name; what was listed is remembered for a minute.

        While the service is silent these are the copy's.
        """
        found = self._near.get(kernel_name)
        if found is None:
            found = self._listed(kernel_name, self._bulk_s)
            self._near.remember(kernel_name, found)
        mine = {record.identity: record for record in self._known.records_of(kernel_name)}
        both = {record.identity: record for record in found} | mine
        return (record for record in both.values() if key is None or record.key == key)

    def holds(self, record: TunedRecord) -> bool:
        """Tell whether ``get`` would return exactly this record; the service is not asked."""
        return self._known.holds(record) or (self._copy is not None and self._copy.holds(record))

    @property
    def counters(self) -> Counter[str]:
        """Hits, misses by reason, writes and leases by outcome, and warnings."""
        return self._told.counters

    @property
    def url(self) -> str:
        """The service's URL, with the namespace."""
        return self._address.text

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self._address.namespace

    @property
    def copy(self) -> ConfigStore | None:
        """Where what the service gave is kept on this machine."""
        return self._copy

    @property
    def read_only(self) -> bool:
        """Whether there is no token to write with."""
        return not self._link.has_token

    @property
    def is_remote(self) -> bool:
        """True."""
        return True

    def take_time(self) -> None:
        """Let listing take a minute: no launch waits for it."""
        self._bulk_s = _UNHURRIED_S

    def describe(self) -> str:
        """Say which service it is."""
        return f"config service {self._address.text}"

    def examine(self) -> StoreHealth:
        """Ask the service how it is."""
        try:
            status = self.status(max(2.0, self._link.timeout_s))
        except ServiceError as error:
            broken = ((self._address.text, str(error)),)
            return StoreHealth(self.describe(), 0, True, broken=broken, read_only=self.read_only)
        return StoreHealth(self.describe(), status.records, True, read_only=self.read_only)

    def status(self, timeout_s: float) -> protocol.StatusAnswer:
        """Return what the service says of itself. Raises ServiceError."""
        answer = self._link.ask("GET", "/status", timeout_s=timeout_s)
        if answer.status != 200:
            what = f"answered {answer.status} when asked for its status"
            raise self._link.error("bad-answer", what, answer.status)
        status: protocol.StatusAnswer = read_message(
            answer, protocol.StatusAnswer, self._address.text
        )
        return status

    def namespaces(self, timeout_s: float) -> dict[str, int]:
        """Return how many records each namespace has that the token may read. ServiceError."""
        answer = self._link.ask("GET", f"{protocol.API}/namespaces", timeout_s=timeout_s)
        found = read_message(answer, protocol.Namespaces, self._address.text)
        return {each.name: each.records for each in found.namespaces}

    def download(self) -> Listing:
        """Return every record that the service has, and how many do not count. ServiceError."""
        return self._bulk.listed(None, _UNHURRIED_S)

    def snapshot(self, digest: str) -> tuple[TunedRecord, ...]:
        """Return the records of an immutable snapshot. Raises ServiceError."""
        return self._bulk.snapshot(digest, _UNHURRIED_S)

    def flush(self, timeout_s: float) -> int:
        """Wait, at most so long, until all is sent that was put; return how much is not."""
        return self._queue.flush(timeout_s)

    def close(self) -> None:
        """Send nothing any more, and let go of every connection; records stay known."""
        self._queue.close()
        self._link.close()

    @contextlib.contextmanager
    def enter_flight(self, identity: Identity, timeout_s: float) -> Iterator[Outcome]:
        """Hold the fleet's lease for a key, or wait until its holder's record has come."""
        if self.read_only or not identity[2].known:
            yield "alone"
            return
        flush_at_exit(_stores)
        if self._missing.get(identity) is None and self._etags.get(identity) is None:
            # A layer before this one knows a record that does not do. What the service has now
            # is not yet what others will have tuned.
            with contextlib.suppress(ServiceError):
                self._look(identity)
        with self._flights.enter(identity, timeout_s) as entered:
            self._told.count(f"lease {entered}")
            yield entered

    def _ask(self, identity: Identity) -> TunedRecord | Miss:
        """Ask the service; whatever goes wrong is a miss."""
        if not identity[2].known:
            return Miss("toolchain")
        try:
            found = self._fetch(identity, self._link.timeout_s, in_flight=False)
        except ServiceError as error:
            self._warn(error.reason, error, "Launches go on without it.")
            found = _miss_of(error)
        if isinstance(found, Miss) and found.reason not in ("unreachable", "slow"):
            self._missing.remember(identity, found)
        return found or Miss("absent")

    def _warn(self, cause: str, error: ServiceError, more: str) -> None:
        """Warn once of a cause; a service that does not answer is one, whatever was asked."""
        silent = error.reason in ("unreachable", "slow")
        self._told.warn("silent" if silent else cause, f"{error} {more}".rstrip())

    def _look(self, identity: Identity) -> bool:
        """Ask anew, with more time; True if a record came that was not known here."""
        try:
            found = self._fetch(identity, self._flights.patience_s, in_flight=True)
        except ServiceError as error:
            if error.reason in (*_SILENT, "bad-answer"):
                raise
            return False
        if isinstance(found, Miss):
            self._missing.remember(identity, found)
        return isinstance(found, TunedRecord)

    def _fetch(
        self, identity: Identity, timeout_s: float, *, in_flight: bool
    ) -> TunedRecord | Miss | None:
        """Return the record, or why there is none; None, in flight: it is the one known here."""
        wanted = protocol.wanted_record(identity)
        path = protocol.wanted_path(self._address.namespace, wanted)
        etag = self._etags.get(identity) if in_flight else None
        with self._link.guarded(self._link.reads, patient=in_flight):
            answer = self._link.ask(
                "GET",
                protocol.of_toolchain(path, wanted.toolchain),
                timeout_s=timeout_s,
                limit_bytes=protocol.DOCUMENT_LIMIT_BYTES,
                headers={} if etag is None else {"If-None-Match": protocol.quoted(etag)},
            )
            if answer.status == 304 and etag is not None:
                return None
            if answer.status != 200:
                return self._missed(answer)
            record = self._trust.record(answer, identity)
        self._remember(record, protocol.unquoted(answer.headers.get("etag", "")))
        return record

    def _missed(self, answer: Answer) -> Miss:
        told = self._link.told(answer)
        if answer.status == 404 and told is not None and told.code in ("absent", "toolchain"):
            return Miss("absent" if told.code == "absent" else "toolchain")
        if told is None:
            raise self._link.error("bad-answer", f"gave no record ({answer.status})", answer.status)
        raise self._link.refusal(answer, "gave no record")

    def _remember(self, record: TunedRecord, etag: str | None) -> None:
        before = self._known.get(*record.identity)
        if isinstance(before, TunedRecord):
            self._known.discard(before)
        self._known.put(record)
        self._missing.forget(record.identity)
        if etag is not None:
            self._etags.remember(record.identity, etag)
        if self._copy is not None:
            self._queue.then((record.identity, "copy"), lambda: self._keep(record))

    def _keep(self, record: TunedRecord) -> None:
        if self._copy is not None and not self._copy.holds(record):
            self._copy.put(record)

    def _send(self, record: TunedRecord) -> Sent:
        """Give a record to the service, for the queue."""
        try:
            self._writer.send(record, max(_WRITE_S, self._link.timeout_s))
        except ServiceError as error:
            sent = outcome(error)
            self._told.count(f"write {error.reason}")
            self._warn(f"write {sent}", error, f"(while sending a record of {record.kernel.name})")
            return sent
        self._flights.published(record.identity)
        return "done"

    def _listed(self, kernel_name: str | None, timeout_s: float) -> tuple[TunedRecord, ...]:
        try:
            with self._link.guarded(self._link.reads, patient=timeout_s >= _UNHURRIED_S):
                found = self._bulk.listed(kernel_name, timeout_s)
        except ServiceError as error:
            self._warn("list", error, "")
            if kernel_name is None or self._copy is None or error.reason not in _SILENT:
                return ()
            return tuple(self._copy.records_of(kernel_name))
        if found.unsigned:
            self._told.warn("unsigned", f"{found.unsigned} records of the {self.describe()} do not count: "
                                   "they are not signed with this LAUNCHKIT_SERVICE_KEY.")  # fmt: skip
        return found.records


def _refuse_unusable(
    token: str | None, secret: bytes | None, timeout_s: float, lease_s: float
) -> None:
    if secret is not None and len(secret) < signing.LEAST_SECRET_BYTES:
        raise UsageError(
            f"the signing key is shorter than {signing.LEAST_SECRET_BYTES} bytes. Give a random one."
        )
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise UsageError("the token is not one word of plain ASCII. Give it as it was shown.")
    if not 0 < timeout_s <= _LONGEST_S:
        raise UsageError(f"no launch waits {timeout_s} s. Give 0 to {_LONGEST_S:g} s.")
    shortest_s, longest_s = protocol.LEASE_SECONDS
    if not shortest_s <= lease_s <= longest_s:
        raise UsageError(
            f"no lease is for {lease_s} s. Give from {shortest_s:g} to {longest_s:g} s."
        )


def _miss_of(error: ServiceError) -> Miss:
    known = {reason: reason for reason in get_args(MissReason)}
    return Miss(known.get(error.reason, "refused"))


def _begin_again() -> None:
    for store in list(_stores):
        store._begin()


os.register_at_fork(after_in_child=_begin_again)
