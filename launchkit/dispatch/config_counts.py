"""Counts of how launches came by their configs: hits, misses, inexact uses. A leaf of dispatch."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

from launchkit.configs import ConfigIdentity, TunedRecord, config_text

MEMORY = "this process"
"""The layer of what was chosen before, in this process."""
TRITON = "Triton's Autotuner"
"""The layer of what Triton's own tuning had chosen before launchkit came."""
MAX_USES = 4096
"""Inexact uses that are remembered one by one, the latest; all are counted."""


@dataclass(frozen=True, slots=True)
class InexactUse:
    """A config that was taken from a record that is not exactly of the launch. It may be stale:
    it was not measured for this key on this device with this toolchain.
    """

    kernel: str
    """Its declared name."""
    key: str
    """The launch's key, as text."""
    inexact: tuple[str, ...]
    """What is not exact: ``device``, ``toolchain``, ``shape``, or ``imported``."""
    config: str
    """What was taken, as text."""
    stored_key: str
    stored_device: str
    stored_toolchain: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "inexact": list(self.inexact)
        }


class ConfigCounts(NamedTuple):
    """What happened since the process began, or ``reset``."""

    hits: dict[str, int]
    misses: dict[str, int]
    inexact: dict[str, int]
    tunings: int
    tuning_s: float
    saved_s: float
    uses: tuple[InexactUse, ...]


class _Counts:
    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.inexact: Counter[str] = Counter()
        self.uses: OrderedDict[InexactUse, None] = OrderedDict()
        self.tunings = 0
        self.tuning_s = 0.0
        self.saved_s = 0.0


_lock = threading.Lock()
_counts = _Counts()


def hit(layer: str) -> None:
    """Count a launch whose config this process knew."""
    with _lock:
        _counts.hits[layer] += 1


def stored_hit(record: TunedRecord, layer: str) -> None:
    """Count a launch whose config a store knew, and what tuning it would have taken."""
    with _lock:
        _counts.hits[layer] += 1
        _counts.saved_s += _tuning_seconds(record)


def inexact_use(use: InexactUse) -> None:
    """Count and remember a config of a record that is not exactly of the launch."""
    with _lock:
        _counts.inexact.update(use.inexact)
        _counts.uses[use] = None
        _counts.uses.move_to_end(use)
        while len(_counts.uses) > MAX_USES:
            _counts.uses.popitem(last=False)


def tuned(reason: str, seconds: float) -> None:
    """Count a tuning: why no stored config answered, and how long it took."""
    with _lock:
        _counts.misses[reason] += 1
        _counts.tunings += 1
        _counts.tuning_s += seconds


def missed(reason: str) -> None:
    """Count a launch that found no config and was refused a tuning."""
    with _lock:
        _counts.misses[reason] += 1


def _tuning_seconds(record: TunedRecord) -> float:
    """Return how long the tuning of a record took: as it says, or the launches alone."""
    if record.seconds is not None:
        return record.seconds
    return sum((each.median_us or 0.0) * (each.reps or 0) for each in record.configs) / 1e6


def use_of(
    record: TunedRecord, key: str, inexact: tuple[str, ...], config: ConfigIdentity
) -> InexactUse:
    """Return the use of one of a record's configs for a launch with this key."""
    return InexactUse(
        record.kernel.name, key, inexact, config_text(config),
        record.key.text, record.device.name, record.toolchain.text,
    )  # fmt: skip


def snapshot() -> ConfigCounts:
    """Return every count."""
    with _lock:
        now = _counts
        return ConfigCounts(
            dict(now.hits), dict(now.misses), dict(now.inexact),
            now.tunings, now.tuning_s, now.saved_s, tuple(now.uses),
        )  # fmt: skip


def reset() -> None:
    """Forget every count."""
    global _counts
    with _lock:
        _counts = _Counts()
