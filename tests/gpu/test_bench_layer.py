"""The benchmark of a short continuation on a GPU: its variants do the same, and are timed there."""

from __future__ import annotations

import pytest
import torch
from ssd_cases import same_bits

from launchkit.benchmarks.layer import bench, mixed, steps
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels

MODEL = "Granite-4.0-h-micro"


def test_variants_of_a_layer_and_of_a_step_write_the_same_states(monkeypatch):
    made, make = [], steps.make_continuation

    def noted(*args):
        made.append(make(*args))
        rng = torch.Generator("cuda").manual_seed(0)
        for cache in made[-1].caches:
            cache.normal_(generator=rng)
        return made[-1]

    monkeypatch.setattr(steps, "make_continuation", noted)
    found = {}
    with pinned():
        for number in range(5):
            part = steps.parts(MODEL, "cuda", triton_kernels())[number]
            part.call()
            request = made.pop()
            result = [cache.clone() for cache in request.caches] + [request.inputs.out]
            expected = found.setdefault(part.what, result)
            assert all(same_bits(*pair) for pair in zip(result, expected, strict=True)), part


@pytest.mark.parametrize("mix", list(mixed.MIXES))
def test_mixed_steps_write_the_same_states_copied_or_read_in_the_cache(mix, monkeypatch):
    made, make = [], mixed.make_requests

    def noted(*args):
        made.append(make(*args))
        rng = torch.Generator("cuda").manual_seed(1)
        for cache in (*made[-1].caches, *made[-1].conv_states):
            cache.normal_(generator=rng)
        return made[-1]

    monkeypatch.setattr(mixed, "make_requests", noted)
    found = []
    with pinned():
        for variant in mixed.VARIANTS:
            (part,) = [
                each for each in mixed.parts(MODEL, "cuda")
                if (each.what, each.step) == (mix, variant)
            ]  # fmt: skip
            before = [cache.clone() for cache in made[-1].caches]
            part.call()
            requests = made.pop()
            found.append([*requests.caches, *requests.conv_states, part.call.inputs.out])
            assert not same_bits(requests.caches[0], before[0])
    assert all(same_bits(*pair) for pair in zip(*found, strict=True))


def test_rows_of_a_gpu_hold_its_own_times():
    document = bench.measure((MODEL,), 2)
    assert document["mode"] == "cuda"
    assert all(row["gpu_median_us"] > 0 for row in document["rows"])
    assert [row["launches"] for row in document["rows"][:3]] == [13, 6, 5]
