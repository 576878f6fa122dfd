"""How configs are timed is the kernel's choice, stands in the record, and is never mixed."""

from __future__ import annotations

import logging

import access_kernels as kernels
import numpy as np
import pytest
import torch
import triton
from benching import Bench, kernel_with, launched_block
from hypothesis import given
from hypothesis import strategies as st

import launchkit
from launchkit import settings
from launchkit.dispatch.tuning import methods as tuning_methods
from launchkit.dispatch.tuning import options as tuning_options
from launchkit.dispatch.tuning.failures import CaptureFailedError

pytestmark = pytest.mark.usefixtures("measuring")

CONFIGS = [triton.Config({"BLOCK": block}) for block in (16, 32)]


def kernel(**options):
    return launchkit.autotuned(CONFIGS, ["n"], name="kernel", **options)(kernels.copies)


class Timers:
    """In the place of both timers: fixed times by method and BLOCK, and what was timed."""

    def __init__(self, monkeypatch):
        self.timed = []
        self.times = {}
        self.not_capturable = False
        monkeypatch.setattr(tuning_options, "executes_on_cuda", lambda: True)
        monkeypatch.setattr(tuning_methods, "time_graph", self.graph)
        monkeypatch.setattr(tuning_methods, "time_eager", self.eager)

    def graph(self, call, *, cold):
        if self.not_capturable:
            raise CaptureFailedError("RuntimeError: the hook synchronizes")
        return self.time("graph+cold" if cold else "graph", call)

    def eager(self, call, *, cold):
        return self.time("eager+cold" if cold else "eager+warm", call)

    def time(self, method, call):
        call()
        block = call.named["BLOCK"]
        self.timed.append((method, block))
        return [self.times.get((method, block), 1.0)] * 5, 5


@pytest.fixture
def timers(monkeypatch):
    return Timers(monkeypatch)


def launch(made, n=64):
    x = torch.zeros(64)
    made[(1,)](x, torch.zeros(64), n)
    return made.best_config.kwargs["BLOCK"]


def methods(store):
    return sorted((t.method, t.config[0].value) for r in store.records() for t in r.configs)


ASKED = [
    ({}, "eager"),
    ({"measure": "eager"}, "eager"),
    ({"measure": "eager", "l2": "warm"}, "eager+warm"),
    ({"l2": "warm"}, "eager+warm"),
    ({"l2": "cold"}, "eager+cold"),
    ({"measure": "graph"}, "graph"),
    ({"measure": "graph", "l2": "warm"}, "graph"),
    ({"measure": "graph", "l2": "cold"}, "graph+cold"),
]


@pytest.mark.parametrize(("options", "method"), ASKED, ids=str)
def test_options_name_the_method(timers, options, method):
    assert tuning_options.method_of(kernel(**options)) == method


@pytest.mark.parametrize("text", ["eager", "eager+cold", "eager+warm", "graph", "graph+cold"])
def test_environment_decides_for_kernels_that_do_not(monkeypatch, timers, text):
    monkeypatch.setenv("LAUNCHKIT_MEASURE", text.upper())
    settings.reload()
    assert tuning_options.method_of(kernel()) == text
    assert tuning_options.method_of(triton.autotune(CONFIGS, ["n"])(kernels.copies)) == text
    assert tuning_options.method_of(kernel(measure="graph", l2="cold")) == "graph+cold"
    assert tuning_options.method_of(kernel(do_bench=Bench({}))) == "eager"
    assigned = triton.autotune(CONFIGS, ["n"])(kernels.copies)
    assigned.do_bench = Bench({})
    assert tuning_options.method_of(assigned) == "eager"


def test_environment_that_names_no_method_is_refused(monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_MEASURE", "fast")
    with pytest.raises(launchkit.errors.UsageError, match="is none of eager"):
        settings.reload()
    monkeypatch.delenv("LAUNCHKIT_MEASURE")
    settings.reload()


def test_kernel_that_triton_times_as_a_graph_is_stored_so():
    made = kernel()
    made.use_cuda_graph = True
    assert tuning_options.method_of(made) == "graph"


@pytest.mark.parametrize(("options", "method"), ASKED[2:], ids=str)
def test_results_are_stored_with_their_method_and_repetitions(
    timers, memory_store, options, method
):
    timers.times = {(method, 16): 2.0, (method, 32): 1.0}
    assert launch(kernel(**options)) == 32
    (record,) = memory_store.records()
    assert [(t.method, t.median_us, t.reps) for t in record.configs] == [
        (method, 2000.0, 5), (method, 1000.0, 5),
    ]  # fmt: skip


def test_results_by_unlike_methods_stand_beside_each_other(timers, memory_store):
    timers.times = {("graph", 16): 9.0, ("eager+cold", 32): 9.0}
    graph, cold = {"measure": "graph"}, {"l2": "cold"}
    assert launch(kernel(**graph)) == 32
    assert launch(kernel(**cold)) == 16
    assert methods(memory_store) == [
        ("eager+cold", "16"), ("eager+cold", "32"), ("graph", "16"), ("graph", "32"),
    ]  # fmt: skip
    assert len(timers.timed) == 4
    for _ in range(2):  # a fresh process of either kind: nothing is measured again
        assert launch(kernel(**graph)) == 32
        assert launch(kernel(**cold)) == 16
    assert len(timers.timed) == 4


def test_results_by_another_method_do_not_complete_a_list(timers):
    launch(kernel(measure="graph"))
    timers.timed.clear()
    launch(kernel(l2="warm"))
    assert timers.timed == [("eager+warm", 16), ("eager+warm", 32)]


def test_launch_that_cannot_be_captured_is_timed_eagerly_with_one_warning(
    timers, memory_store, caplog
):
    timers.not_capturable = True
    made = kernel(measure="graph", l2="cold")
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        launch(made)
        launch(made, n=65)
    assert timers.timed == [("eager+cold", 16), ("eager+cold", 32)] * 2
    assert {method for method, _ in methods(memory_store)} == {"eager+cold"}
    assert caplog.text.count("cannot be captured") == 1
    assert "the hook synchronizes" in caplog.text


def test_graph_without_a_gpu_is_timed_eagerly_and_nothing_warns(monkeypatch, caplog, memory_store):
    monkeypatch.setattr(tuning_options, "executes_on_cuda", lambda: False)
    monkeypatch.setattr(tuning_options, "_told", set())
    made = kernel(measure="graph")
    made.__dict__["do_bench"] = Bench({})  # what Triton would find
    with caplog.at_level(logging.INFO, logger="launchkit"):
        for _ in range(2):
            assert tuning_options.method_of(made) == "eager"
    assert caplog.text.count("no GPU executes launches here") <= 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_own_benchmark_function_is_called_as_by_triton(timers, memory_store):
    assert launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}))) == 32
    assert timers.timed == []
    assert {method for method, _ in methods(memory_store)} == {"eager"}


# -- the timers, but for the GPU


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_quantiles_are_numpys(times):
    expected = [np.quantile(times, share) for share in (0.5, 0.2, 0.8)]
    assert tuning_methods.quantiles(times) == pytest.approx(expected)


class FakeGpu:
    """Counts launches and replays; each launch takes ``launch_ms``, whatever is between events."""

    def __init__(self, monkeypatch, launch_ms):
        self.launch_ms = launch_ms
        self.log = []
        self.graph_launches = 0
        monkeypatch.setattr(tuning_methods, "_estimate_ms", self.estimate)
        monkeypatch.setattr(tuning_methods, "_capture", self.capture)
        monkeypatch.setattr(tuning_methods, "_flusher", lambda: lambda: self.log.append("flush"))
        monkeypatch.setattr(tuning_methods, "_event", lambda: Event(self))
        monkeypatch.setattr(tuning_methods.torch.cuda, "synchronize", lambda: None)

    def estimate(self, call):
        return self.launch_ms

    def launch(self):
        self.log.append("launch")

    def capture(self, call, launches):
        self.graph_launches = launches
        return self

    def replay(self):
        self.log.extend(["launch"] * self.graph_launches)


class Event:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.place = len(self.gpu.log)

    def elapsed_time(self, end):
        between = self.gpu.log[self.place : end.place]
        assert "flush" not in between
        return len(between) * self.gpu.launch_ms


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("launch_ms", [0.001, 0.05, 3.0, 500.0])
@pytest.mark.parametrize("timer", ["time_eager", "time_graph"])
def test_timers_report_the_time_of_one_launch_and_how_many_they_timed(
    monkeypatch, timer, launch_ms, cold
):
    gpu = FakeGpu(monkeypatch, launch_ms)
    times, reps = getattr(tuning_methods, timer)(gpu.launch, cold=cold)
    assert times == pytest.approx([launch_ms] * len(times))
    timed = len(times) * (gpu.graph_launches or 1)
    assert reps == timed
    assert gpu.log.count("launch") >= timed
    assert gpu.log.count("flush") == (len(times) if cold else 0)
    assert len(times) <= tuning_methods.MAX_REPS


def test_cold_graph_has_one_launch_after_each_flush(monkeypatch):
    gpu = FakeGpu(monkeypatch, 0.001)
    tuning_methods.time_graph(gpu.launch, cold=True)
    assert gpu.graph_launches == 1
    tuning_methods.time_graph(gpu.launch, cold=False)
    assert gpu.graph_launches == tuning_methods.MAX_UNROLL
