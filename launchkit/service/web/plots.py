"""Where each config's times stand in a plot of a record. A leaf: templates draw what it places.

One plot per method of measuring, as unlike times do not compare: a line per config from the 20th to
the 80th percentile, with a mark at the median, the fastest on top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from launchkit.configs import TunedConfig, TunedRecord
from launchkit.keys import KeyValue

WIDTH = 960
ROW = 24
DRAWN = 40
"""So many configs are drawn, the fastest; the table has all of them."""
_TOP, _FOOT, _RIGHT, _CHARACTER, _LABEL = 10, 30, 90, 6.7, 56
_WIDE = 8.0
"""Times that differ more than so many times stand on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One config: its median at ``x``, its spread from ``low`` to ``high``, in the plot's units."""

    label: str
    text: str
    y: float
    x: float
    low: float | None
    high: float | None
    chosen: bool
    median_us: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis."""

    x: float
    us: float


@dataclass(frozen=True, slots=True)
class Plot:
    """All that is drawn of one method's results. ``left``: where the axis begins."""

    method: str
    common: str
    """The values that all configs share, which are in no label."""
    logarithmic: bool
    left: float
    height: float
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    left_out: int
    """Slower configs that are not drawn."""


def plots(record: TunedRecord) -> list[Plot]:
    """Return a plot per method that gave times, that of the chosen config first."""
    timed = [tuned for tuned in record.configs if tuned.timed]
    first = record.winner.method

    def of_method(tuned: TunedConfig) -> tuple[bool, str]:
        return tuned.method != first, tuned.method

    groups = groupby(sorted(timed, key=of_method), key=of_method)
    return [_plot(record, method, list(group)) for (_, method), group in groups]


def by_speed(configs: Sequence[TunedConfig]) -> list[TunedConfig]:
    """Return configs as tables have them: by method the fastest first, what has no time last."""
    return sorted(configs, key=lambda each: (not each.timed, each.method, each.median_us or 0.0))


def _plot(record: TunedRecord, method: str, measured: list[TunedConfig]) -> Plot:
    winner = record.winner if record.winner.method == method else None
    shown = by_speed(measured)[:DRAWN]
    if winner is not None and winner not in shown:
        shown[-1] = winner
    common = set(shown[0].config).intersection(*(tuned.config for tuned in shown))
    if len(shown) == 1:
        common.clear()
    labels = [_label(tuned, common) for tuned in shown]
    left = 16 + _CHARACTER * max(len(label) for label in labels)
    axis = _Axis(shown, left)
    marks = tuple(
        Mark(
            label, tuned.text, _TOP + ROW * (number + 0.5), axis.x(tuned.median_us or 0.0),
            None if tuned.p20_us is None else axis.x(tuned.p20_us),
            None if tuned.p80_us is None else axis.x(tuned.p80_us),
            tuned is winner, tuned.median_us or 0.0,
        )
        for number, (tuned, label) in enumerate(zip(shown, labels, strict=True))
    )  # fmt: skip
    shared = " ".join(value.text for value in shown[0].config if value in common)
    ticks = tuple(Tick(axis.x(time), time) for time in axis.ticks())
    height = _TOP + ROW * len(shown) + _FOOT
    return Plot(
        method, shared, axis.logarithmic, left, height, marks, ticks, len(measured) - len(shown)
    )


def _label(tuned: TunedConfig, common: set[KeyValue]) -> str:
    text = " ".join(value.text for value in tuned.config if value not in common)
    text = text or tuned.text or "(no values)"
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


class _Axis:
    """Times in us to places, from the plot's ``left`` to its right edge."""

    def __init__(self, shown: Sequence[TunedConfig], left: float) -> None:
        ends = [(each.p20_us, each.median_us, each.p80_us) for each in shown]
        times = [time for several in ends for time in several if time is not None]
        low, high = min(times), max(times)
        self.logarithmic = high / low > _WIDE
        if self.logarithmic:
            self.low, self.high = low / 1.1, high * 1.1
        else:
            margin = max((high - low) * 0.06, high * 0.01)
            self.low, self.high = max(0.0, low - margin), high + margin
        self._left, self._right = left, WIDTH - _RIGHT

    def x(self, time_us: float) -> float:
        """Return where a time stands."""
        share = (self._scale(time_us) - self._scale(self.low)) / (
            self._scale(self.high) - self._scale(self.low)
        )
        return round(self._left + share * (self._right - self._left), 2)

    def ticks(self) -> list[float]:
        """Return a few round times within the axis."""
        if not self.logarithmic:
            return _even(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if len(decades) < 5 else (1,)
        several = [step * 10.0**decade for decade in decades for step in steps]
        return [time for time in several if self.low <= time <= self.high]

    def _scale(self, time_us: float) -> float:
        return math.log(time_us) if self.logarithmic else time_us


def _even(low: float, high: float) -> list[float]:
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]
