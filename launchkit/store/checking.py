"""Whether what is stored, and what is pinned, is as it should be. Used by the tools; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from launchkit.configs import TunedRecord, config_text
from launchkit.errors import BadDocumentError
from launchkit.store import collect
from launchkit.store.base import ConfigStore
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


def check_store(store: ConfigStore, policy: StalePolicy) -> Iterator[Finding]:
    """Yield what is wrong with a store: what cannot be read, stands elsewhere, or is behind."""
    health = store.examine()
    for file, problem in health.broken:
        yield Finding("broken", file, problem)
    if health.set_aside:
        advice = "Look what wrote them; launchkit configs gc --yes removes them."
        yield Finding("set-aside", health.place, f"{health.set_aside} broken documents. {advice}")
    records = list(store.records())
    yield from _misplaced(store)
    stale = Staleness(policy)
    stale.learn(records)
    for record in records:
        if (newer := stale.newer(record)) is not None:
            text = f"of {record.toolchain.text}, where there is {newer}. Tune it again, or gc."
            yield Finding("stale", place_text(record), text)


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
            yield Finding("unpinned", place_text(record), "it is stored, not pinned. Pin again.")


def place_text(record: TunedRecord) -> str:
    """Return a record's kernel, device and key for people."""
    return f"{record.kernel.name} · {record.device.name} · {record.key.text}"


def _pin_findings(
    pin: TunedRecord, stored: TunedRecord | None, newer: str | None
) -> Iterator[Finding]:
    place = place_text(pin)
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


def _misplaced(store: ConfigStore) -> Iterator[Finding]:
    """Yield records that stand in another file than their key leads to: no launch finds them."""
    for layer in getattr(store, "layers", (store,)):
        for path in layer.paths() if isinstance(layer, DirectoryStore) else ():
            with suppress(BadDocumentError, OSError):  # told as broken, or gone
                for record in collect.load(path).records:
                    if record.key.digest[:2] != path.stem:
                        text = "it stands in a file of other keys. Import it again, then remove it."
                        yield Finding("misplaced", f"{path}: {place_text(record)}", text)
