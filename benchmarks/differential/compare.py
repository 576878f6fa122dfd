"""Makes calls with launchkit and with Triton and compares what was launched, byte by byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from launchkit import hostonly
from launchkit.benchmarks.differential.cases import Launch, Pair
from launchkit.benchmarks.differential.draws import DrawnCall


@dataclass(frozen=True)
class Outcome:
    """What a call came to."""

    compiled: Any
    """The kernel that it returned; None if it raised."""
    error: str | None
    """The type of the exception that it raised."""
    launches: list[hostonly.HostLaunch]
    """What reached the driver: function, grid, attributes, every parameter's bytes."""

    def __str__(self) -> str:
        launches = [
            f"{launch} {[each.hex() for each in launch.params]}" for launch in self.launches
        ]
        return f"{self.error or self.compiled} {launches}"


def outcome(launch: Launch, call: DrawnCall) -> Outcome:
    """Make one call, on its device and stream, and return what it came to."""
    hostonly.set_device(call.device)
    hostonly.set_stream(call.stream)
    hostonly.clear()
    try:
        compiled = launch(call.grid, *call.args, **call.kwargs)
    except Exception as error:  # noqa: BLE001 - whatever Triton raises is what is compared
        return Outcome(None, type(error).__name__, hostonly.launches())
    return Outcome(compiled, None, hostonly.launches())


@dataclass
class Comparison:
    """Counts over the calls of one case."""

    calls: int = 0
    launched: int = 0
    """Calls of which a launch reached the driver."""
    nothing_launched: int = 0
    """An empty grid: the kernel is returned, and no driver called."""
    raised: Counter[str] = field(default_factory=Counter)
    """By the exception's type, which is the same with Triton."""
    forms: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)
    """Compiled kernels by device, and what launchkit must tell apart beneath."""
    differences: list[str] = field(default_factory=list)

    def add(self, call: DrawnCall, ours: Outcome, theirs: Outcome) -> None:
        """Count a call, and describe both outcomes if they differ."""
        self.calls += 1
        self.forms[call.form] += 1
        if ours.error:
            self.raised[ours.error] += 1
        elif ours.launches:
            self.launched += 1
        else:
            self.nothing_launched += 1
        if ours.compiled is not None:
            self.kinds.add(f"{ours.compiled.hash} {call.device} {call.told_apart}")
        if ours != theirs or ours.compiled is not theirs.compiled:
            self.differences.append(f"{call}\n  launchkit: {ours}\n  Triton: {theirs}")

    def merge(self, other: Comparison) -> None:
        """Add the counts of another comparison of the same case."""
        self.calls += other.calls
        self.launched += other.launched
        self.nothing_launched += other.nothing_launched
        self.raised += other.raised
        self.forms += other.forms
        self.kinds |= other.kinds
        self.differences += other.differences


def compare(
    pair: Pair,
    calls: int,
    rng: Random,
    advance: Callable[[int], None] = lambda calls: None,
) -> Comparison:
    """Draw and make calls both ways, ``pair.block`` at a time; return the counts.

    Needs host-only mode with two devices. Leaves device 0 and the default stream current.
    """
    found = Comparison()
    try:
        while found.calls < calls:
            pair.before_block()
            block = [pair.draw(rng) for _ in range(min(pair.block, calls - found.calls))]
            with pair.during_ours():
                ours = [outcome(pair.ours, call) for call in block]
            for call, our in zip(block, ours, strict=True):
                found.add(call, our, outcome(pair.theirs, call))
            advance(len(block))
    finally:
        hostonly.set_device(0)
        hostonly.set_stream(0)
    return found
