"""profile_launches of real kernels, in host-only mode, on the real clock; by each core."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest
import sample_kernels
import triton
from installing import installed
from recording import NAME, X, known, launch, launches_by_row, named
from sample_kernels import plain
from subprocesses import in_python

import launchkit
from launchkit import hostonly
from launchkit.errors import UsageError
from launchkit.profiling import annotate, profile_launches
from launchkit.profiling.recording import tally as tally_module

pytestmark = pytest.mark.usefixtures("host")


@pytest.mark.usefixtures("each_core")
class TestEachCore:
    def test_every_spelling_of_a_launch_is_recorded_once(self):
        tuned, jit = named("tuned"), plain()
        with profile_launches() as profile, annotate("copy", layer=5):
            for _ in range(3):
                with annotate("grid"):
                    tuned[(2,)](X, X, 100, 3)
                with annotate("launch_autotuned"):
                    launchkit.launch_autotuned(tuned, (2,), X, X, n=100, stride=3)
                with annotate("launch"):
                    launchkit.launch(jit, (2,), X, X, 100, 3, BLOCK=16)
        assert launches_by_row(profile) == {
            ("copy/grid", 5, "tuned"): 3,
            ("copy/launch_autotuned", 5, "tuned"): 3,
            ("copy/launch", 5, NAME): 3,
        }
        assert all(row.total_us > 0 for row in profile.rows)

    @pytest.mark.parametrize("layers", ["outer", "inner", "both"])
    def test_launch_of_a_kernel_with_heuristics_is_recorded_once(self, layers):
        jit = plain()
        inner = triton.heuristics({"stride": lambda args: 3})(jit) if layers != "outer" else jit
        kernel = triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 32)], ["n"])(inner)
        if layers != "inner":
            kernel = triton.heuristics({"stride": lambda args: 3})(kernel)
        with profile_launches() as profile:
            for _ in range(4):
                launchkit.launch(kernel, (1,), X, X, 100)
        assert launches_by_row(profile) == {("", None, NAME): 4}

    def test_every_spelling_under_install_is_recorded_once(self):
        with installed(), profile_launches() as profile:
            kernel = plain()
            for _ in range(3):
                kernel[(1,)](X, X, 100, 3, BLOCK=16)
                kernel.run(X, X, 100, 3, BLOCK=16, grid=(1,), warmup=False)
        assert launches_by_row(profile) == {("", None, NAME): 6}

    def test_launch_beneath_an_autotuner_of_another_kind_is_part_of_its_launch(self):
        class OwnTuner(triton.runtime.Autotuner):
            def run(self, *args, **kwargs):
                return self.fn.run(*args, **kwargs, **self.configs[0].all_kwargs())

        kernel = OwnTuner(
            plain(), ["x_ptr", "y_ptr", "n", "stride", "BLOCK"], sample_kernels.configs(16), ["n"],
            None, None,
        )  # fmt: skip
        with installed():
            kernel[(1,)](X, X, 100, 3)
            with profile_launches() as profile:
                for _ in range(3):
                    kernel[(1,)](X, X, 100, 3)
        assert launches_by_row(profile) == {("", None, NAME): 3}

    def test_launch_of_another_kernel_inside_one_is_recorded_by_itself(self):
        outer, inner = known(named("outer")), known(named("inner"))

        def grid(meta):
            launch(inner, 2)
            return (1,)

        with profile_launches() as profile, annotate("around"):
            launch(outer, grid=grid)
        assert launches_by_row(profile) == {
            ("around", None, "outer"): 1,
            ("around", None, "inner"): 2,
        }
        by_kernel = {row.kernel: row.total_us for row in profile.rows}
        assert by_kernel["outer"] > by_kernel["inner"]

    def test_recorded_launches_launch_what_unrecorded_ones_do(self):
        tuned, jit = known(), plain()

        def launch_all():
            hostonly.clear()
            tuned[(2,)](X, X, 100, 3)
            launch(jit, BLOCK=16)
            return [(done.kernel, done.grid, done.params) for done in hostonly.launches()]

        launch_all()
        unrecorded = launch_all()
        with profile_launches():
            assert launch_all() == unrecorded
        assert len(unrecorded) == 2

    def test_launch_that_is_refused_is_counted_as_failed(self):
        with profile_launches() as profile, pytest.raises(TypeError):
            launchkit.launch(plain(), (2,), X, BLOCK=16)
        (row,) = profile.rows
        assert (row.launches, row.failed) == (0, 1)

    def test_known_launch_whose_grid_raises_is_counted_as_failed(self):
        kernel = known()

        def grid(meta):
            raise KeyError("grid")

        with profile_launches() as profile:
            launch(kernel)
            with pytest.raises(KeyError, match="grid"):
                launch(kernel, grid=grid)
            launch(kernel)
        (row,) = profile.rows
        assert (row.launches, row.failed) == (2, 1)

    def test_each_thread_has_its_own_ranges_and_its_own_row(self):
        kernel, times = known(), 3000
        both_inside = threading.Barrier(2)

        def work(name):
            with annotate(name):
                both_inside.wait(timeout=60)
                launch(kernel, times)

        with profile_launches() as profile, annotate("main"):
            workers = [
                threading.Thread(target=work, args=(f"range {i}",), name=f"worker {i}")
                for i in range(2)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            launch(kernel)
        assert launches_by_row(profile) == {
            ("range 0", None, "known"): times,
            ("range 1", None, "known"): times,
            ("main", None, "known"): 1,
        }
        counts = {row.thread: row.launches for row in profile.threads}
        assert counts == {"worker 0": times, "worker 1": times, threading.main_thread().name: 1}
        assert sum(row.total_us for row in profile.threads) == pytest.approx(
            sum(row.total_us for row in profile.rows)
        )

    def test_more_launches_than_any_buffer_holds_are_all_counted(self):
        kernel = known()
        with profile_launches(samples_per_row=1000) as profile:
            launch(kernel, 6000)
            assert [row.launches for row in profile.rows] == [6000]
            launch(kernel, 5000)
        (row,) = profile.rows
        assert (row.launches, row.dropped) == (11_000, 10_000)
        assert row.total_us >= 11_000 * row.p10_us * 0.1

    def test_samples_are_bounded_over_all_rows(self, monkeypatch):
        monkeypatch.setattr(tally_module, "MAX_SAMPLES", 10)
        kernels = [known(named(name)) for name in ("one", "other")]
        with profile_launches() as profile:
            for kernel in kernels:
                launch(kernel, 8)
        assert sum(row.launches for row in profile.rows) == 16
        assert sum(row.dropped for row in profile.rows) == 6

    def test_second_recording_starts_from_nothing(self):
        kernel = known()
        with profile_launches() as first, annotate("first"):
            launch(kernel, 2)
        launch(kernel, 3)
        with profile_launches() as second:
            launch(kernel, 4)
        assert launches_by_row(first) == {("first", None, "known"): 2}
        assert launches_by_row(second) == {("", None, "known"): 4}

    def test_kernels_adopted_while_recording_are_recorded(self):
        with profile_launches() as profile:
            launch(named("late"), 2)
        assert launches_by_row(profile) == {("", None, "late"): 2}

    def test_recording_that_ends_inside_a_launch_leaves_it_out(self):
        kernel = known()
        manager = profile_launches()
        profile = manager.__enter__()

        def grid(meta):
            manager.__exit__(None, None, None)
            return (1,)

        launch(kernel)
        launch(kernel, grid=grid)
        launch(kernel)
        assert launches_by_row(profile) == {("", None, "known"): 1}

    def test_recording_that_begins_inside_a_launch_leaves_it_out(self):
        kernel, inner = known(), known(named("inner"))
        managers = []

        def grid(meta):
            managers.append(profile_launches())
            managers.append(managers[0].__enter__())
            launch(inner)
            return (1,)

        launch(kernel, grid=grid)
        manager, profile = managers
        launch(inner)
        manager.__exit__(None, None, None)
        assert launches_by_row(profile) == {("", None, "inner"): 2}

    def test_nested_recording_is_refused_and_the_outer_one_goes_on(self):
        kernel = known()
        with profile_launches() as profile:
            with pytest.raises(UsageError, match="already being recorded"), profile_launches():
                pass
            launch(kernel)
        assert launches_by_row(profile) == {("", None, "known"): 1}

    def test_profile_keeps_no_kernel_alive(self):
        kernel = known()
        with profile_launches() as profile:
            launch(kernel, 3)
            watched = weakref.ref(kernel)
            del kernel
            gc.collect()
            assert watched() is None
            assert launches_by_row(profile) == {("", None, "known"): 3}

    def test_mode_says_where_the_launches_went(self):
        with profile_launches() as profile:
            assert not profile.host_only
            launch(plain(), BLOCK=16)
        assert profile.host_only
        assert profile.to_dict()["mode"] == "host-only"
        assert profile.to_dict()["host_only_launches"] == 1

    def test_the_json_holds_what_the_dictionary_holds(self):
        with profile_launches() as profile, annotate("around"):
            launch(known(), 3)
        from launchkit import jsonio

        found = jsonio.loads(profile.to_json(), source="profile", limit_bytes=10**6)
        assert found == profile.to_dict()
        assert set(found) == {
            "schema", "mode", "host_only_launches", "lost", "overhead_us", "added_us", "calibration",
            "sample_every", "seen", "rows", "ops", "ranges", "by_op", "by_layer", "threads",
            "processes",
        }  # fmt: skip
        assert set(found["rows"][0]["phases"]) == {"find", "grid", "driver"}


def test_launches_that_are_interpreted_are_labelled_so():
    found = in_python(
        f"import sys; sys.path.insert(0, {str(Path(sample_kernels.__file__).parent)!r})\n"
        "import torch, launchkit\n"
        "from sample_kernels import copy\n"
        "with launchkit.profile_launches() as profile:\n"
        "    launchkit.launch(copy, (1,), torch.ones(8), torch.ones(8), 8, 1, BLOCK=8)\n"
        "print(profile.mode, profile.to_dict()['mode'], profile.rows[0].launches, profile.host_only)\n"
        "print('interpreted' in str(profile))",
        TRITON_INTERPRET="1",
    )
    assert found.split() == ["interpreter", "interpreter", "1", "False", "True"]
