"""48 requests through all layers of Granite-4.0-h-micro, from slots and from copies of them."""

from __future__ import annotations

import pytest
import torch
from prefill_schedule import Layers, draw_schedule, serve
from ssd_cases import pin_first_configs, same_bits

from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd import scan as scan_module

REQUESTS = 48
KINDS = {
    "one", "one, checkpoint", "one, decodes", "one, checkpoint, decodes", "several",
    "several, checkpoint", "several, decodes", "several, checkpoint, decodes", "none, decodes",
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
def test_slots_read_in_place_give_the_bits_of_copies_in_every_layer(monkeypatch, seed):
    pin_first_configs(monkeypatch)
    shape = MAMBA_SHAPES["Granite-4.0-h-micro"]
    scan_module.mamba_chunk_scan_combined_varlen.op_plans.clear()
    launches, launch = [], scan_module.launch_indexed_passing
    monkeypatch.setattr(
        scan_module, "launch_indexed_passing", lambda *a: (launches.append(a), launch(*a))
    )
    steps = draw_schedule(REQUESTS, 700, seed)
    assert {step.kind for step in steps} == KINDS
    sizes = (shape.nheads, shape.headdim, shape.dstate, shape.ngroups, shape.chunk_size)
    served = []
    for indexed in (True, False):
        layers = Layers(
            sizes, shape.layers, REQUESTS, "cuda", torch.bfloat16, getattr(torch, shape.state_dtype)
        )
        served.append((serve(steps, layers, indexed), layers))
        assert bool(launches) == indexed
        launches.clear()
    (outs, layers), (expected, expected_layers) = served
    assert all(same_bits(*pair) for pair in zip(outs, expected, strict=True))
    for name in ("ssm", "conv"):
        caches = getattr(layers, name), getattr(expected_layers, name)
        assert all(same_bits(*pair) for pair in zip(*caches, strict=True))
    assert all(cache[1:].isfinite().all() for cache in layers.ssm)
