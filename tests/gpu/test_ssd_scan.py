"""The whole scan on a GPU: its values, what it writes, and real models' layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ssd_cases import (
    check,
    everything,
    make_problem,
    pin_first_configs,
    same_bits,
    scan,
    scan_into_cache,
)
from ssd_promises import *  # noqa: F403  the tests that the interpreter runs too

from launchkit.benchmarks.baseline.stored_states import final_state_writeback_separate
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd.metadata import build_chunk_metadata

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config a kernel, so that no test measures anything."""
    pin_first_configs(monkeypatch)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


def make_layer(shape, lengths, dtype=torch.bfloat16, **kinds):
    """Return a problem of one model's layer."""
    return make_problem(
        lengths,
        heads=shape.nheads,
        headdim=shape.headdim,
        dstate=shape.dstate,
        groups=shape.ngroups,
        chunk_size=shape.chunk_size,
        dtype=dtype,
        device="cuda",
        **kinds,
    )


@pytest.mark.parametrize("shape", MAMBA_SHAPES.values(), ids=MAMBA_SHAPES.keys())
def test_real_layers_match_the_reference(shape):
    state_dtype = getattr(torch, shape.state_dtype)
    problem = make_layer(shape, (131, 0, 1, 168), seed=40, **everything(initial=state_dtype))
    problem = replace(problem, computed=(0, 7, 4224, 500))
    out, _, cache = scan_into_cache(problem, state_dtype, state_dtype=state_dtype)
    check(problem, out, cache[1:5], state_dtype=state_dtype)


@pytest.mark.parametrize("shape", MAMBA_SHAPES.values(), ids=MAMBA_SHAPES.keys())
def test_fused_states_have_the_bits_of_the_separate_write_back(shape):
    state_dtype = getattr(torch, shape.state_dtype)
    problem = make_layer(shape, (40, 130, 130), seed=41, initial=state_dtype)
    options = {"state_dtype": state_dtype}
    out, _, cache = scan_into_cache(problem, state_dtype, (3, 0, 1), **options)
    again, states = scan(problem, return_intermediate_states=True, **options)
    assert same_bits(out, again)
    separate = torch.empty_like(cache)
    slots = torch.tensor([3, 0, 1], dtype=torch.int32, device="cuda")
    last = problem.metadata.last_chunk_indices
    final_state_writeback_separate(states.flatten(2), last, separate, slots)
    assert same_bits(cache[[3, 0, 1]], separate[[3, 0, 1]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_wide_states_and_odd_heads_match_the_reference_in_every_dtype(dtype):
    problem = make_problem(
        (70, 1, 0, 150),
        headdim=80,
        dstate=256,
        chunk_size=64,
        dtype=dtype,
        seed=42,
        device="cuda",
        **everything(),
    )
    out, states = scan(problem, return_intermediate_states=True, state_dtype=torch.float32)
    check(problem, out, states=states, state_dtype=torch.float32)


def test_a_long_sequence_matches_the_reference():
    problem = make_problem(
        (4001,), headdim=64, dstate=128, chunk_size=256, seed=43, device="cuda", **everything()
    )
    out, _, cache = scan_into_cache(problem)
    check(problem, out, cache[1:2])


def test_tokens_beyond_two_to_the_31_elements_are_reached():
    problem = make_problem((20,), dtype=torch.bfloat16, seed=44, device="cuda", **everything())
    page, width = 2**27, 0
    rows = torch.zeros(19 * page + 4096, dtype=torch.bfloat16, device="cuda")

    def far(tensor):
        """Return equal values, each token 2**27 elements behind the one before."""
        nonlocal width
        strides = (page, *tensor[0].contiguous().stride())
        view = rows.as_strided(tensor.shape, strides, storage_offset=width)
        width += tensor[0].numel()
        return view.copy_(tensor)

    tokens = {name: far(getattr(problem, name)) for name in ("x", "dt", "B", "C")}
    spread = replace(problem, **tokens).with_options(z=far(problem.options["z"]))
    out, final = scan(spread, out=far(torch.full_like(problem.x, torch.nan)))
    assert width < 4096
    check(problem, out, final)


def test_a_chunk_behind_two_to_the_31_state_elements_has_the_bits_it_has_alone():
    lengths = (1,) * 514
    problem = make_problem(
        lengths, 256, 64, 256, 8, dtype=torch.bfloat16, seed=45, device="cuda", D="head"
    )
    out, _ = scan(problem, return_intermediate_states=True)
    alone, _ = scan(problem.tokens(513, 514))
    assert same_bits(out[513:], alone)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_metadata_and_scan_never_wait_for_the_gpu():
    problem = make_problem((5, 0, 34), seed=46, device="cuda", **everything())
    scan_into_cache(problem)
    metadata = problem.metadata
    cache = torch.zeros(3, 2, 8, 16, device="cuda")
    slots = torch.arange(3, device="cuda")
    out = torch.empty_like(problem.x)
    try:
        torch.cuda.set_sync_debug_mode("error")
        built = build_chunk_metadata([0, 5, 5, 39], 16, device="cuda")
        scan(
            problem,
            metadata=built,
            out=out,
            final_states_out=cache,
            final_state_indices=slots,
        )
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert built.cu_chunk_seqlens.tolist() == metadata.cu_chunk_seqlens.tolist()
    check(problem, out, cache)


def test_a_captured_scan_replays_on_what_the_inputs_hold_then():
    problem = make_problem((5, 0, 34), dtype=torch.bfloat16, seed=47, device="cuda", **everything())
    other = make_problem((5, 0, 34), dtype=torch.bfloat16, seed=48, device="cuda", **everything())
    expected, expected_final = scan(other)
    metadata, out = problem.metadata, torch.empty_like(problem.x)
    options = {"metadata": metadata, "out": out}
    scan(problem, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, final = scan(problem, **options)
    for name in ("x", "dt", "B", "C", "A"):
        getattr(problem, name).copy_(getattr(other, name))
    for name, value in other.options.items():
        if isinstance(value, torch.Tensor):
            problem.options[name].copy_(value)
    out.fill_(torch.nan)
    graph.replay()
    assert same_bits(out, expected)
    assert same_bits(final, expected_final)


def test_ten_runs_give_the_same_bits():
    problem = make_layer(MAMBA_SHAPES["Nemotron-3-Nano"], (131, 169), seed=49, **everything())
    expected, final = scan(problem)
    for _ in range(10):
        out, again = scan(problem)
        assert same_bits(out, expected)
        assert same_bits(again, final)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="needs two GPUs"
)
def test_tensors_of_another_gpu_are_launched_there():
    here = make_problem((5, 30), seed=50, device="cuda:0", **everything())
    expected, final = scan(here)
    moved = {name: getattr(here, name).to("cuda:1") for name in ("x", "dt", "A", "B", "C")}
    options = {
        name: value.to("cuda:1") if isinstance(value, torch.Tensor) else value
        for name, value in here.options.items()
    }
    out, again = scan(replace(here, **moved, options=options))
    assert out.device == again.device == torch.device("cuda:1")
    assert same_bits(out.cpu(), expected.cpu())
    assert same_bits(again.cpu(), final.cpu())
