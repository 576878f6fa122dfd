"""Op plans beside others: replays from several threads, and under torch.compile."""

from __future__ import annotations

import gc
import sys
import threading
import time

import pytest
import sample_kernels
import sample_ops
import torch
from sample_ops import launched, same_launches

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("c_core", "host")


@pytest.fixture
def out():
    return torch.empty(100)


@pytest.fixture
def op():
    """A planned op of one autotuned kernel that is replayed for aligned tensors of 100."""
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)

    @launchkit.planned
    def op(x, out):
        between = torch.empty_like(x)
        for source, target in ((x, between), (between, out)):
            kernel[lambda meta: (-(-100 // meta["BLOCK"]),)](source, target, 100, 1)

    for _ in range(6):
        op(torch.empty(100), torch.empty(100))
    assert op.op_plans.replays > 2
    return op


class TestThreads:
    """Replays from several threads at once."""

    def test_each_call_launches_with_its_own_addresses(self, op):
        failures = []

        def work():
            for _ in range(300):
                x, out = torch.empty(100), torch.empty(100)
                op(x, out)
                if sys.getrefcount(x) != 2:
                    failures.append("held")

        hostonly.clear()
        before = op.op_plans.replays
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert op.op_plans.replays == before + 1800

    def test_threads_that_watch_at_once_do_not_see_each_other(self, op):
        x, out = torch.empty(100), torch.empty(100)
        op(x, out)
        barrier = threading.Barrier(4)
        failures = []

        def work(offset):
            mine = torch.empty(200 + offset)[offset : 100 + offset]
            barrier.wait()
            try:
                for _ in range(8):
                    op(mine, torch.empty(100))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(16 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        same_launches(launched(lambda: op(x, out))[1], launched(lambda: op.__wrapped__(x, out))[1])


class TestCollection:
    """A garbage collection in the middle of a watched call is no part of the op."""

    @pytest.fixture
    def timed_collections(self):
        """A callback as test tools and servers set it: it calls what no planned op may."""
        times = []
        callback = lambda phase, info: times.append(time.perf_counter())  # noqa: E731
        threshold = gc.get_threshold()
        gc.callbacks.append(callback)
        gc.set_threshold(1, 1, 1)
        yield times
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)

    def test_its_callbacks_do_not_speak_against_a_plan(self, timed_collections):
        op = launchkit.planned(sample_ops.copy_twice)
        for _ in range(4):
            op(torch.empty(100), torch.empty(100))
        before = op.op_plans.replays
        op(torch.empty(100), torch.empty(100))
        assert op.op_plans.replays == before + 1
        assert "it calls" not in repr(op.op_plans)
        assert timed_collections

    @pytest.mark.parametrize("enabled", [True, False])
    def test_is_as_it_was_afterwards(self, enabled):
        op = launchkit.planned(sample_ops.copy_twice)
        if not enabled:
            gc.disable()
        try:
            for _ in range(4):
                op(torch.empty(100), torch.empty(100))
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


class TestTorchCompile:
    """torch.compile traces the function that a planned op was made of."""

    @pytest.fixture(autouse=True)
    def with_triton(self, monkeypatch):
        from torch.utils import _triton

        monkeypatch.setattr(_triton, "has_triton", lambda: True)
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    def traced(self, function, fullgraph):
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return torch._dynamo.lookup_backend("eager")(graph, inputs)

        torch.compile(function, backend=backend, fullgraph=fullgraph)(torch.empty(100))
        return [
            str(node.target)
            for graph in graphs
            for node in graph.graph.nodes
            if "triton_kernel" in str(node.target)
        ]

    def test_its_kernels_are_traced_into_one_graph(self, out):
        op = launchkit.planned(sample_ops.copy_twice)
        for _ in range(4):
            op(torch.empty(100), out)
        before = op.op_plans.replays

        def function(x):
            out = torch.empty_like(x)
            op(x, out, times=1)
            return out

        assert len(self.traced(function, fullgraph=True)) == 2
        assert op.op_plans.replays == before

    def test_a_call_that_dynamo_leaves_out_runs_and_is_not_watched_by_mistake(self, out):
        op = launchkit.planned(sample_ops.copy_twice)

        @torch._dynamo.disable
        def outside(x, out):
            op(x, out)

        def function(x):
            y = x + 1
            outside(y, y)
            return y * 2

        for _ in range(4):
            torch._dynamo.reset()
            self.traced(function, fullgraph=False)
        _, seen = launched(lambda: op(torch.empty(100), out))
        assert len(seen) == 2
