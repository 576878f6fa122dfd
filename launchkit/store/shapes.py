"""Which stored key values may stand for a live one: exact, buckets, nearest. Imports leaves only."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from launchkit.errors import UsageError
from launchkit.keys import KeyValue, LaunchKey


@dataclass(frozen=True, slots=True)
class Buckets:
    """Values between two neighbouring edges stand for each other; see ``buckets``."""

    edges: tuple[int | float, ...]

    def distance(self, wanted: int | float, stored: int | float) -> float | None:
        """Return how far a stored value is from the wanted one, or None if it may not be used."""
        place = bisect.bisect_left(self.edges, wanted)
        if place == len(self.edges) or bisect.bisect_left(self.edges, stored) != place:
            return None
        ratio = _log_ratio(wanted, stored)
        # Of one bucket, but not to be compared by ratio: the farthest.
        return math.inf if ratio is None else ratio


@dataclass(frozen=True, slots=True)
class Nearest:
    """A stored value within a factor stands for the wanted one; see ``nearest``."""

    within: float

    def distance(self, wanted: int | float, stored: int | float) -> float | None:
        """Return how far a stored value is from the wanted one, or None if it may not be used."""
        ratio = _log_ratio(wanted, stored)
        limit = math.log(self.within)
        # A hair more, so that 2048 is within a factor of 2 of 1024.
        return ratio if ratio is not None and ratio <= limit * (1 + 1e-9) else None


Shape: TypeAlias = Buckets | Nearest
"""How the values of one key argument may stand for each other."""


def buckets(*edges: int | float) -> Buckets:
    """Let configs tuned for one value of a key argument serve others of the same bucket.

    A bucket holds the values above one edge, up to and including the next one; the first has no
    lower end. Values above the last edge stay exact. ``buckets(1, 16, 256)``: up to 1, 2 to 16, 17
    to 256. Of several stored values the nearest by ratio is taken; an exact one always wins.

    Raises:
        UsageError: no edge, an edge that is no finite number, or edges that do not rise.
    """
    fine = all(type(edge) in (int, float) and math.isfinite(edge) for edge in edges)
    if not edges or not fine or any(a >= b for a, b in itertools.pairwise(edges)):
        raise UsageError(
            f"{edges!r} are no bucket edges. Give finite numbers in rising order, such as "
            "buckets(1, 16, 256).",
            edges=edges,
        )
    return Buckets(edges)


def nearest(*, within: float) -> Nearest:
    """Let the config tuned for the nearest value of a key argument serve, up to a factor.

    ``nearest(within=2.0)``: 1000 may take the config of any value from 500 to 2000, and takes that
    of the least ratio. Zero and values of unlike sign stay exact; an exact value always wins.

    Raises:
        UsageError: ``within`` is no finite number of at least 1.
    """
    if type(within) not in (int, float) or not math.isfinite(within) or within < 1:
        raise UsageError(
            f"within={within!r} is no factor. Give a finite number of at least 1, such as 2.0.",
            within=within,
        )
    return Nearest(float(within))


def key_distance(wanted: LaunchKey, stored: LaunchKey, shapes: Mapping[str, Shape]) -> float | None:
    """Return how far a stored key is from the wanted one: 0.0 if equal, None if unusable.

    Names, types, dtypes and every value without a shape must be equal; distances of those with one
    are natural logarithms of ratios, and add up.
    """
    if stored == wanted:
        return 0.0
    if not shapes or stored.dtypes != wanted.dtypes or len(stored.values) != len(wanted.values):
        return None
    total = 0.0
    for mine, theirs in zip(wanted.values, stored.values, strict=True):
        distance = _value_distance(mine, theirs, shapes)
        if distance is None:
            return None
        total += distance
    return total


def shape_group(key: LaunchKey, shapes: Mapping[str, Shape]) -> Hashable:
    """Return what two keys must have in common for ``key_distance`` to be anything but None."""
    values = tuple(
        (value.name, value.type, None if value.name in shapes else value.value)
        for value in key.values
    )
    return (key.dtypes, values)


def _value_distance(
    wanted: KeyValue, stored: KeyValue, shapes: Mapping[str, Shape]
) -> float | None:
    if wanted == stored:
        return 0.0
    shape = shapes.get(wanted.name)
    if shape is None or (wanted.name, wanted.type) != (stored.name, stored.type):
        return None
    mine, theirs = _number(wanted), _number(stored)
    return None if mine is None or theirs is None else shape.distance(mine, theirs)


def _number(value: KeyValue) -> int | float | None:
    """Return what an int or a finite float stands for; None for every other value."""
    try:
        if value.type == "int":
            return int(value.value)
        found = float(value.value) if value.type == "float" else math.nan
    except ValueError:  # a document of others may hold any text
        return None
    return found if math.isfinite(found) else None


def _log_ratio(one: int | float, other: int | float) -> float | None:
    if one == 0 or other == 0 or (one > 0) != (other > 0):
        return None
    return abs(math.log(abs(one)) - math.log(abs(other)))
