"""Tuned configs: what was measured for one key, and which config was chosen. A leaf; pure."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from launchkit import jsonio
from launchkit.errors import UsageError
from launchkit.keys import DeviceId, KernelId, KeyValue, LaunchKey, Toolchain, encode_value

IMPORTED = "imported:"
"""How the method of a result begins that another program's file gave; then come its format's name
and, where the file tells, how that program measured."""

Identity: TypeAlias = tuple[KernelId, DeviceId, Toolchain, LaunchKey]
"""What a record is for; a store holds one record per identity."""

ConfigIdentity: TypeAlias = tuple[KeyValue, ...]
"""Every keyword value of a Triton config, sorted by name. Hooks are not part of it."""

_NEEDS = re.compile(r"\[needs ([a-z_]{1,40})=([0-9]{1,18}) limit=([0-9]{1,18})\]\Z")
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def identify(all_kwargs: Mapping[str, object]) -> ConfigIdentity:
    """Return the identity of a config from Triton's ``Config.all_kwargs()``.

    Raises UnfingerprintableError for a value that has none.
    """
    values = [encode_value(name, value) for name, value in all_kwargs.items()]
    return tuple(sorted(values, key=lambda value: value.name))


def config_digest(values: Iterable[KeyValue]) -> str:
    """Return 16 hex digits that stand for a config's values: between ranks, and in manifests."""
    return jsonio.digest([[value.name, value.type, value.value] for value in values])[:16]


def config_text(config: ConfigIdentity) -> str:
    """Return a config for people: ``BLOCK=128 num_warps=4``."""
    return " ".join(value.text for value in config)


@dataclass(frozen=True, slots=True)
class TunedConfig:
    """One config and what measuring it gave: times in microseconds, or an error.

    ``p20_us`` and ``p80_us`` are None where the benchmark gave a median only; ``reps`` is None
    where it did not say; ``method`` names the way of measuring, as unlike ones do not compare.
    An imported winner may have neither (see ``imported``): it can be chosen, never compared.
    Raises UsageError for times that are not finite, positive and in order, for an error beside
    times, and for neither in a result that was not imported.
    """

    config: ConfigIdentity
    median_us: float | None
    p20_us: float | None
    p80_us: float | None
    reps: int | None
    method: str
    error: str | None

    def __post_init__(self) -> None:
        _check_identity(self.config)
        times = [self.p20_us, self.median_us, self.p80_us]
        if self.error is not None:
            problem = _error_problem(self.error, times)
        elif self.foreign and times == [None, None, None]:
            problem = None if self.reps is None else "repetitions without a time"
        else:
            problem = _time_problem(times)
        if problem is None and self.reps is not None and self.reps < 1:
            problem = f"{self.reps} repetitions"
        if problem is not None:
            raise UsageError(f"{self.text}: {problem}. Give a time or an error, as measured.")

    @classmethod
    def measured(
        cls,
        config: ConfigIdentity,
        times_us: float | Iterable[float],
        *,
        reps: int | None,
        method: str,
    ) -> TunedConfig:
        """Return what a benchmark gave: a median, or (median, p20, p80), in microseconds.

        Never raises for a strange figure: a median that is not finite and positive makes a
        failed config, quantiles that are not in order are left out.
        """
        times = _floats(times_us)
        median_us = times[0] if times else math.nan
        if (problem := _time_problem([None, median_us, None])) is not None:
            return cls.failed(config, f"measured {problem}", method=method)
        p20_us, p80_us = (times[1], times[2]) if len(times) == 3 else (None, None)
        if _time_problem([p20_us, median_us, p80_us]) is not None:
            p20_us = p80_us = None
        return cls(config, median_us, p20_us, p80_us, reps, method, None)

    @classmethod
    def failed(cls, config: ConfigIdentity, error: str, *, method: str) -> TunedConfig:
        """Return a config that could not be measured, and why (any text that an exception had)."""
        reason = error.encode("utf-8", "backslashreplace").decode().strip()
        return cls(config, None, None, None, None, method, reason or "failed")

    @classmethod
    def imported(cls, config: ConfigIdentity, *, method: str) -> TunedConfig:
        """Return a winner of which another program's file tells no time.

        ``method`` begins with ``IMPORTED``; raises UsageError otherwise.
        """
        return cls(config, None, None, None, None, method, None)

    @property
    def ok(self) -> bool:
        """Whether it ran: here, or as another program's file says."""
        return self.error is None

    @property
    def foreign(self) -> bool:
        """Whether another program's file gave it, without saying how it measured."""
        return self.method.startswith(IMPORTED)

    @property
    def timed(self) -> bool:
        """Whether it has a time that may be compared with others of its method."""
        return self.median_us is not None

    @property
    def text(self) -> str:
        """The config for people: ``BLOCK=128 num_warps=4``."""
        return config_text(self.config)

    @property
    def needed(self) -> Resource | None:
        """The resource that it lacked, if that is why it failed."""
        found = _NEEDS.search(self.error or "")
        return None if found is None else Resource(found[1], int(found[2]), int(found[3]))


@dataclass(frozen=True, slots=True)
class Resource:
    """What a config that did not fit lacked: it needed ``required`` of it, and ``limit`` exist.

    ``name``: ``shared_bytes``, ``registers``, ``threads``, or Triton's word for another one
    (``tensor_memory``).
    """

    name: str
    required: int
    limit: int

    @property
    def text(self) -> str:
        """How it stands at the end of a stored reason."""
        return f"[needs {self.name}={self.required} limit={self.limit}]"


@dataclass(frozen=True, slots=True)
class TunedRecord:
    """All that is known about one key of one kernel on one device with one toolchain.

    ``configs`` may hold a config once per method of measuring. ``chosen`` is the identity of one
    that was measured or imported: by ``chosen_method``, where there are several. ``tuned_at`` is
    when it was chosen, as ``2026-01-31T23:59:59Z``; None where nobody wrote it down. ``pinned`` is true
    of what a lock file says: the choice then holds though ``configs`` has nothing but it; no
    document has this field. ``seconds``: how long all tuning of the record took, where that is
    known. Raises UsageError for a choice that was not measured, a config that stands twice, and
    times of another form.
    """

    kernel: KernelId
    device: DeviceId
    toolchain: Toolchain
    key: LaunchKey
    configs: tuple[TunedConfig, ...]
    chosen: ConfigIdentity
    tuned_at: str | None = None
    pinned: bool = False
    chosen_method: str | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.tuned_at is not None and not _is_utc(self.tuned_at):
            raise UsageError(f"{self.tuned_at!r} is no time. Write it as 2026-01-31T23:59:59Z.")
        if self.seconds is not None and not 0 <= self.seconds < math.inf:
            raise UsageError(f"tuning took {self.seconds} seconds. Give a finite time, or None.")
        if len({(tuned.config, tuned.method) for tuned in self.configs}) != len(self.configs):
            raise UsageError(f"a config of {self.kernel.name} stands twice. Give each one once.")
        if self._winner() is None:
            raise UsageError(
                f"{config_text(self.chosen)} was chosen for {self.kernel.name}, but was not "
                "measured. Choose one of the measured configs."
            )

    @property
    def identity(self) -> Identity:
        """What the record is for."""
        return (self.kernel, self.device, self.toolchain, self.key)

    @property
    def sort_key(self) -> tuple[str, ...]:
        """The identity as text, by which records stand in bundles and lock files."""
        kernel, device = self.kernel, self.device
        return (kernel.name, kernel.digest, device.slug, self.key.digest, self.toolchain.text)

    def _winner(self) -> TunedConfig | None:
        methods = [self.chosen_method] if self.chosen_method else [t.method for t in self.configs]
        chosen = (t for t in self.configs if t.ok and t.config == self.chosen)
        return next((tuned for tuned in chosen if tuned.method in methods), None)

    @property
    def winner(self) -> TunedConfig:
        """The chosen config with its times."""
        winner = self._winner()
        assert winner is not None, "checked when the record was made"
        return winner

    def results(self, method: str) -> dict[ConfigIdentity, TunedConfig]:
        """Return what counts for a kernel that is measured by ``method``: unlike times do not.

        A config that lacked a resource would lack it by every method.
        """
        found: dict[ConfigIdentity, TunedConfig] = {}
        for tuned in self.configs:
            if tuned.method == method:
                found[tuned.config] = tuned
            elif tuned.needed is not None:
                found.setdefault(tuned.config, tuned)
        return found


def merge_records(old: TunedRecord, new: TunedRecord) -> TunedRecord:
    """Return both records' configs in one: newer results win, and so does the newer choice.

    Results by unlike methods stand beside each other. A new choice without a time, which was
    imported, does not replace one with a time. The order is the old one's, then what is new.
    Raises UsageError for unlike identities.
    """
    if old.identity != new.identity:
        raise UsageError(f"records of {old.kernel.name} for unlike keys. Merge those of one key.")
    merged = {(tuned.config, tuned.method): tuned for tuned in old.configs}
    merged.update(((tuned.config, tuned.method), tuned) for tuned in new.configs)
    kept = merged[old.chosen, old.winner.method]
    decides = old if kept.timed and not new.winner.timed else new
    chosen = [tuned for tuned in merged.values() if tuned.ok and tuned.config == decides.chosen]
    return replace(
        decides,
        configs=tuple(merged.values()),
        chosen_method=decides.winner.method if len(chosen) > 1 else None,
        seconds=old.seconds if new.seconds is None else new.seconds,
    )


def choose(configs: Iterable[TunedConfig]) -> TunedConfig | None:
    """Return the first config that is as fast as the fastest; None if all failed.

    ``configs`` stand in the kernel's live order and were measured alike. The fastest has the
    least (median, p20, p80), as for Triton's Autotuner. Another is as fast if each one's median
    lies within the other's p20 to p80: the middle three fifths of either's launches, a band that
    two runs of one config nearly always share. Of these the first is returned, so that noise does
    not change the choice between restarts or ranks. The test holds both ways, as the wide band of
    one noisy config must not make a slow one its equal. Where only medians are known, equal ones
    tie. A failed config never wins, nor does one without a time.
    """
    measured = [tuned for tuned in configs if tuned.timed]
    if not measured:
        return None
    best = min(measured, key=_rank)
    return next(tuned for tuned in measured if _tied(tuned, best))


def _rank(tuned: TunedConfig) -> tuple[float, float, float]:
    """Return (median, p20, p80), the median in the place of what is not known."""
    median_us = tuned.median_us or math.inf
    return (median_us, tuned.p20_us or median_us, tuned.p80_us or median_us)


def _tied(one: TunedConfig, other: TunedConfig) -> bool:
    (median, p20, p80), (other_median, other_p20, other_p80) = _rank(one), _rank(other)
    return other_p20 <= median <= other_p80 and p20 <= other_median <= p80


def _floats(times: Any) -> list[float]:
    """Take one number or several, of any library: whatever a kernel's own ``do_bench`` gave."""
    try:
        several = list(times)
    except TypeError:
        several = [times]
    try:
        return [float(time) for time in several]
    except (TypeError, ValueError):
        return []


def _time_problem(times_us: Sequence[float | None]) -> str | None:
    """Name what is wrong with (p20, median, p80), of which only the median must be there."""
    if times_us[1] is None:
        return "no median time"
    given = [time for time in times_us if time is not None]
    if not all(math.isfinite(time) and time > 0 for time in given):
        return f"times of {given} us, which are not all finite and positive"
    return None if given == sorted(given) else f"times of {given} us, which are not in order"


def _is_utc(text: str) -> bool:
    try:
        datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    return _UTC.fullmatch(text) is not None  # strptime alone takes single digits


def _error_problem(error: str, times_us: Sequence[float | None]) -> str | None:
    if not error:
        return "an empty error"
    return "an error beside times" if any(time is not None for time in times_us) else None


def _check_identity(config: ConfigIdentity) -> None:
    names = [value.name for value in config]
    if names != sorted(set(names)):
        raise UsageError(f"the config's values {names} are not sorted by name. Use identify().")
