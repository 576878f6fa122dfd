"""Why a launch found no stored config: the nearest records, and the fields that differ. Pure.

A record holds every field of its identity as text, so that what differs can be named.
"""

from __future__ import annotations

import difflib
import heapq
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from launchkit.configs import ConfigIdentity, TunedRecord, config_text
from launchkit.keys import KeyValue, LaunchKey, Toolchain
from launchkit.store.base import ConfigStore
from launchkit.store.lookup import Wanted

_MAX_NAMES = 20_000
"""Records that are looked through for a kernel of a similar name."""
_ABSENT = "nothing"
_HINTS = {
    "kernel.digest": "the kernel's source, a function that it calls or a global that it reads has changed",
    "device.name": "the same GPU under another spelling",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which a stored record is not what a launch wants, as text."""

    field: str
    """Such as ``kernel.digest``, ``device.name``, ``toolchain.triton``, ``key n``, ``dtype x_ptr``
    or ``config BLOCK=64 num_warps=4``."""
    stored: str
    wanted: str
    hint: str | None = None
    """What that means, where it is not plain."""

    @property
    def text(self) -> str:
        """For people: ``key n: stored 128, wanted 64``."""
        hint = "" if self.hint is None else f" ({self.hint})"
        return f"{self.field}: stored {self.stored}, wanted {self.wanted}{hint}"


@dataclass(frozen=True, slots=True)
class NearRecord:
    """A stored record, and in what it differs from what a launch wants; empty: in nothing."""

    record: TunedRecord
    differences: tuple[Difference, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        record = self.record
        return {
            "kernel": asdict(record.kernel),
            "device": asdict(record.device),
            "toolchain": asdict(record.toolchain),
            "key": record.key.text,
            "chosen": config_text(record.chosen),
            "differences": [asdict(each) for each in self.differences],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a store has instead of what a launch wants."""

    wanted: Wanted
    store: str
    """What the store is, and where."""
    records: int
    """Readable records of kernels of this name."""
    nearest: tuple[NearRecord, ...]
    """Those that differ least, the nearest first."""
    similar: tuple[str, ...] = ()
    """Names of kernels that are stored, where there is none of this name."""

    @property
    def found(self) -> bool:
        """Whether a record is exactly what is wanted."""
        return bool(self.nearest) and not self.nearest[0].differences

    @property
    def text(self) -> str:
        """For people: what is wanted, what there is, and what differs, a line each."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        wanted = self.wanted
        yield f"wanted: {wanted.kernel.name} on {wanted.device.name}, {wanted.toolchain.text}"
        yield f"  {wanted.key.text}" if wanted.key.text else "  no key values"
        if not self.records:
            yield f"nothing is stored of this kernel in {self.store}"
            if self.similar:
                yield f"  stored are: {', '.join(self.similar)}"
        for place, near in enumerate(self.nearest, start=1):
            yield f"{_ordinal(place)} of {self.records} stored: {config_text(near.record.chosen)}"
            yield from (f"  {each.text}" for each in near.differences)
            if not near.differences:
                yield "  is exactly what is wanted"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        wanted = self.wanted
        return {
            "store": self.store,
            "wanted": {
                "kernel": asdict(wanted.kernel),
                "device": asdict(wanted.device),
                "toolchain": asdict(wanted.toolchain),
                "key": wanted.key.text,
            },
            "found": self.found,
            "records": self.records,
            "nearest": [near.as_dict() for near in self.nearest],
            "similar": list(self.similar),
        }


def explain(
    store: ConfigStore,
    wanted: Wanted,
    limit: int = 3,
    configs: Sequence[ConfigIdentity] = (),
) -> Explanation:
    """Return the ``limit`` stored records that are nearest to what is wanted, and what differs.

    ``configs``: the kernel's live ones; a record without a result for one of them differs in it.
    Reads every record of the kernel's name: for people, not for launches. Whatever the store
    raises passes through.
    """
    count = 0

    def differing() -> Iterator[NearRecord]:
        nonlocal count
        for record in store.records_of(wanted.kernel.name):
            count += 1
            yield NearRecord(record, differences(record, wanted, configs))

    nearest = heapq.nsmallest(limit, differing(), key=lambda near: _weight(near.differences))
    similar = () if count else _similar(store, wanted.kernel.name)
    return Explanation(wanted, store.describe(), count, tuple(nearest), similar)


def differences(
    record: TunedRecord, wanted: Wanted, configs: Sequence[ConfigIdentity] = ()
) -> tuple[Difference, ...]:
    """Return every field in which a record is not what is wanted."""
    found = [
        *_field_differences("kernel", asdict(record.kernel), asdict(wanted.kernel)),
        *_field_differences("device", asdict(record.device), asdict(wanted.device)),
        *_toolchain_differences(record.toolchain, wanted.toolchain),
        *_key_differences(record.key, wanted.key),
        *_config_differences(record, configs),
    ]
    return tuple(found)


def _field_differences(
    part: str, stored: dict[str, Any], wanted: dict[str, Any]
) -> Iterator[Difference]:
    for name, value in wanted.items():
        if stored[name] != value:
            field = f"{part}.{name}"
            spelled = field != "device.name" or _plain(stored[name]) == _plain(value)
            yield _difference(field, stored[name], value, _HINTS.get(field) if spelled else None)


def _toolchain_differences(stored: Toolchain, wanted: Toolchain) -> Iterator[Difference]:
    for name, version in wanted.fields.items():
        theirs = stored.fields.get(name, _ABSENT)
        if theirs != version or not wanted.known:
            hint = None if wanted.known else "an unknown version equals no other"
            yield _difference(f"toolchain.{name}", theirs, version, hint)


def _key_differences(stored: LaunchKey, wanted: LaunchKey) -> Iterator[Difference]:
    values = {each.name: each for each in stored.values}
    live = {each.name: each for each in wanted.values}
    for name in dict.fromkeys([*live, *values]):
        if values.get(name) != live.get(name):
            yield _difference(f"key {name}", _value(values.get(name)), _value(live.get(name)))
    dtypes, live_dtypes = dict(stored.dtypes), dict(wanted.dtypes)
    for name in dict.fromkeys([*live_dtypes, *dtypes]):
        theirs, mine = dtypes.get(name, _ABSENT), live_dtypes.get(name, _ABSENT)
        if theirs != mine:
            yield _difference(f"dtype {name}", theirs or "none", mine or "none")


def _config_differences(
    record: TunedRecord, configs: Sequence[ConfigIdentity]
) -> Iterator[Difference]:
    known = {tuned.config: tuned for tuned in record.configs}
    for config in configs:
        if config not in known:
            yield _difference(f"config {config_text(config)}", "no result", "one")
    if configs and not any(tuned.ok for config, tuned in known.items() if config in configs):
        yield _difference("config list", "none of the live configs measured", "one")


def _difference(field: str, stored: object, wanted: object, hint: str | None = None) -> Difference:
    return Difference(field, _short(field, stored), _short(field, wanted), hint)


def _short(field: str, value: object) -> str:
    text = str(value)
    return text[:12] if field == "kernel.digest" else text


def _value(value: KeyValue | None) -> str:
    if value is None:
        return _ABSENT
    return repr(value.value) if value.type == "str" else f"{value.value} ({value.type})"


_WEIGHTS = {"device": 3.0, "toolchain": 2.0, "kernel": 4.0, "key": 5.0, "dtype": 6.0, "config": 1.0}


def _weight(found: Sequence[Difference]) -> float:
    """Weigh what differs: a part of the identity counts once, each field of it a little more."""
    parts = [re.split(r"[ .]", each.field)[0] for each in found]
    apart = sum(_number_gap(each) for each in found if each.field.startswith("key "))
    return sum(_WEIGHTS[part] for part in set(parts)) + len(parts) / 8 + apart / 64


def _number_gap(difference: Difference) -> float:
    """Return how unlike two key values are, 0 to 1, so that near sizes come first."""
    numbers = [re.match(r"-?\d+(\.\d+)?", text) for text in (difference.stored, difference.wanted)]
    values = [abs(float(match[0])) for match in numbers if match]
    if len(values) < 2 or not 0 < max(values) < math.inf:
        return 1.0
    return 1 - min(values) / max(values)


def _plain(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return "".join(word for word in words if word not in ("nvidia", "amd", "geforce"))


def _similar(store: ConfigStore, name: str) -> tuple[str, ...]:
    names = {record.kernel.name for record in islice(store.records(), _MAX_NAMES)}
    tail = name.rpartition(".")[2]
    same_tail = sorted(each for each in names if each.rpartition(".")[2] == tail)
    close = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.6)
    return tuple(dict.fromkeys([*same_tail, *close]))[:5]


def _ordinal(place: int) -> str:
    return "nearest" if place == 1 else f"nearest but {place - 1}"
