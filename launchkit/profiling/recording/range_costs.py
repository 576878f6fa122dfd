"""What recording a range costs, measured on ranges of nothing. Above open_ranges."""

from __future__ import annotations

from collections.abc import Callable

from launchkit import clock
from launchkit.profiling.ranges import annotate
from launchkit.profiling.recording.calibration import ROUNDS, Cost, cost_of
from launchkit.profiling.recording.open_ranges import OpenRanges, RangeCosts
from launchkit.profiling.recording.tally import Tally


def range_costs(
    costs: RangeCosts, changed: Callable[[int], object] | None = None
) -> tuple[Cost, Cost]:
    """Return the recorder's share in the time of a range, and all that it adds to the one around.

    Both are put into ``costs``, too. ``changed`` is what the recording calls where a thread's
    innermost range becomes another one.
    """
    now_ns = clock.now_ns
    scratch = Tally(ROUNDS)
    opened, trial = OpenRanges(scratch, changed), annotate("calibration")
    clock_ns, added_ns = [], []
    for _ in range(ROUNDS):
        start_ns = now_ns()
        clock_ns.append(now_ns() - start_ns)
        start_ns = now_ns()
        opened.enter(trial)
        opened.leave(trial)
        added_ns.append(now_ns() - start_ns)
    own = cost_of(scratch.nodes[1].visits.length_ns)
    around = cost_of(added_ns)
    nested = Cost(around.ns - cost_of(clock_ns).ns, around.uncertainty_ns)
    costs.own_ns, costs.nested_ns = round(own.ns), round(nested.ns)
    return own, nested
