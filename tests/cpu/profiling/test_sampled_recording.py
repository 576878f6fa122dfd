"""profile_launches(sample_every=…): a random sample of launches, by each core."""

from __future__ import annotations

import math

import pytest
from recording import known, launch, named

from launchkit.errors import UsageError
from launchkit.profiling import annotate, profile_launches

pytestmark = pytest.mark.usefixtures("host")


@pytest.mark.usefixtures("each_core")
class TestEachCore:
    def test_every_launch_is_seen_and_about_one_of_so_many_is_recorded(self):
        kernel = known()
        with profile_launches(sample_every=8) as profile, annotate("op", layer=2):
            launch(kernel, 4000)
        (row,) = profile.rows
        assert (row.path, row.layer) == (("op",), 2)
        assert profile.seen == 4000
        # Intervals are uniform from 1 to 15, mean 8: six standard errors of their number.
        assert abs(row.launches - 500) < 6 * math.sqrt(4000 * 18.7 / 8**3)
        assert row.total_us > 0
        assert profile.sample_every == profile.to_dict()["sample_every"] == 8
        assert "one of 8 launches" in " ".join(str(profile).split())

    def test_a_pattern_of_launches_is_sampled_evenly(self):
        kernels = [known(named(name)) for name in ("a", "b", "c", "d")]
        with profile_launches(sample_every=4) as profile:
            for _ in range(1500):
                for kernel in kernels:
                    launch(kernel)
        counts = {row.kernel: row.launches for row in profile.rows}
        assert set(counts) == {"a", "b", "c", "d"}
        assert all(200 < launches < 600 for launches in counts.values())

    def test_each_launch_is_in_the_range_that_was_open_around_it(self):
        kernel = known()
        with profile_launches(sample_every=2) as profile:
            for _ in range(300):
                with annotate("outer"):
                    launch(kernel)
                    with annotate("inner", layer=1):
                        launch(kernel)
                launch(kernel)
        assert {(row.path, row.layer) for row in profile.rows} == {
            (("outer",), None),
            (("outer", "inner"), 1),
            ((), None),
        }
        assert all(row.calls == 0 for row in profile.ranges)

    def test_failed_launches_are_sampled_too(self):
        def raises(meta):
            raise KeyError(1)

        kernel = known()
        with profile_launches(sample_every=2) as profile:
            for _ in range(200):
                with pytest.raises(KeyError):
                    launch(kernel, grid=raises)
        (row,) = profile.rows
        assert (row.launches, profile.seen) == (0, 200)
        assert 50 < row.failed < 160


def test_replays_of_ops_are_sampled_with_all_their_launches(c_core):
    import sample_kernels
    import torch
    from sample_ops import counted

    import launchkit

    x = torch.empty(100)

    def copying(x, out, *rest, **options):
        between = torch.empty_like(x)
        for source, target in ((x, between), (between, out)):
            launchkit.launch(sample_kernels.copy, (7,), source, target, 100, 1, BLOCK=16)

    op, _ = counted(copying)
    while op.op_plans.replays < 2:
        op(x, x)
    with profile_launches(sample_every=5) as profile, annotate("layer"):
        for _ in range(1000):
            op(x, x)
    (replays,) = profile.ops
    (launches,) = profile.rows
    assert replays.path == launches.path == ("layer",)
    assert launches.launches == 2 * replays.launches
    assert 120 < replays.launches < 320
    assert profile.seen == 1000


@pytest.mark.parametrize("number", [0, -3, 1.5, True, "2", 2**40])
def test_a_number_that_is_none_is_refused_where_it_is_given(number):
    with pytest.raises(UsageError, match="sample_every="), profile_launches(sample_every=number):
        pass
