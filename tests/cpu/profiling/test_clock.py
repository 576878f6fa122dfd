"""TickRate: a counter measured against a clock that the test moves."""

from __future__ import annotations

import pytest
from subprocesses import in_python

from launchkit import clock


class Machine:
    """A clock and a counter that go on by themselves with each look at them."""

    def __init__(self, monkeypatch, ns_per_tick):
        self.time_ns = 1_000_000
        self.counted = 7.0
        self.ns_per_tick = ns_per_tick
        monkeypatch.setattr(clock, "now_ns", self.now_ns)

    def advance(self, ns):
        self.time_ns += ns
        self.counted += ns / self.ns_per_tick(self.time_ns)

    def now_ns(self):
        self.advance(400)
        return self.time_ns

    def ticks(self):
        self.advance(100)
        return int(self.counted)


@pytest.mark.parametrize("ns_per_tick", [0.25, 1.0, 31.25])
def test_rate_of_an_even_counter_is_found(monkeypatch, ns_per_tick):
    machine = Machine(monkeypatch, lambda time_ns: ns_per_tick)
    rate = clock.TickRate(machine.ticks)
    assert rate.is_even
    assert rate.ns_per_tick() == pytest.approx(ns_per_tick, rel=1e-3)
    machine.advance(10**10)
    assert rate.ns_per_tick() == pytest.approx(ns_per_tick, rel=1e-6)


def test_counter_that_changes_its_pace_is_not_even(monkeypatch):
    start_ns = 1_000_000
    slower_from_ns = start_ns + clock.TickRate.FIRST_NS
    machine = Machine(monkeypatch, lambda time_ns: 1.0 if time_ns < slower_from_ns else 2.0)
    assert not clock.TickRate(machine.ticks).is_even


def test_counter_that_stands_still_is_not_even(monkeypatch):
    machine = Machine(monkeypatch, lambda time_ns: 1e30)
    rate = clock.TickRate(machine.ticks)
    assert not rate.is_even
    assert rate.ns_per_tick() == 0.0


def test_look_that_was_interrupted_is_not_believed(monkeypatch):
    machine = Machine(monkeypatch, lambda time_ns: 1.0)
    looks = []

    def ticks():
        looks.append(None)
        found = machine.ticks()
        if len(looks) % 3:
            machine.advance(10**6)  # another process had the CPU before the clock was read again
        return found

    rate = clock.TickRate(ticks)
    assert rate.is_even
    assert rate.ns_per_tick() == pytest.approx(1.0, rel=1e-3)


def test_real_counter_is_known():
    pytest.importorskip("launchkit.dispatch.native._core")
    # In a process of its own: launches are timed with the counter that is chosen.
    ns_per_tick = in_python(
        "from launchkit import clock\n"
        "from launchkit.dispatch.native import _core\n"
        "_core.use_clock(True)\n"
        "print(clock.TickRate(_core.ticks).ns_per_tick())"
    )
    assert float(ns_per_tick) == pytest.approx(1.0, rel=1e-3)
