"""The steps of the Mamba benchmark on a GPU: the same bits, and the launches that are promised."""

from __future__ import annotations

import pytest
import torch

from launchkit.benchmarks import gpu_time
from launchkit.benchmarks.mamba import bench, steps
from launchkit.benchmarks.mamba import counts as mamba_counts
from launchkit.benchmarks.mamba.cases import MambaCase, build
from launchkit.benchmarks.mode import measuring
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels

CASES = [
    MambaCase("Nemotron-3-Nano", sequences=4, tokens=999, initial_states=True),
    MambaCase("Nemotron-3.5-Lightning", sequences=3, tokens=301, initial_states=False),
    MambaCase("Granite-4.0-h-micro", sequences=1, tokens=700, initial_states=True),
]


@pytest.fixture
def _poison_fresh_tensors():
    """Not here, where launches are counted: each fill would be one."""


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def timed(request):
    """A case's tensors and parts; configs are pinned, so nothing is tuned."""
    with measuring() as cuda, pinned() as ours:
        assert cuda
        inputs = build(request.param, "cuda")
        yield inputs, steps.parts(inputs, triton_kernels(), ours)


def written(part, inputs):
    """Run a part over NaN; return the bytes of the output and of the whole cache after it."""
    for _ in range(3):  # compiled, watched, replayed
        part.call()
    inputs.out.fill_(torch.nan)
    inputs.ssm_state.fill_(torch.nan)
    part.call()
    return inputs.out.view(torch.uint8).clone(), inputs.ssm_state.view(torch.uint8).clone()


def test_every_step_writes_the_same_bits(timed):
    inputs, parts = timed
    layers = {part.step: written(part, inputs) for part in parts if part.what == "layer"}
    assert set(layers) == set(steps.STEPS)
    out, cache = layers["lean_wrappers"]
    assert not out.view(torch.bfloat16).isnan().any()
    states = cache.view(inputs.state_dtype)[inputs.state_indices.long()]
    assert not states.isnan().any()
    for step, (other_out, other_cache) in layers.items():
        assert torch.equal(out, other_out), step
        assert torch.equal(cache, other_cache), step


def test_a_layer_launches_nine_times_before_and_five_times_after(timed):
    _, parts = timed
    counts = mamba_counts.count(parts, cuda=True)
    assert counts["baseline", "scan"] == 5
    assert counts["baseline", "writeback"] == 4
    assert counts["baseline", "layer"] == 9
    for step in steps.STEPS[1:]:
        assert counts[step, "scan"] == counts[step, "layer"] == 5


def test_captured_calls_write_what_direct_ones_do(timed):
    inputs, parts = timed
    part = parts[-1]
    expected = written(part, inputs)
    inputs.out.fill_(torch.nan)
    inputs.ssm_state.fill_(torch.nan)
    (times_us,) = gpu_time.gpu_times_us([part.call], rounds=2)
    assert len(times_us) == 2
    assert min(times_us) > 0
    for tensor, bits in zip((inputs.out, inputs.ssm_state), expected, strict=True):
        assert torch.equal(tensor.view(torch.uint8), bits)


def test_result_holds_gpu_times_and_their_ratio():
    case = MambaCase("Nemotron-3-Nano", sequences=2, tokens=40, initial_states=False)
    document = bench.measure([case], rounds=2)
    assert (document["mode"], document["complete"]) == ("cuda", True)
    assert document["machine"]["gpu"] == torch.cuda.get_device_name()
    layers = {row["step"]: row for row in document["rows"] if row["op"] == "layer"}
    assert [layers[step]["launches"] for step in steps.STEPS] == [9, 5, 5, 5, 5]
    (ratio,) = [r for r in document["ratios"] if r["time"] == "gpu"]
    ours, theirs = (layers[s]["gpu_median_us"] for s in ("op_plan", "fused_write"))
    assert ratio["ratio"] == pytest.approx(ours / theirs, abs=1e-4)
