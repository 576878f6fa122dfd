"""Whether what is stored, and what is pinned, is as it should be. Used by the tools; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launchkit.configs import TunedRecord, config_text
from launchkit.errors import BadDocumentError
from launchkit.store import document
from launchkit.store.base import ConfigStore, StoreHealth
from launchkit.store.comparing import changed_winner
from launchkit.store.directory import DirectoryStore
from launchkit.store.staleness import Staleness, StalePolicy


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    """broken, misplaced, set-aside, stale, lock, pin-gone, pin-outdated or unpinned."""
    place: str
    """The file, or the kernel, device and key."""
    text: str
    """What is wrong, and what to do."""


def check_store(store: ConfigStore, health: StoreHealth, policy: StalePolicy) -> Iterator[Finding]:
    """Yield what is wrong with a store: what cannot be read, stands elsewhere, or is behind.

    ``health``: what ``store.examine()`` has found.
    """
    for file, problem in health.broken:
        yield Finding("broken", file, problem)
    if health.set_aside:
        advice = "Look what wrote them; launchkit configs gc --yes removes them."
        yield Finding("set-aside", health.place, f"{health.set_aside} broken documents. {advice}")
    records: list[TunedRecord] = []
    for path, record in _placed_records(store):
        records.append(record)
        if path is not None and record.key.digest[:2] != path.stem:
            text = "it stands in a file of other keys. Import it again, then remove it."
            yield Finding("misplaced", f"{path}: {_place_text(record)}", text)
    stale = Staleness(policy)
    stale.learn(records)
    for record in records:
        if (newer := stale.newer(record)) is not None:
            text = f"of {record.toolchain.text}, where there is {newer}. Tune it again, or gc."
            yield Finding("stale", _place_text(record), text)


def check_pins(
    pins: Iterable[TunedRecord], records: Iterable[TunedRecord], policy: StalePolicy
) -> Iterator[Finding]:
    """Yield in what a lock file is not up to date with what is stored."""
    stored = {record.identity: record for record in records}
    pinned = list(pins)
    stale = Staleness(policy)
    stale.learn(stored.values())
    for pin in pinned:
        yield from _pin_findings(pin, stored.get(pin.identity), stale.newer(pin))
    has = {(pin.kernel, pin.device, pin.key) for pin in pinned}
    for record in stored.values():
        place = (record.kernel, record.device, record.key)
        if place not in has:
            has.add(place)
            yield Finding("unpinned", _place_text(record), "it is stored, not pinned. Pin again.")


def _place_text(record: TunedRecord) -> str:
    """Return a record's kernel, device and key for people."""
    return f"{record.kernel.name} · {record.device.name} · {record.key.text}"


def _pin_findings(
    pin: TunedRecord, stored: TunedRecord | None, newer: str | None
) -> Iterator[Finding]:
    place = _place_text(pin)
    if stored is None:
        yield Finding("pin-gone", place, "the store no longer has it. Pin again, or tune it.")
    elif stored.chosen != pin.chosen:
        ratio = changed_winner(pin, stored).ratio
        by = "" if ratio is None else f" ({ratio:.2f} of its time)"
        winner = config_text(stored.chosen)
        yield Finding("pin-outdated", place, f"the store now chooses {winner}{by}. Pin again.")
    if newer is not None:
        text = f"it is of {pin.toolchain.text}, where there is {newer}. Tune it, and pin again."
        yield Finding("pin-outdated", place, text)


def _placed_records(store: ConfigStore) -> Iterator[tuple[Path | None, TunedRecord]]:
    """Yield every record of every layer, with its file where it has one."""
    for layer in getattr(store, "layers", (store,)):
        if not isinstance(layer, DirectoryStore):
            yield from ((None, record) for record in layer.records())
            continue
        for path in layer.paths():
            with suppress(BadDocumentError, OSError):  # told as broken, or gone
                yield from ((path, record) for record in document.read(path).records)
