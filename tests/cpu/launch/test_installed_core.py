"""install() with the C core: nothing of Python stands in front of a fast launch, misuse is refused."""

from __future__ import annotations

import gc
import sys
from array import array

import pytest
import sample_kernels
import torch
import triton
import triton.language as tl
from installing import fast, installed, triton_launches
from launching import outcome
from sample_kernels import plain

import launchkit
from launchkit import hostonly, settings
from launchkit.dispatch.native import extension

pytestmark = pytest.mark.usefixtures("c_core", "host")

X = torch.empty(128)
COPY = (X, X, 100, 3)


@pytest.fixture(autouse=True)
def never_left_installed():
    yield
    launchkit.uninstall()


def autotuned():
    return triton.autotune(sample_kernels.configs(16, 32), ["n"])(plain())


@triton.jit
def shifted(x_ptr, n, m=7, HAS_M: tl.constexpr = False, BLOCK: tl.constexpr = 16):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets) + n
    if HAS_M:
        value += m
    tl.store(x_ptr + offsets, value)


def with_heuristics():
    heuristics = {"HAS_M": lambda args: args["m"] is not None}
    return triton.heuristics(heuristics)(triton.jit(shifted.fn))


def core_of(kernel):
    return kernel._launchkit_entry._core


class TestSubscript:
    @pytest.mark.parametrize("make", [plain, autotuned])
    def test_known_kernel_is_bound_by_the_extension(self, make):
        options = {} if make is autotuned else {"BLOCK": 16}
        kernel, native = make(), extension.active()
        with installed():
            kernel[(2,)](*COPY, **options)
            assert type(kernel[(2,)]) is native.BoundLaunch
        assert type(kernel[(2,)]) is not native.BoundLaunch

    def test_kernel_left_out_is_not(self):
        kernel = plain()
        with installed(exclude="*"):
            kernel[(2,)](*COPY, BLOCK=16)
            assert type(kernel[(2,)]) is not extension.active().BoundLaunch

    def test_new_patterns_hold_for_a_kernel_that_was_known(self):
        kernel = plain()
        with installed():
            kernel[(2,)](*COPY, BLOCK=16)
            launchkit.install(exclude="sample_kernels.*")
            assert type(kernel[(2,)]) is not extension.active().BoundLaunch
            launchkit.install()
            kernel[(2,)](*COPY, BLOCK=16)
            assert type(kernel[(2,)]) is extension.active().BoundLaunch

    def test_it_is_a_method_of_the_class_and_of_the_kernel(self):
        kernel = plain()
        expected = triton_launches(kernel, *COPY, BLOCK=16)
        with installed():
            for getitem in (
                kernel.__getitem__,
                lambda grid: type(kernel).__getitem__(kernel, grid),
            ):
                assert outcome(lambda get=getitem: get((2,))(*COPY, BLOCK=16))[1] == expected

    def test_wrong_calls_are_refused(self):
        with installed():
            getitem = type(plain()).__getitem__
            for args in [(), (plain(),), (plain(), (1,), 2)]:
                with pytest.raises(TypeError):
                    getitem(*args)
            with pytest.raises(AttributeError):
                getitem(3, (1,))((1,))

    def test_no_launch_leaks(self):
        kernel, grid, tested = plain(), (2,), with_heuristics()
        with installed():

            def calls():
                for _ in range(200):
                    kernel[grid](*COPY, BLOCK=16)
                    tested[grid](X, n=5, m=None)

            calls()
            things = [X, grid, kernel, tested, tested._launchkit_entry, True, False, None]
            before = [sys.getrefcount(thing) for thing in things]
            calls()
            after = [sys.getrefcount(thing) for thing in things]
        changes = [b - a for a, b in zip(before, after, strict=True)]
        assert all(abs(change) < 20 for change in changes), changes


class TestHeuristics:
    def test_none_heuristics_are_computed_by_the_extension(self):
        kernel = with_heuristics()
        with installed():
            kernel[(2,)](X, 5, 7)
            assert type(kernel._launchkit_entry.fast) is extension.active().HeuristicFront

    @pytest.mark.parametrize("m", [7, None, 1])
    def test_defaults_of_other_arguments_are_taken_as_triton_takes_them(self, m):
        kernel = with_heuristics()
        expected = triton_launches(kernel, X, n=5, m=m)
        with installed() as runs:
            kernel[(2,)](X, n=5, m=m)
            assert fast(runs, lambda: kernel[(2,)](X, n=5, m=m)) == expected

    def test_default_of_the_argument_asked_for_is_none_of_tritons(self):
        kernel = with_heuristics()
        with installed():
            kernel[(2,)](X, n=5, m=7)
            with pytest.raises(KeyError):  # the heuristic's own
                kernel[(2,)](X, n=5)

    def test_grid_function_sees_their_values(self):
        kernel, seen = with_heuristics(), []

        def grid(meta):
            seen.append((meta["HAS_M"], meta["m"], meta["BLOCK"]))
            return (1,)

        with installed():
            for m in (7, None, 7, None):
                kernel[grid](X, 5, m)
        assert seen == [(True, 7, 16), (False, None, 16)] * 2

    def test_launches_are_recorded_and_counted_under_their_name(self):
        kernel = with_heuristics()
        with installed():
            kernel[(2,)](X, 5, 7)
            launchkit.stats(reset=True)
            with launchkit.profile_launches() as profile:
                for _ in range(3):
                    kernel[(2,)](X, 5, 7)
        assert [row.launches for row in profile.rows] == [3]
        (row,) = launchkit.stats().values()
        assert (row.fast, row.slow) == (3, 0)

    def test_verified_launches_are_compared_with_tritons(self, monkeypatch):
        monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
        settings.reload()
        kernel = with_heuristics()
        expected = triton_launches(kernel, X, n=5, m=7)
        with installed():
            for _ in range(3):
                hostonly.clear()
                kernel[(2,)](X, n=5, m=7)
                assert hostonly.launches() == expected

    @pytest.mark.parametrize("items", [((9, 0, 1),), ((-1, 0, 1),), ((3, 9, 1),), ((0, 1, 1),)])
    def test_front_for_another_signature_misses(self, items):
        kernel, native = with_heuristics(), extension.active()
        with installed():
            kernel[(2,)](X, 5, 7)
            below = kernel.fn._launchkit_entry
            front = native.HeuristicFront(below, items, native.WatchSet((), ()), len)
            hostonly.clear()
            assert repr(front((2,), X, 5, 7)) == "MISS"
        assert hostonly.launches() == []

    def test_misuse_is_refused(self):
        native = extension.active()
        below, watched = native.Entry(), native.WatchSet((), ())
        for wrong in [(3,), ((1, 2),), (("x", 0, True),)]:
            with pytest.raises(TypeError):
                native.HeuristicFront(below, wrong, watched, len)
        with pytest.raises(TypeError):
            native.HeuristicFront(None, (), watched, len)
        front = native.HeuristicFront(below, (), watched, lambda *args: args)
        assert front((2,), 3) == ((2,), 3)  # what is below has no core
        with pytest.raises(TypeError):
            front()


class TestCounter:
    def test_launches_and_nothing_else_are_counted(self):
        kernel, count = plain(), array("Q", [5, 2])
        launchkit.launch(kernel, (2,), *COPY, BLOCK=16)
        core_of(kernel).launch.count_into(count)
        for _ in range(3):
            launchkit.launch(kernel, (2,), *COPY, BLOCK=16)
        with pytest.raises(LookupError):
            launchkit.launch(kernel, lambda meta: {}["no"], *COPY, BLOCK=16)
        launchkit.launch(kernel, (2,), X, X, 1, 3, BLOCK=16)  # another kind: a miss
        assert list(count) == [8, 2]
        core_of(kernel).launch.count_into(None)
        launchkit.launch(kernel, (2,), *COPY, BLOCK=16)
        assert list(count) == [8, 2]

    def test_buffer_is_held_while_it_is_counted_into_and_no_longer(self):
        kernel, count = autotuned(), array("Q", [0, 0])
        launchkit.launch(kernel, (2,), *COPY)
        core_of(kernel).launch.count_into(count)
        with pytest.raises(BufferError):
            count.append(1)
        core_of(kernel).launch.count_into(array("Q", [0, 0]))
        count.append(1)
        last = array("Q", [0, 0])
        core_of(kernel).launch.count_into(last)
        del kernel
        gc.collect()
        last.append(1)

    @pytest.mark.parametrize(
        "wrong", [array("Q"), array("I", [1]), bytes(16), 3, array("Q", [1]), array("Q", [1, 2, 3])]
    )
    def test_other_buffers_are_refused(self, wrong):
        kernel = plain()
        launchkit.launch(kernel, (2,), *COPY, BLOCK=16)
        with pytest.raises((TypeError, ValueError, BufferError)):
            core_of(kernel).launch.count_into(wrong)
        launchkit.launch(kernel, (2,), *COPY, BLOCK=16)
