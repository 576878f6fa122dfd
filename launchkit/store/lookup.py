"""Which stored record answers a launch, under declared policies. Pure: imports leaves only.

The exact identity always wins. Only where there is none, and a policy allows it, a record of a
compatible device, another toolchain or a near shape answers, with what is inexact about it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from launchkit.configs import Identity, TunedRecord
from launchkit.errors import UsageError
from launchkit.keys import (
    DeviceId,
    DevicePolicy,
    KernelId,
    LaunchKey,
    Toolchain,
    ToolchainPolicy,
    same_device,
    same_toolchain,
)
from launchkit.store.base import ConfigStore, Miss
from launchkit.store.shapes import Shape, key_distance, shape_group

INEXACT_KINDS = ("device", "toolchain", "shape")
"""What may be inexact about a record that is used."""
MAX_IDENTITIES = 65536
"""How many of a kernel's records ``NearIdentities`` knows."""


@dataclass(frozen=True, slots=True)
class Policies:
    """How far a stored record may be from what a launch wants, and still be used.

    ``device``: ``compatible`` takes records of devices with the same backend, architecture and
    shared-memory limit. ``toolchain``: ``minor`` takes those of versions that differ in the last
    part only, ``any`` all. ``shapes``: by key argument, what ``buckets`` or ``nearest`` returned.
    Everything is exact by default. Raises UsageError for another value.
    """

    device: DevicePolicy = "exact"
    toolchain: ToolchainPolicy = "exact"
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("device", self.device, get_args(DevicePolicy))
        _check("toolchain", self.toolchain, get_args(ToolchainPolicy))


@dataclass(frozen=True, slots=True)
class KernelPolicies:
    """One kernel's own policies; None leaves that one to the process."""

    device: DevicePolicy | None = None
    toolchain: ToolchainPolicy | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def over(self, process: Policies) -> Policies:
        """Return the process's policies with this kernel's in their place."""
        return Policies(
            self.device or process.device, self.toolchain or process.toolchain, self.shapes
        )


def _check(policy: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(
            f"{policy}={value!r} is no policy. Choose {', '.join(choices[:-1])} or {choices[-1]}.",
            policy=policy,
            value=value,
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launch is: the identity of the record that would answer it exactly."""

    kernel: KernelId
    device: DeviceId
    toolchain: Toolchain
    key: LaunchKey

    @property
    def identity(self) -> Identity:
        """As ``TunedRecord.identity``."""
        return (self.kernel, self.device, self.toolchain, self.key)


@dataclass(frozen=True, slots=True)
class Found:
    """A record that may be used: ``inexact`` says what about it is not as wanted, of
    ``INEXACT_KINDS``; ``layer`` names where it came from.
    """

    record: TunedRecord
    inexact: tuple[str, ...]
    layer: str


def find(store: ConfigStore, wanted: Wanted, policies: Policies) -> Found | Miss:
    """Return the record that is nearest to what is wanted within the policies, or why there is none.

    Whatever the store raises passes through.
    """
    exact = find_exact(store, wanted)
    if not isinstance(exact, Miss):
        return exact
    return next(find_inexact(store, wanted, policies), exact)


def find_exact(store: ConfigStore, wanted: Wanted) -> Found | Miss:
    """Return the record of exactly this identity, or why there is none."""
    record: object = store.get(*wanted.identity)
    if isinstance(record, TunedRecord) and record.identity == wanted.identity:
        return Found(record, (), _layer_of(store, record))
    # A store of somebody else's may answer anything.
    return record if isinstance(record, Miss) else Miss("absent" if record is None else "foreign")


def find_inexact(
    store: ConfigStore, wanted: Wanted, policies: Policies, among: Iterable[Wanted] | None = None
) -> Iterator[Found]:
    """Yield the records that policies allow beside the exact one, the nearest first.

    Those of this device under another spelling of its name are exact. Nearest: the key as it is
    before a near shape, then the device as it is before a compatible one, then the toolchain by its
    versions, then the least ratio between shapes. ``among``: the identities to look at; None: all
    that the store has of the kernel, for policies without shapes all of the key.
    """
    key = None if policies.shapes else wanted.key
    candidates = store.records_of(wanted.kernel.name, key) if among is None else among
    ranked = [
        (rank, candidate)
        for candidate in candidates
        if (rank := _rank(candidate, wanted, policies)) is not None
    ]
    for rank, candidate in sorted(ranked, key=lambda each: each[0]):
        if isinstance(candidate, TunedRecord):
            yield Found(candidate, rank.inexact, _layer_of(store, candidate))
        elif isinstance(found := find_exact(store, candidate), Found):
            yield replace(found, inexact=rank.inexact)


class NearIdentities:
    """The identities of a kernel's records, found by the keys that they may stand for.

    Read once: what other processes store later is not in it.
    """

    def __init__(self, store: ConfigStore, kernel: KernelId, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self._groups: dict[Hashable, dict[Wanted, None]] = {}
        self._count = 0
        for record in store.records_of(kernel.name):
            if record.kernel == kernel:
                self.note(Wanted(*record.identity))

    def note(self, identity: Wanted) -> None:
        """Add what has been stored since; beyond MAX_IDENTITIES nothing is."""
        group = self._groups.setdefault(shape_group(identity.key, self._shapes), {})
        if identity not in group and self._count < MAX_IDENTITIES:
            self._count += 1
            group[identity] = None

    def beside(self, key: LaunchKey) -> list[Wanted]:
        """Return the identities whose keys differ from ``key`` in shapes alone."""
        return list(self._groups.get(shape_group(key, self._shapes), ()))


@dataclass(frozen=True, slots=True, order=True)
class _Rank:
    """How far a record is: compared field by field; the last ones only make ties stable."""

    near_shape: bool
    other_device: bool
    toolchain: int
    multiprocessors: int
    distance: float
    text: tuple[str, ...]

    @property
    def inexact(self) -> tuple[str, ...]:
        flags = (self.other_device, self.toolchain > 0, self.near_shape)
        return tuple(kind for kind, flag in zip(INEXACT_KINDS, flags, strict=True) if flag)


def _rank(record: TunedRecord | Wanted, wanted: Wanted, policies: Policies) -> _Rank | None:
    """Return how far a record is from what is wanted; None: it may not be used."""
    if record.kernel != wanted.kernel or record.identity == wanted.identity:
        return None
    if not same_device(record.device, wanted.device, policies.device):
        return None
    if not same_toolchain(record.toolchain, wanted.toolchain, policies.toolchain):
        return None
    distance = key_distance(wanted.key, record.key, policies.shapes)
    if distance is None:
        return None
    return _Rank(
        near_shape=record.key != wanted.key,
        other_device=not same_device(record.device, wanted.device, "exact"),
        toolchain=_toolchain_distance(record.toolchain, wanted.toolchain),
        multiprocessors=abs(record.device.multiprocessors - wanted.device.multiprocessors),
        distance=distance,
        text=(record.device.slug, record.toolchain.text, record.key.digest),
    )


def _toolchain_distance(one: Toolchain, other: Toolchain) -> int:
    """Return 0 for equal and known versions, 1 for those of the same minor release, 2 for others."""
    policies: tuple[ToolchainPolicy, ...] = get_args(ToolchainPolicy)
    return next(
        place for place, policy in enumerate(policies) if same_toolchain(one, other, policy)
    )


def _layer_of(store: ConfigStore, record: TunedRecord) -> str:
    """Return a name for where a record came from: a layer's, or the store's own."""
    where = getattr(store, "where", None)
    return (str(where(record)) if callable(where) else "") or store.describe()
