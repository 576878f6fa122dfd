"""profile_launches without the C core: exact figures on a fake clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from recording import launches_by_row

from launchkit import clock
from launchkit.errors import UsageError
from launchkit.profiling import annotate, profile_launches, ranges, recorder

TICK_NS = 10
"""What reading the fake clock costs."""


class FakeClock:
    def __init__(self) -> None:
        self.time_ns = 0

    def now_ns(self) -> int:
        self.time_ns += TICK_NS
        return self.time_ns


class FakeLauncher:
    """The dispatcher's side of the launch slot, for kernels that only take time."""

    def __init__(self, time: FakeClock) -> None:
        self._time = time
        self._plain: dict[str, Callable[..., object]] = {}
        self._wrap: Callable[..., Callable[..., object]] | None = None
        self.fast: dict[str, Callable[..., object]] = {}

    def recording_extension(self) -> None:
        return None

    def is_interpreting(self) -> bool:
        return False

    def set_launch_slot(self, wrap: Callable[..., Callable[..., object]] | None) -> None:
        self._wrap = wrap
        for name, fn in self._plain.items():
            self.fast[name] = fn if wrap is None else wrap(fn, name)

    def adopt(self, name: str) -> None:
        def kernel(grid: object, *args: object, takes_ns: int = 0, fails: bool = False) -> object:
            self._time.time_ns += takes_ns
            if fails:
                raise RuntimeError(name)
            return name, grid, args

        self._plain[name] = kernel
        self.fast[name] = kernel if self._wrap is None else self._wrap(kernel, name)

    def launch(self, name: str, takes_ns: int = 0, *args: object, fails: bool = False) -> object:
        return self.fast[name]((1,), *args, takes_ns=takes_ns, fails=fails)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> FakeLauncher:
    time = FakeClock()
    monkeypatch.setattr(clock, "now_ns", time.now_ns)
    fake = FakeLauncher(time)
    monkeypatch.setattr(recorder, "launcher", fake)
    fake.adopt("scan")
    fake.adopt("conv")
    return fake


class TestFigures:
    def test_a_launch_costs_what_it_took_and_not_what_the_clock_took(
        self, launcher: FakeLauncher
    ) -> None:
        with profile_launches() as profile:
            for takes_ns in (3000, 1000, 2000):
                launcher.launch("scan", takes_ns)
        (row,) = profile.rows
        assert (row.kernel, row.launches, row.total_us, row.median_us) == ("scan", 3, 6.0, 2.0)
        assert (row.p10_us, row.p90_us) == (pytest.approx(1.2), pytest.approx(2.8))

    def test_own_overhead_is_calibrated_and_reported(self, launcher: FakeLauncher) -> None:
        with profile_launches() as profile:
            pass
        assert profile.overhead_us == TICK_NS / 1000
        # Between two outer readings of the clock lie the recorder's own two.
        assert profile.added_us == (3 * TICK_NS - TICK_NS) / 1000

    def test_a_launch_returns_what_the_kernel_returns(self, launcher: FakeLauncher) -> None:
        with profile_launches():
            assert launcher.launch("scan", 0, "a", "b") == ("scan", (1,), ("a", "b"))

    def test_a_launch_that_raises_is_counted_as_failed_and_has_no_time(
        self, launcher: FakeLauncher
    ) -> None:
        with profile_launches() as profile:
            launcher.launch("scan", 1000)
            with annotate("ssd"), pytest.raises(RuntimeError, match="scan"):
                launcher.launch("scan", 5000, fails=True)
            launcher.launch("scan", 1000)
        outside, inside = profile.rows
        assert [row.path for row in (outside, inside)] == [(), ("ssd",)]
        assert (outside.launches, outside.failed, outside.total_us) == (2, 0, 2.0)
        assert (inside.launches, inside.failed, inside.total_us) == (0, 1, 0.0)

    def test_the_sample_limit_is_the_callers(self, launcher: FakeLauncher) -> None:
        with profile_launches(samples_per_row=2) as profile:
            for takes_ns in (1000, 3000, 90_000):
                launcher.launch("scan", takes_ns)
        (row,) = profile.rows
        assert (row.launches, row.dropped, row.median_us, row.total_us) == (3, 1, 2.0, 94.0)

    def test_a_profile_can_be_read_while_it_is_recorded(self, launcher: FakeLauncher) -> None:
        with profile_launches() as profile:
            assert profile.rows == ()
            launcher.launch("scan", 1000)
            assert [row.launches for row in profile.rows] == [1]


class TestAttribution:
    def test_launches_belong_to_the_innermost_range_and_to_all_around_it(
        self, launcher: FakeLauncher
    ) -> None:
        with profile_launches() as profile:
            for layer in (0, 1):
                with annotate("mamba", layer=layer):
                    launcher.launch("conv", 1000)
                    with annotate("ssd"):
                        launcher.launch("scan", 2000)
                        launcher.launch("scan", 2000)
            launcher.launch("conv", 1000)
        assert launches_by_row(profile) == {
            ("", None, "conv"): 1,
            ("mamba", 0, "conv"): 1,
            ("mamba", 1, "conv"): 1,
            ("mamba/ssd", 0, "scan"): 2,
            ("mamba/ssd", 1, "scan"): 2,
        }
        inclusive = {("/".join(row.path), row.layer): row.total_us for row in profile.ranges}
        assert inclusive == {
            ("mamba", 0): 5.0,
            ("mamba", 1): 5.0,
            ("mamba/ssd", 0): 4.0,
            ("mamba/ssd", 1): 4.0,
        }

    def test_a_decorated_function_is_a_range(self, launcher: FakeLauncher) -> None:
        @annotate("step")
        def step() -> None:
            launcher.launch("scan")

        with profile_launches() as profile:
            step()
        assert launches_by_row(profile) == {("step", None, "scan"): 1}

    def test_a_range_left_by_an_exception_is_closed(self, launcher: FakeLauncher) -> None:
        with profile_launches() as profile:
            with pytest.raises(KeyError), annotate("outer"), annotate("inner"):
                raise KeyError
            launcher.launch("scan")
        assert launches_by_row(profile) == {("", None, "scan"): 1}

    def test_a_range_opened_before_the_recording_is_not_part_of_the_path(
        self, launcher: FakeLauncher
    ) -> None:
        before = annotate("before")
        before.__enter__()
        with profile_launches() as profile, annotate("inside"):
            launcher.launch("scan")
            before.__exit__()
            launcher.launch("conv")
        assert launches_by_row(profile) == {
            ("inside", None, "scan"): 1,
            ("inside", None, "conv"): 1,
        }

    def test_ranges_that_cross_close_the_one_that_is_left(self, launcher: FakeLauncher) -> None:
        first, second = annotate("first"), annotate("second")
        with profile_launches() as profile:
            first.__enter__()
            second.__enter__()
            first.__exit__()
            third = annotate("third")
            with third:
                launcher.launch("scan")
            second.__exit__()
            launcher.launch("scan")
        assert launches_by_row(profile) == {
            ("first/second/third", None, "scan"): 1,
            ("", None, "scan"): 1,
        }

    def test_each_threads_launches_belong_to_its_own_ranges(self, launcher: FakeLauncher) -> None:
        both_inside, launches = threading.Barrier(2), 200

        def work(name: str) -> None:
            with annotate(name):
                both_inside.wait(timeout=30)
                for _ in range(launches):
                    launcher.launch("scan")

        with profile_launches() as profile, annotate("main"):
            workers = [threading.Thread(target=work, args=(f"worker {i}",)) for i in range(2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            launcher.launch("scan")
        assert launches_by_row(profile) == {
            ("worker 0", None, "scan"): launches,
            ("worker 1", None, "scan"): launches,
            ("main", None, "scan"): 1,
        }


class TestStartAndEnd:
    def test_leaving_restores_the_unprofiled_functions(self, launcher: FakeLauncher) -> None:
        plain = dict(launcher.fast)
        ends = annotate.__enter__, annotate.__exit__
        with profile_launches():
            assert all(launcher.fast[name] is not fn for name, fn in plain.items())
            assert annotate.__enter__ is not ends[0]
        assert all(launcher.fast[name] is fn for name, fn in plain.items())
        assert annotate.__enter__ is ends[0]
        assert annotate.__exit__ is ends[1]

    def test_an_exception_in_the_block_passes_and_ends_the_recording(
        self, launcher: FakeLauncher
    ) -> None:
        plain = dict(launcher.fast)
        with pytest.raises(KeyError), profile_launches() as profile:
            launcher.launch("scan", 1000)
            raise KeyError
        assert launcher.fast == plain
        assert launches_by_row(profile) == {("", None, "scan"): 1}

    def test_a_dispatcher_that_refuses_leaves_nothing_behind(
        self, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(wrap: object) -> None:
            if wrap is not None:
                raise RuntimeError("refused")

        with monkeypatch.context() as patch:
            patch.setattr(launcher, "set_launch_slot", refuse)
            with pytest.raises(RuntimeError, match="refused"), profile_launches():
                pass
        assert (annotate.__enter__, annotate.__exit__) == ranges._plain_ends
        with profile_launches():
            pass

    def test_kernels_adopted_while_recording_are_recorded(self, launcher: FakeLauncher) -> None:
        with profile_launches() as profile:
            launcher.adopt("late")
            launcher.launch("late")
        assert launches_by_row(profile) == {("", None, "late"): 1}

    def test_launches_after_the_end_are_not_recorded(self, launcher: FakeLauncher) -> None:
        with profile_launches() as profile:
            launcher.launch("scan", 1000)
            still_timed = launcher.fast["scan"]
        launcher.launch("scan", 1000)
        still_timed((1,))
        assert launches_by_row(profile) == {("", None, "scan"): 1}

    def test_a_second_recording_starts_from_nothing(self, launcher: FakeLauncher) -> None:
        with profile_launches():
            launcher.launch("scan")
        with profile_launches() as second:
            launcher.launch("conv")
        assert launches_by_row(second) == {("", None, "conv"): 1}

    def test_a_nested_recording_is_refused_and_the_outer_one_goes_on(
        self, launcher: FakeLauncher
    ) -> None:
        with profile_launches() as profile:
            with pytest.raises(UsageError, match="already being recorded"), profile_launches():
                pass
            launcher.launch("scan")
        assert launches_by_row(profile) == {("", None, "scan"): 1}

    @pytest.mark.parametrize("samples_per_row", [0, -1, "5", None, 1.5, float("nan"), True])
    def test_a_limit_that_keeps_nothing_is_refused(self, samples_per_row: Any) -> None:
        refused = pytest.raises(UsageError, match="Pass 1 or more")
        with refused, profile_launches(samples_per_row=samples_per_row):
            pass
        with profile_launches():
            pass
