"""Why a launch found no stored config: the nearest records, and the fields that differ. Pure.

Every field of a record's identity has a name and a text, so that what differs can be named.
"""

from __future__ import annotations

import difflib
import heapq
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from launchkit.configs import ConfigIdentity, TunedRecord, config_text
from launchkit.keys import DeviceId, KernelId, KeyValue, LaunchKey, Toolchain, same_product
from launchkit.printing import printable
from launchkit.store.base import ConfigStore
from launchkit.store.lookup import Wanted

_MAX_NAMES = 20_000
"""Records that are looked through for a kernel of a similar name."""
_ABSENT = "nothing"
_UNKNOWN = "unknown"
_NO_DTYPE = "none"
_SOURCE = "the kernel's source, a function that it calls or a global that it reads has changed"


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
        """For people: ``key n: stored 128 (int), wanted 64 (int)``."""
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

    kernel: str
    """The declared name that was looked for."""
    wanted: Mapping[str, str]
    """The fields that were compared, and their texts."""
    store: str
    """What the store is, and where."""
    records: int
    """Readable records of kernels of this name."""
    nearest: tuple[NearRecord, ...]
    """Those that differ least, the nearest first."""
    similar: tuple[str, ...] = ()
    """Names of kernels that are stored, where there is none of this name."""
    identity: tuple[KernelId, DeviceId, Toolchain, LaunchKey] | None = None
    """What ``ConfigStore.get`` takes to look up what is wanted; None where not all of it is known."""

    @property
    def found(self) -> bool:
        """Whether a record is exactly what is wanted."""
        return bool(self.nearest) and not self.nearest[0].differences

    @property
    def text(self) -> str:
        """For people: what is wanted, what there is, and what differs, a line each."""
        return "\n".join(map(printable, self._lines()))

    def __str__(self) -> str:
        """Return ``text``."""
        return self.text

    def _lines(self) -> Iterator[str]:
        yield f"wanted: {self.kernel}"
        for name, text in self.wanted.items():
            if not (name.startswith("dtype ") and text == _NO_DTYPE):
                yield f"  {name}: {text}"
        if not self.records:
            yield f"nothing is stored of this kernel in the {self.store}"
            if self.similar:
                yield f"  stored are: {', '.join(self.similar)}"
        for place, near in enumerate(self.nearest):
            yield f"{_ordinal(place)} of {self.records} stored: {config_text(near.record.chosen)}"
            yield from (f"  {each.text}" for each in near.differences)
            if not near.differences:
                yield "  differs in nothing"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "store": self.store,
            "kernel": self.kernel,
            "wanted": dict(self.wanted),
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

    ``configs``: the kernel's live ones; a record without a result for one of them differs in it,
    and a pinned one where its config is none of them.
    Reads every record of the kernel's name: for people, not for launches. Whatever the store
    raises passes through.
    """
    fields = identity_fields(*wanted.identity)
    found = _explanation(store, wanted.kernel.name, fields, limit, configs, whole=True)
    return replace(found, identity=wanted.identity)


def explain_fields(
    store: ConfigStore, kernel_name: str, fields: Mapping[str, str], limit: int = 3
) -> Explanation:
    """As ``explain``, where only some fields are known: the others are not compared.

    ``fields``: as ``identity_fields`` names and words them.
    """
    return _explanation(store, kernel_name, fields, limit, (), whole=False)


def _explanation(
    store: ConfigStore,
    kernel_name: str,
    fields: Mapping[str, str],
    limit: int,
    configs: Sequence[ConfigIdentity],
    whole: bool,
) -> Explanation:
    count = 0

    def compared() -> Iterator[NearRecord]:
        nonlocal count
        for record in store.records_of(kernel_name):
            count += 1
            yield NearRecord(record, tuple(_differences(record, fields, configs, whole)))

    nearest = heapq.nsmallest(limit, compared(), key=lambda near: _weight(near.differences))
    similar = () if count else _similar(store, kernel_name)
    return Explanation(kernel_name, dict(fields), store.describe(), count, tuple(nearest), similar)


def identity_fields(
    kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
) -> dict[str, str]:
    """Return each field of an identity by name, as text; the kernel's name is left out."""
    fields = {"kernel.digest": kernel.digest[:12]}
    fields |= {f"device.{name}": str(value) for name, value in asdict(device).items()}
    fields |= {f"toolchain.{name}": version for name, version in toolchain.fields.items()}
    fields |= {f"key {value.name}": value_text(value) for value in key.values}
    fields |= {f"dtype {name}": dtype or _NO_DTYPE for name, dtype in key.dtypes}
    return fields


def value_text(value: KeyValue) -> str:
    """Return a key value with its type: ``64 (int)``, ``'fast'``."""
    return repr(value.value) if value.type == "str" else f"{value.value} ({value.type})"


def _differences(
    record: TunedRecord,
    wanted: Mapping[str, str],
    configs: Sequence[ConfigIdentity],
    whole: bool,
) -> Iterator[Difference]:
    stored = identity_fields(*record.identity)
    for field in dict.fromkeys([*wanted, *stored]) if whole else wanted:
        theirs, mine = stored.get(field, _ABSENT), wanted.get(field, _ABSENT)
        if field == "device.name" and same_product(theirs, mine):
            continue
        unknown = field.startswith("toolchain.") and mine.strip().lower() in ("", _UNKNOWN)
        if theirs != mine or unknown:
            yield Difference(field, theirs, mine, _hint(field, theirs, mine, unknown))
    yield from _config_differences(record, configs)


def _hint(field: str, stored: str, wanted: str, unknown: bool) -> str | None:
    if unknown:
        return "an unknown version equals no other"
    if field == "kernel.digest":
        return _SOURCE
    if field == "device.name" and _plain(stored) == _plain(wanted):
        return "perhaps another spelling"
    return None


def _config_differences(
    record: TunedRecord, configs: Sequence[ConfigIdentity]
) -> Iterator[Difference]:
    if record.pinned:  # it decides alone, if its config is live
        if configs and record.chosen not in configs:
            pin = f"pinned {config_text(record.chosen)}"
            yield Difference("config list", pin, "one of the live configs")
        return
    known = {tuned.config: tuned for tuned in record.configs}
    missing = [config for config in configs if config not in known]
    yield from (Difference(f"config {config_text(each)}", "no result", "one") for each in missing)
    if configs and not any(config in known and known[config].ok for config in configs):
        yield Difference("config list", "none of the live configs", "one")


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
    names = sorted({record.kernel.name for record in islice(store.records(), _MAX_NAMES)})
    tail = name.rpartition(".")[2]
    same_tail = [each for each in names if each.rpartition(".")[2] == tail]
    part = [each for each in names if name in each]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return tuple(dict.fromkeys([*same_tail, *part, *close]))[:5]


def _ordinal(place: int) -> str:
    return "nearest" if place == 0 else f"{place + 1}."
