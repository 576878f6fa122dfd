"""Op plans on a GPU: the scan's values, bit for bit, in streams, graphs, threads and profiles."""

from __future__ import annotations

import threading

import pytest
import sample_ops
import torch
from ssd_cases import make_problem, pin_first_configs

import launchkit
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen as scan


@pytest.fixture(autouse=True)
def _poison_fresh_tensors():
    """None here: filling a tensor inside the op is a launch of torch's, and ends its plan."""


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    pin_first_configs(monkeypatch)
    scan.op_plans.clear()
    yield
    scan.op_plans.clear()


class Layer:
    """Inputs of one scan on the GPU, and its results under either function."""

    def __init__(self, lengths=(70, 1, 130), seed=0, initial=None, every=False, cache=True):
        self.problem = make_problem(
            lengths, heads=4, headdim=32, dstate=64, groups=2, chunk_size=64,
            dtype=torch.bfloat16, device="cuda", seed=seed, D="head", bias=True, softplus=True,
            initial=initial,
        )  # fmt: skip
        self.metadata = self.problem.metadata
        self.out = torch.empty_like(self.problem.x)
        self.every, self.cache = every, None
        if cache:
            self.cache = torch.empty(8, 4, 32, 64, device="cuda")
            self.slots = torch.arange(len(lengths), dtype=torch.int32, device="cuda") + 2

    def run(self, function=scan):
        p, m = self.problem, self.metadata
        final = {}
        if self.cache is not None:
            final = {"final_states_out": self.cache, "final_state_indices": self.slots}
        return function(
            p.x, p.dt, p.A, p.B, p.C, p.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
            m.last_chunk_indices, m.seq_idx, self.out,
            return_intermediate_states=self.every, **final, **p.options,
        )  # fmt: skip

    def wipe(self):
        self.out.fill_(torch.nan)
        if self.cache is not None:
            self.cache.fill_(torch.nan)

    def bits(self, returned=None):
        tensors = [self.out, self.cache, returned]
        return [t.clone().view(torch.uint8) for t in tensors if t is not None]

    def expected(self):
        self.wipe()
        returned = self.run(scan.__wrapped__)
        return self.bits(returned)

    def warm(self):
        before = scan.op_plans.replays
        for _ in range(6):
            self.run()
        assert scan.op_plans.replays > before, scan.op_plans


def assert_same(seen, expected):
    assert len(seen) == len(expected)
    for one, other in zip(seen, expected, strict=True):
        assert torch.equal(one, other)


def replay(layer):
    """Replay over NaN; return the bits of everything that was written."""
    before = scan.op_plans.replays
    layer.wipe()
    returned = layer.run()
    assert scan.op_plans.replays == before + 1, scan.op_plans
    return layer.bits(returned)


KINDS = {
    "cache": {},
    "initial states": {"initial": torch.float32},
    "returned": {"cache": False},
    "all states": {"cache": False, "every": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_replay_is_bit_equal_to_the_op_as_it_is(kind):
    layer = Layer(**KINDS[kind])
    expected = layer.expected()
    assert not expected[0].view(torch.bfloat16).isnan().any()
    layer.warm()
    for _ in range(3):
        assert_same(replay(layer), expected)


def test_replay_takes_the_tensors_of_its_call():
    layers = [Layer(seed=seed) for seed in range(4)]
    expected = [layer.expected() for layer in layers]
    layers[0].warm()
    for layer, bits in zip(layers * 2, expected * 2, strict=True):
        assert_same(replay(layer), bits)
    assert len(scan.op_plans) == 1


def test_returned_tensor_outlives_the_workspace_and_later_calls():
    layer = Layer(cache=False)
    expected = layer.expected()
    layer.warm()
    kept = layer.run()
    for _ in range(20):
        layer.run()
        torch.full((1 << 20,), torch.nan, device="cuda")
    assert torch.equal(kept.view(torch.uint8), expected[1])


def test_captured_replay_writes_what_a_direct_one_does():
    layer = Layer()
    expected = layer.expected()
    layer.warm()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    before = scan.op_plans.replays
    with torch.cuda.graph(graph):
        layer.run()
        layer.run()
    assert scan.op_plans.replays == before + 2
    for _ in range(3):
        layer.wipe()
        noise = [torch.full((1 << 22,), torch.nan, device="cuda") for _ in range(4)]
        graph.replay()
        assert_same(layer.bits(), expected)
        del noise


def test_two_streams_race_through_the_same_memory():
    layers = [Layer(lengths=(700, 300), seed=seed) for seed in range(2)]
    expected = [layer.expected() for layer in layers]
    layers[0].warm()
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in layers]
    for layer in layers:
        layer.wipe()
    torch.cuda.synchronize()
    for _ in range(100):
        for layer, stream in zip(layers, streams, strict=True):
            with torch.cuda.stream(stream):
                layer.run()
    torch.cuda.synchronize()
    for layer, bits in zip(layers, expected, strict=True):
        assert_same(layer.bits(), bits)


def test_threads_replay_at_once_each_on_its_stream():
    layers = [Layer(seed=seed) for seed in range(4)]
    expected = [layer.expected() for layer in layers]
    layers[0].warm()
    for layer in layers:
        layer.wipe()
    torch.cuda.synchronize()
    failures = []

    def work(layer):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    layer.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(layer,)) for layer in layers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert failures == []
    for layer, bits in zip(layers, expected, strict=True):
        assert_same(layer.bits(), bits)


def test_workspace_is_given_back():
    layer = Layer()
    layer.warm()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        layer.run()
    assert torch.cuda.memory_allocated() == before


def test_profile_counts_each_launch():
    layer = Layer()
    layer.warm()
    with launchkit.profile_launches() as profile:
        layer.run()
        layer.run()
    assert sum(row["launches"] for row in profile.to_dict()["rows"]) == 10
    assert_same(replay(layer), layer.expected())


def test_op_that_waits_or_changes_streams_is_not_planned():
    side = torch.cuda.Stream()

    def synchronizes(x, out):
        sample_ops.copy(x, out, 64, 1)
        torch.cuda.synchronize()

    def forks(x, out):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sample_ops.copy(x, out, 64, 1)
        torch.cuda.current_stream().wait_stream(side)

    def records(x, out):
        sample_ops.copy(x, out, 64, 1)
        torch.cuda.Event().record()

    for function in (synchronizes, forks, records):
        op = launchkit.planned(function)
        x, out = torch.rand(64, device="cuda"), torch.empty(64, device="cuda")
        for _ in range(6):
            op(x, out)
        assert op.op_plans.replays == 0, function
        assert torch.equal(x, out)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_gpu_has_plans_of_its_own():
    op = launchkit.planned(sample_ops.copy_twice)
    for device in ("cuda:0", "cuda:1") * 2:
        with torch.cuda.device(device):
            x = torch.rand(100, device=device)
            for _ in range(4):
                out = torch.full_like(x, torch.nan)
                op(x, out)
                assert torch.equal(x, out)
    assert len(op.op_plans) == 2
