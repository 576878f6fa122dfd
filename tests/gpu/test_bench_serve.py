"""The served benchmark on a GPU: the same tokens and states from both variants, and its times."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from launchkit.benchmarks.pinned_configs import pinned, triton_kernels
from launchkit.benchmarks.serve import bench
from launchkit.benchmarks.serve.asked import Asked
from launchkit.benchmarks.serve.engine import make_engine
from launchkit.benchmarks.serve.figures import FIGURES
from launchkit.benchmarks.serve.pairs import difference
from launchkit.benchmarks.serve.requests import Workload, draw_requests
from launchkit.benchmarks.serve.variants import Baseline, Launchkit

SMALL = Asked(layers=4, concurrency=(5,), requests=9, input_tokens=90, output_tokens=4, repeats=3)
WORKLOAD = Workload(concurrency=5, requests=9, input_tokens=90, output_tokens=6, step_tokens=150)
"""Prompts come in pieces, alone and several at once, beside requests that decode."""


@pytest.fixture
def _poison_fresh_tensors():
    """Not here, where ops are replayed: a fill would be one more operator of theirs."""


@pytest.mark.parametrize("model", ["Nemotron-3-Nano", "Granite-4.0-h-micro"])
def test_variants_give_the_same_tokens_and_states_in_pieces_and_across_blocks(model):
    with pinned():
        sizes = replace(SMALL.model(model, cuda=True), hidden=512, vocabulary=4096)
        engine = make_engine(sizes, WORKLOAD, "cuda", executes=True, block_size=48)
        requests = draw_requests(WORKLOAD, sizes.vocabulary, seed=8)
        served = {
            "baseline": engine.serve(WORKLOAD, requests, Baseline(engine.states, triton_kernels())),
            "launchkit": engine.serve(WORKLOAD, requests, Launchkit(engine.states)),
        }
        assert difference(0, served) is None
        states = engine.states.caches
        assert all(cache.isfinite().all() and cache.abs().sum() > 0 for cache in states)
        assert len({token for answer in served["launchkit"].tokens for token in answer}) > 5
        # A state that is wrong must show: the tokens hang on it.
        ops = Launchkit(engine.states)
        lost = ops.decode
        ops.decode = lambda layer, batch, tokens: lost(
            layer, batch, tokens._replace(dt=torch.full_like(tokens.dt, 9.0))
        )
        served["launchkit"] = engine.serve(WORKLOAD, requests, ops)
        assert difference(0, served)["what"] == "token"


def test_result_of_a_gpu_says_that_tokens_and_states_are_equal():
    document = bench.measure(SMALL)
    assert (document["mode"], document["ok"], document["complete"]) == ("cuda", True, True)
    assert [case["tokens_and_states_equal"] for case in document["cases"]] == [True]
    assert {ratio["figure"] for ratio in document["ratios"]} <= set(FIGURES)
    assert document["cases"][0]["scans"]["replayed"] > 0
    for row in document["rows"]:
        assert row["output_tokens_per_s"]["mean"] > 0
