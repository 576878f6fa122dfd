"""The phases of recorded launches: known of the C core, not of its twin."""

from __future__ import annotations

import pytest
import triton
from recording import X, known, launch, named, waits
from sample_kernels import plain

import launchkit
from launchkit import hostonly
from launchkit.dispatch import launcher
from launchkit.profiling import profile_launches

pytestmark = pytest.mark.usefixtures("host")


@pytest.mark.usefixtures("c_core")
class TestPhases:
    def test_each_launch_from_a_plan_has_its_phases(self):
        kernel = named("mine")
        with profile_launches() as profile:
            launch(kernel, 5)
        (row,) = profile.rows
        assert row.launches == 5
        assert {name: phase.launches for name, phase in row.phases.items()} == {
            "find": 4,
            "grid": 4,
            "driver": 4,
        }

    def test_the_phases_of_a_launch_are_within_its_time(self):
        kernel = known()
        with profile_launches() as profile:
            launch(kernel, 2000)
        (row,) = profile.rows
        rounding_us = 2000 * 0.002
        assert sum(phase.total_us for phase in row.phases.values()) <= row.total_us + rounding_us
        assert all(phase.median_us <= row.median_us for phase in row.phases.values())

    def test_time_in_the_grid_function_is_in_the_phase_of_the_grid(self):
        kernel = known()
        with profile_launches() as profile:
            launch(kernel, 3, grid=waits(3_000_000))
        (row,) = profile.rows
        assert row.phases["grid"].total_us > 3 * 3000 * 0.99
        assert row.phases["grid"].median_us > 3000 * 0.99
        assert row.total_us >= row.phases["grid"].total_us

    @pytest.mark.parametrize(
        "grid", [(0,), [2, 3], lambda meta: [1, 2]], ids=["0", "2 3", "function"]
    )
    def test_launches_over_any_grid_have_their_phases(self, grid):
        kernel = known()
        with profile_launches() as profile:
            launch(kernel, 3, grid=grid)
        (row,) = profile.rows
        assert (row.launches, row.phases["driver"].launches) == (3, 3)

    def test_heuristics_count_as_finding_the_plan(self):
        kernel = triton.heuristics({"stride": lambda args: 3})(plain())
        for _ in range(2):
            launchkit.launch(kernel, (1,), X, X, 100, BLOCK=16)
        with profile_launches() as profile:
            for _ in range(3):
                launchkit.launch(kernel, (1,), X, X, 100, BLOCK=16)
        (row,) = profile.rows
        assert (row.launches, row.phases["find"].launches) == (3, 3)

    def test_recording_puts_nothing_in_front_of_the_core(self):
        kernel = known()
        before = launcher.adopt(kernel).fast
        with profile_launches():
            assert launcher.adopt(kernel).fast is before
        assert launcher.adopt(kernel).fast is before

    def test_launches_nested_too_deep_are_counted_as_lost(self):
        kernels = [known(named(f"kernel {i}")) for i in range(20)]

        def grid_at(depth):
            def grid(meta):
                if depth < len(kernels):
                    launch(kernels[depth], grid=grid_at(depth + 1))
                return (1,)

            return grid

        with profile_launches() as profile:
            launch(kernels[0], grid=grid_at(1))
        recorded = sum(row.launches for row in profile.rows)
        assert (recorded, profile.lost) == (16, 4)
        assert "4 launches could not be recorded" in " ".join(str(profile).split())

    def test_launches_of_a_mode_that_is_entered_anew_are_seen_as_host_only(self):
        kernel = known()
        with profile_launches() as profile:
            launch(kernel, 3)
            hostonly.deactivate()
            with hostonly.activate(devices=2):
                launch(kernel, 2)
        assert profile.to_dict()["host_only_launches"] == 5


@pytest.mark.usefixtures("python_core")
class TestWithoutTheCCore:
    def test_phases_are_not_known(self):
        with profile_launches() as profile:
            launch(known(), 3)
        (row,) = profile.rows
        assert row.phases == {"find": None, "grid": None, "driver": None}

    def test_leaving_restores_each_kernels_own_launch_function(self):
        kernel = known()
        before = launcher.adopt(kernel).fast
        with profile_launches():
            assert launcher.adopt(kernel).fast is not before
            late = known(named("late"))
        assert launcher.adopt(kernel).fast is before
        with profile_launches() as after:
            pass
        launch(late)
        assert after.rows == ()
