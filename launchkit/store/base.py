"""What a config store is, and the one that lives in memory. Between the leaves and dispatch."""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from launchkit.configs import TunedRecord, merge_records
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain

MissReason: TypeAlias = Literal[
    "absent",
    "toolchain",
    "bad-document",
    "newer-schema",
    "foreign",
    "unreadable",
    "unreachable",
    "slow",
    "refused",
    "bad-answer",
    "unsigned",
]
"""Why there is no record:

=============  ==================================================================
absent         nothing is stored
toolchain      only for other versions
bad-document   what is stored is not a valid document
newer-schema   it was written by a later launchkit, and is left in place
foreign        it is of another kernel, device or key
unreadable     the system refused to read it
unreachable    of a service: it is down, or has not answered lately
slow           of a service: no whole answer in time
refused        of a service: it answered with an error
bad-answer     of a service: it answered with what is no answer to this
unsigned       of a service: not signed by whom it should be
=============  ==================================================================
"""


@dataclass(frozen=True, slots=True)
class Miss:
    """No record, and why."""

    reason: MissReason


@dataclass(frozen=True)
class StoreHealth:
    """What was found where a store keeps its records."""

    place: str
    """What the store is, and where."""
    records: int
    """Records that can be read."""
    lasting: bool
    """Whether they are there for later processes."""
    unwritable: str | None = None
    """Why nothing can be written there; None: it can, or nobody knows before it is tried."""
    broken: tuple[tuple[str, str], ...] = ()
    """(file, what is wrong with it) of documents that are left out."""
    set_aside: int = 0
    """Broken documents that were renamed, for somebody to look at."""
    read_only: bool = False
    """Whether it was opened for reading only."""
    layers: tuple[StoreHealth, ...] = ()
    """The same of each layer, where it is made of some."""


class ConfigStore(abc.ABC):
    """Where tuned records are kept: four methods to write, the rest follow from them.

    What whoever writes a store promises: every method may be called from any thread, ``get`` and
    ``put`` in the middle of a launch. A broken entry is a miss and a failed write a False, both
    with a warning; neither raises. ``get`` may set what is broken aside, ``examine`` and
    ``records`` change nothing. What ``get`` returns is of exactly the identity that was asked
    for. Dispatch counts on none of it: what raises, or answers anything else, costs a launch its
    stored config and nothing more.
    """

    @abc.abstractmethod
    def get(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        """Return the record of exactly this identity, or why there is none."""

    @abc.abstractmethod
    def put(self, record: TunedRecord) -> bool:
        """Merge ``record`` into what is stored for its identity.

        True if it will be there for later processes; False if only this one can get it back.
        """

    def offer(self, record: TunedRecord) -> None:  # noqa: B027 - most stores have no use for it
        """Hear of a record that a layer before this one keeps; one that shares such, passes it on."""

    def put_all(self, records: Iterable[TunedRecord]) -> list[TunedRecord]:
        """Put each record; return those that will not be there for later processes.

        Neighbours that a store keeps together may cost it one write.
        """
        return [record for record in records if not self.put(record)]

    @abc.abstractmethod
    def records(self) -> Iterator[TunedRecord]:
        """Yield every readable record, in an order that does not change between calls."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Say in a few words what this store is and where it keeps its records."""

    @property
    def read_only(self) -> bool:
        """Whether it is for reading only: ``put`` then keeps nothing for later processes."""
        return False

    @property
    def is_remote(self) -> bool:
        """Whether looking through all of it takes a network."""
        return False

    def take_time(self) -> None:  # noqa: B027 - most stores never hurry
        """Hear that no launch waits for what is asked next: what hurries need not."""

    def records_of(self, kernel_name: str, key: LaunchKey | None = None) -> Iterator[TunedRecord]:
        """Yield every readable record of kernels of this declared name, in a stable order.

        Whatever their digest, device and toolchain; with ``key`` only those of this key. A
        store that can find them without going through all its records should.
        """
        named = (record for record in self.records() if record.kernel.name == kernel_name)
        return (record for record in named if key is None or record.key == key)

    def holds(self, record: TunedRecord) -> bool:
        """Tell whether ``get`` would return exactly this record; it counts no miss."""
        return self.get(*record.identity) == record

    def examine(self) -> StoreHealth:
        """Look at what is stored, and change nothing."""
        return StoreHealth(self.describe(), sum(1 for _ in self.records()), lasting=True)


class MemoryStore(ConfigStore):
    """Records in this process's memory: for tests, and for runs that must leave no trace."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[tuple[KernelId, DeviceId, LaunchKey], dict[Toolchain, TunedRecord]] = {}

    def get(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        """Return the record of exactly this identity, or why there is none."""
        with self._lock:
            versions = self._records.get((kernel, device, key))
            if versions is None:
                return Miss("absent")
            return versions.get(toolchain) or Miss("toolchain")

    def put(self, record: TunedRecord) -> bool:
        """Merge ``record`` into what is stored for its identity; always True."""
        with self._lock:
            versions = self._records.setdefault((record.kernel, record.device, record.key), {})
            old = versions.get(record.toolchain)
            versions[record.toolchain] = record if old is None else merge_records(old, record)
        return True

    def discard(self, record: TunedRecord) -> None:
        """Forget this record, unless another one has taken its place by now."""
        place = (record.kernel, record.device, record.key)
        with self._lock:
            versions = self._records.get(place, {})
            if versions.get(record.toolchain) == record:
                del versions[record.toolchain]
            if not versions:
                self._records.pop(place, None)

    def records(self) -> Iterator[TunedRecord]:
        """Yield every record, in the order in which they came."""
        with self._lock:
            found = [each for versions in self._records.values() for each in versions.values()]
        return iter(found)

    def describe(self) -> str:
        """Say what this store is."""
        return "memory of this process"

    def examine(self) -> StoreHealth:
        """Look at what is stored: it ends with the process."""
        return StoreHealth(self.describe(), sum(1 for _ in self.records()), lasting=False)
