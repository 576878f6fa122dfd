"""One launch whose config is not known yet: plain data, below choosing.py. A leaf of dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from launchkit.configs import ConfigIdentity
from launchkit.keys import DeviceId, LaunchKey

Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of a launch, ``grid`` and ``warmup`` among the latter."""

Place: TypeAlias = tuple[DeviceId, int, LaunchKey]
"""What a choice is remembered for: device, its ordinal, and key."""


@dataclass(frozen=True)
class Question:
    """A launch's key, arguments and candidates."""

    place: Place
    arguments: Arguments
    triton_key: tuple[Any, ...]
    configs: list[Any]
    """What pruning left, in live order."""
    identities: list[ConfigIdentity]
    """Of the configs; empty where the first config is the answer."""

    @property
    def decided(self) -> bool:
        """Whether the first config is the answer: a choice of one, or nothing is executed."""
        return not self.identities

    @property
    def storable(self) -> bool:
        """False for configs that differ in a hook alone: a file cannot tell them apart."""
        return len(set(self.identities)) == len(self.identities)

    @property
    def live(self) -> dict[ConfigIdentity, Any]:
        """The live configs by identity."""
        return dict(zip(self.identities, self.configs, strict=True))
