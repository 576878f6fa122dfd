"""Several config stores as one, asked in order. Between base.py and whoever opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from launchkit.configs import TunedRecord
from launchkit.errors import UsageError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain
from launchkit.store.base import ConfigStore, MemoryStore, Miss, StoreHealth


class LayeredStore(ConfigStore):
    """The records of several stores: ``layers`` in order of asking, the first hit is the answer.

    Only the first layer that is not read-only is written to, and the layers behind it are offered
    what it was given, for a service to share; a hit below it is not copied up, so
    that what a share corrects is seen by everyone at their next start. Where every layer is
    read-only, what is put lasts as long as the process. A layer that is layered itself is taken
    apart. Raises UsageError for no layer at all.
    """

    def __init__(self, layers: Sequence[ConfigStore]) -> None:
        self.layers: tuple[ConfigStore, ...] = tuple(chain.from_iterable(map(_flat, layers)))
        if not self.layers:
            raise UsageError("a layered store has no layer. Give it at least one store.")
        self._kept = MemoryStore()

    @property
    def writable(self) -> ConfigStore | None:
        """The layer that is written to; None where all are read-only."""
        return next((layer for layer in self.layers if not layer.read_only), None)

    @property
    def read_only(self) -> bool:
        """Whether every layer is."""
        return self.writable is None

    def get(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        """Return the first layer's record of this identity, or why there is none.

        Of several reasons it is the most useful: another toolchain's record rather than a file
        that is broken, and that rather than nothing.
        """
        misses = []
        for layer in self._asked():
            found = layer.get(kernel, device, toolchain, key)
            if not isinstance(found, Miss):
                return found
            misses.append(found)
        return min(misses, key=_telling)

    def put(self, record: TunedRecord) -> bool:
        """Merge ``record`` into the first layer that is not read-only; False if there is none."""
        writable = self.writable
        if writable is None:
            self._kept.put(record)
            return False
        kept = writable.put(record)
        for layer in self._behind(writable):
            layer.offer(record)
        return kept

    def put_all(self, records: Iterable[TunedRecord]) -> list[TunedRecord]:
        """Put each record as ``put`` does; return those that only this process can get back."""
        writable = self.writable
        if writable is None:
            return super().put_all(records)
        given = list(records)
        for layer in self._behind(writable):
            for record in given:
                layer.offer(record)
        return writable.put_all(given)

    def records(self) -> Iterator[TunedRecord]:
        """Yield every readable record, each identity once: the upper layer's."""
        return self._once(lambda layer: layer.records())

    def records_of(self, kernel_name: str, key: LaunchKey | None = None) -> Iterator[TunedRecord]:
        """Yield every readable record of kernels of this name (and key), each identity once."""
        return self._once(lambda layer: layer.records_of(kernel_name, key))

    def holds(self, record: TunedRecord) -> bool:
        """Tell whether some layer has exactly this record."""
        return any(layer.holds(record) for layer in self._asked())

    @property
    def is_remote(self) -> bool:
        """Whether some layer is."""
        return any(layer.is_remote for layer in self.layers)

    def take_time(self) -> None:
        """Let every layer take its time."""
        for layer in self.layers:
            layer.take_time()

    def where(self, record: TunedRecord) -> str:
        """Say in a few words which layer has this record; the empty text if none has, by now."""
        layer = next((each for each in self._asked() if each.holds(record)), None)
        return "" if layer is None else layer.describe()

    def describe(self) -> str:
        """Say what the layers are."""
        return ", then ".join(layer.describe() for layer in self.layers)

    def examine(self) -> StoreHealth:
        """Look at every layer, and change none."""
        found = tuple(layer.examine() for layer in self.layers)
        written = next((each for each in found if not each.read_only), None)
        return StoreHealth(
            self.describe(),
            sum(each.records for each in found)
            if self.is_remote
            else sum(1 for _ in self.records()),
            lasting=any(each.lasting for each in found) if written is None else written.lasting,
            unwritable=None if written is None else written.unwritable,
            broken=tuple(chain.from_iterable(each.broken for each in found)),
            set_aside=sum(each.set_aside for each in found),
            read_only=written is None,
            layers=found,
        )

    def _behind(self, writable: ConfigStore) -> tuple[ConfigStore, ...]:
        return self.layers[self.layers.index(writable) + 1 :]

    def _asked(self) -> tuple[ConfigStore, ...]:
        return (self._kept, *self.layers) if self.read_only else self.layers

    def _once(
        self, listing: Callable[[ConfigStore], Iterator[TunedRecord]]
    ) -> Iterator[TunedRecord]:
        seen = set()
        for layer in self._asked():
            for record in listing(layer):
                if record.identity not in seen:
                    seen.add(record.identity)
                    yield record


class ReadOnlyStore(ConfigStore):
    """Another store, of which nothing but reading is asked; what is put lasts as long as this."""

    def __init__(self, store: ConfigStore) -> None:
        self._store = store
        self._kept = MemoryStore()

    @property
    def read_only(self) -> bool:
        """True."""
        return True

    def get(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        """Return the record of exactly this identity, or why there is none."""
        found = self._kept.get(kernel, device, toolchain, key)
        if isinstance(found, Miss):
            return self._store.get(kernel, device, toolchain, key)
        return found

    def put(self, record: TunedRecord) -> bool:
        """Keep ``record`` for this process alone; always False."""
        self._kept.put(record)
        return False

    def records(self) -> Iterator[TunedRecord]:
        """Yield every readable record of the store."""
        return self._store.records()

    def records_of(self, kernel_name: str, key: LaunchKey | None = None) -> Iterator[TunedRecord]:
        """Yield every readable record of kernels of this name (and key)."""
        return self._store.records_of(kernel_name, key)

    @property
    def is_remote(self) -> bool:
        """Whether the store is."""
        return self._store.is_remote

    def take_time(self) -> None:
        """Let the store take its time."""
        self._store.take_time()

    def holds(self, record: TunedRecord) -> bool:
        """Tell whether ``get`` would return exactly this record; it counts no miss."""
        return self._kept.holds(record) or self._store.holds(record)

    def describe(self) -> str:
        """Say what the store is."""
        return f"{self._store.describe()} (read-only)"

    def examine(self) -> StoreHealth:
        """Look at what is stored, and change nothing."""
        found = self._store.examine()
        return replace(found, place=self.describe(), read_only=True, unwritable=None)


def _flat(store: ConfigStore) -> Sequence[ConfigStore]:
    return store.layers if isinstance(store, LayeredStore) else (store,)


def _telling(miss: Miss) -> int:
    return {"toolchain": 0, "absent": 2}.get(miss.reason, 1)
