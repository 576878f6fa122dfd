"""A small schedule of prefills in Triton's interpreter, from slots and from copies of them."""

from __future__ import annotations

import torch
from prefill_schedule import Layers, draw_schedule, serve
from ssd_cases import same_bits

from launchkit.kernels.ssd import scan as scan_module


def test_slots_read_in_place_give_the_bits_of_copies_over_a_whole_schedule(monkeypatch):
    launches, launch = [], scan_module.launch_indexed_passing
    monkeypatch.setattr(
        scan_module, "launch_indexed_passing", lambda *a: (launches.append(a), launch(*a))
    )
    steps = draw_schedule(5, 20, seed=3)
    kinds = {step.kind for step in steps}
    assert {"one", "several"} & kinds
    assert any("checkpoint" in kind for kind in kinds)
    assert any(kind.startswith(("one", "several")) and "decodes" in kind for kind in kinds)
    served = []
    for indexed in (True, False):
        layers = Layers((2, 4, 8, 1, 8), 1, 5, "cpu", torch.float32, torch.float16)
        served.append((serve(steps, layers, indexed), layers))
        assert bool(launches) == indexed
        launches.clear()
    (outs, layers), (expected, expected_layers) = served
    assert all(same_bits(*pair) for pair in zip(outs, expected, strict=True))
    for name in ("ssm", "conv"):
        caches = getattr(layers, name), getattr(expected_layers, name)
        assert all(same_bits(*pair) for pair in zip(*caches, strict=True))
    assert all(out.isfinite().all() for out in outs)
