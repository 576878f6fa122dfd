"""The C core's recorder, driven by hand: misuse raises, and neither leaks nor crashes."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import sample_kernels
import torch
import triton

import launchkit
from launchkit.dispatch.native import extension

pytestmark = pytest.mark.usefixtures("c_core", "host")

X = torch.empty(64)


@pytest.fixture
def kernel():
    kernel = triton.jit(sample_kernels.copy.fn)
    launch(kernel, 2)
    return kernel


@pytest.fixture
def running():
    """Makes recorders that are stopped after the test."""
    made = []

    def make(name_of=lambda owner: 1, new_thread=lambda: 0, limit=100):
        made.append(extension.active().LaunchRecorder(name_of, new_thread, limit, 1000))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def launch(kernel, times=1):
    for _ in range(times):
        launchkit.launch(kernel, (1,), X, X, 64, 1, BLOCK=16)


def test_records_are_taken_once(kernel, running):
    recorder = running()
    recorder.start(3)
    launch(kernel, 7)
    (group,) = recorder.take(1.0)
    range_number, thread, number, op, kind, host_only, launches, columns, starts = group
    assert (range_number, thread, number, op, kind, host_only, launches) == (0, 0, 1, 0, 0, 0, 7)
    assert [len(samples) for _, samples in columns] == [7 * 8] * 4
    assert all(ticks > 0 for ticks, _ in columns)
    began = memoryview(starts).cast("q").tolist()
    assert len(began) == 7
    assert began == sorted(began)
    assert recorder.take(1.0) == []
    recorder.set_range(5)
    launch(kernel)
    assert [(each[0], each[6]) for each in recorder.take(1.0)] == [(5, 1)]


def test_calibration_has_a_figure_for_each_round_and_leaves_no_record(running):
    recorder = running()
    between, added = recorder.start(50)
    assert (len(between), len(added)) == (50, 50)
    assert all(ticks >= 0 for ticks in between)
    assert recorder.take(1.0) == []


@pytest.mark.parametrize("wrong", [None, "1", -1, 2**40])
def test_number_that_is_none_fails_the_launch_before_it_is_made(kernel, running, host, wrong):
    recorder = running(name_of=lambda owner: 0 if owner is None else wrong)
    recorder.start(3)
    host.clear()
    with pytest.raises((TypeError, ValueError)):
        launch(kernel)
    assert host.launches() == []
    recorder.stop()
    launch(kernel)
    assert len(host.launches()) == 1


def test_what_a_callback_raises_comes_out_of_the_launch(kernel, running):
    def name_of(owner):
        if owner is not None:
            raise KeyboardInterrupt
        return 0

    running(name_of).start(3)
    with pytest.raises(KeyboardInterrupt):
        launch(kernel)


def test_callback_that_ends_the_recording_lets_the_launch_pass(kernel, running, host):
    recorder = running(name_of=lambda owner: recorder.stop() or 1)
    recorder.start(3)
    host.clear()
    launch(kernel)
    assert len(host.launches()) == 1
    assert recorder.take(1.0) == []


def test_second_recorder_cannot_start_and_stopping_it_stops_nothing(kernel, running):
    first, second = running(), running()
    first.start(3)
    with pytest.raises(RuntimeError, match="already being recorded"):
        second.start(3)
    second.stop()
    launch(kernel)
    assert [each[6] for each in first.take(1.0)] == [1]
    with pytest.raises(RuntimeError, match="being recorded"):
        extension.active().use_clock(True)


def test_bad_arguments_are_refused(running):
    recorder = running()
    for call in (
        lambda: recorder.take("1"),
        lambda: recorder.set_range(-1),
        lambda: recorder.set_range("a"),
        lambda: recorder.start(None),
        lambda: extension.active().LaunchRecorder(len),
        lambda: extension.active().launch_adopted(1),
    ):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call()


def test_recording_holds_nothing_of_what_was_launched(kernel, running):
    recorder = running()
    recorder.start(3)
    launch(kernel, 3)
    things = [X, kernel, kernel._launchkit_entry, (1,), recorder]
    before = [sys.getrefcount(each) for each in things]
    launch(kernel, 5000)
    recorder.take(1.0)
    assert [sys.getrefcount(each) for each in things] == before


def test_recorder_in_a_cycle_is_collected_once_it_is_stopped(kernel):
    class Owner:
        def name_of(self, owner):
            return 1

        def new_thread(self):
            return 0

    owner = Owner()
    owner.recorder = extension.active().LaunchRecorder(owner.name_of, owner.new_thread, 10, 10)
    owner.recorder.start(3)
    launch(kernel, 5)
    gone = weakref.ref(owner)
    owner.recorder.stop()
    del owner
    gc.collect()
    assert gone() is None
    launch(kernel)
