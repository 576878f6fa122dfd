"""What recording costs: measured when a recording begins, kept with it. A leaf."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ROUNDS = 301


@dataclass(frozen=True)
class Cost:
    """A cost in ns: the median of the rounds, and half of the distance of their p10 and p90."""

    ns: float = 0.0
    uncertainty_ns: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """What the recorder puts into the times that it takes, and what it adds to the program.

    ``launch``: its share in the time of a launch, subtracted from each. ``added``: all that it adds
    to a launch. ``range``: its share in the time of a range, and ``nested`` all that a range adds
    to the time of the one around it.
    """

    launch: Cost = Cost()
    added: Cost = Cost()
    range: Cost = Cost()
    nested: Cost = Cost()

    def to_dict(self) -> dict[str, float]:
        """Return it flat: ``launch_ns``, ``launch_uncertainty_ns`` and so on."""
        costs = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            f"{name}_{part}": value
            for name, cost in costs.items()
            for part, value in dataclasses.asdict(cost).items()
        }


def cost_of(rounds_ns: Sequence[float]) -> Cost:
    """Return the cost that was measured so often; the order does not matter."""
    if len(rounds_ns) < 2:
        return Cost(*map(float, rounds_ns))
    deciles = statistics.quantiles(rounds_ns, n=10, method="inclusive")
    return Cost(float(statistics.median(rounds_ns)), (deciles[-1] - deciles[0]) / 2)
