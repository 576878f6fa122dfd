"""Initial states that stay in their cache, on a GPU: the shared promises, and real layers."""

from __future__ import annotations

import pytest
import torch
from indexed_promises import *  # noqa: F403  the tests that the interpreter runs too
from indexed_promises import again, indices_of, make_states, run_both
from ssd_cases import everything, make_problem, pin_first_configs, same_bits, scan

from launchkit.benchmarks.pinned_configs import LAUNCHKIT_KERNELS, PINNED_CONFIGS
from launchkit.benchmarks.shapes import MAMBA_SHAPES


@pytest.fixture(autouse=True)
def _one_config(request, monkeypatch):
    """Pin one config a kernel, so that no test measures anything."""
    if "tuned" not in request.fixturenames:
        pin_first_configs(monkeypatch)


@pytest.fixture
def tuned(monkeypatch):
    """Two configs a kernel, and nothing known of either."""
    for name, kernel in LAUNCHKIT_KERNELS._asdict().items():
        monkeypatch.setattr(kernel, "configs", list(PINNED_CONFIGS[name]))
        monkeypatch.setattr(kernel, "cache", {})


def layer(model, lengths, **kinds):
    shape = MAMBA_SHAPES[model]
    return make_problem(
        lengths, shape.nheads, shape.headdim, shape.dstate, shape.ngroups, shape.chunk_size,
        torch.bfloat16, device="cuda", **kinds,
    )  # fmt: skip


@pytest.mark.parametrize("length", [1, 32, 300])
@pytest.mark.parametrize("model", MAMBA_SHAPES)
def test_real_layers_have_the_bits_of_a_copy(place, indexed_launches, model, length):
    dtype = getattr(torch, MAMBA_SHAPES[model].state_dtype)
    problem = layer(model, (length,), seed=30, **everything(initial=None))
    run_both(place, problem, dtype, (3,), (3,))
    assert len(indexed_launches) == 1


def test_twenty_runs_in_place_give_the_same_bits(place, indexed_launches):
    problem = layer("Granite-4.0-h-micro", (700,), seed=31)
    expected = None
    for _ in range(20):
        out, _, _, after = run_both(place, problem, torch.bfloat16, (2,), (2,))
        expected = expected or (out, after)
        assert same_bits(out, expected[0])
        assert same_bits(after[2], expected[1][2])


def test_a_first_call_that_tunes_leaves_the_cache_as_a_warmed_one_does(place, tuned):
    """Whatever configs it takes, the state is advanced once."""
    problem = make_problem((40,), 4, 64, 128, 1, 32, torch.bfloat16, seed=32, device="cuda")
    first = make_states(place, problem, torch.float32)
    second, third = again(*first), again(*first)

    def run(raw, cache):
        return scan(
            problem, initial_state_cache=cache, final_states_out=cache, state_dtype=torch.float32,
            initial_state_indices=indices_of((3,), place),
            final_state_indices=indices_of((3,), place),
        )[0]  # fmt: skip

    outs = [run(*each) for each in (first, second, third)]
    assert same_bits(first[0], second[0])
    assert same_bits(second[0], third[0])
    assert same_bits(outs[0], outs[2])


def test_a_captured_continuation_advances_its_slot_at_every_replay(place):
    problem = layer("Nemotron-3-Nano", (32,), seed=33)
    raw, cache = make_states(place, problem, torch.float32)
    other_raw, other = again(raw, cache)
    slots, metadata = indices_of((3,), place), problem.metadata
    out = torch.empty_like(problem.x)

    def run(states):
        scan(
            problem, metadata=metadata, out=out, initial_state_cache=states,
            initial_state_indices=slots, final_states_out=states, final_state_indices=slots,
            state_dtype=torch.float32,
        )  # fmt: skip

    run(cache)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(cache)
    for _ in range(3):
        graph.replay()
    for _ in range(4):
        run(other)
    assert same_bits(raw, other_raw)
