"""Initial states that stay in their cache: what is launched, never tuned, and refused."""

from __future__ import annotations

import itertools

import pytest
import torch
from ssd_cases import KERNELS, make_problem, pin_first_configs, scan

from launchkit.errors import UsageError

H, P, N = 2, 16, 16
PASSING = "_indexed_state_passing_kernel"


def cached(sequences=1, dtype=torch.float32, **options):
    """Return options of a scan whose sequences start and end in slots of one cache."""
    cache = torch.zeros(5, H, P, N, dtype=dtype)
    slots = torch.arange(sequences, dtype=torch.int32)
    return {
        "initial_state_cache": cache, "initial_state_indices": slots, "final_states_out": cache,
        "final_state_indices": slots, "state_dtype": dtype, **options,
    }  # fmt: skip


def launched(host, lengths=(20,), **options):
    host.clear()
    scan(make_problem(lengths, headdim=P, dstate=N), **options)
    return [launch.kernel for launch in host.launches()]


@pytest.fixture
def one_config(monkeypatch):
    pin_first_configs(monkeypatch)


@pytest.mark.usefixtures("one_config")
def test_one_sequence_from_slot_to_slot_takes_five_launches(host):
    names = launched(host, **cached())
    assert len(names) == 5
    assert PASSING in names


FALLBACKS = {
    "two sequences": ((20, 5), cached(2)),
    "no sequence": ((), cached(0)),
    "states returned": (
        (20,),
        cached(final_states_out=None, final_state_indices=None, return_intermediate_states=True),
    ),
    "final states returned": ((20,), cached(final_states_out=None, final_state_indices=None)),
    "another dtype of states": ((20,), cached(state_dtype=torch.float16)),
}


@pytest.mark.usefixtures("one_config")
@pytest.mark.parametrize(("lengths", "options"), FALLBACKS.values(), ids=FALLBACKS.keys())
def test_everything_else_is_copied_first_in_one_launch(host, lengths, options):
    names = launched(host, lengths, **options)
    if lengths:
        assert names.count("_gather_initial_states_kernel") == 1
        assert len(names) == 6
    assert PASSING not in names


@pytest.mark.usefixtures("one_config")
@pytest.mark.parametrize("has", [None, torch.ones(1, dtype=torch.bool)], ids=["all", "flags"])
def test_the_scan_runs_the_kernel_that_it_runs_on_a_copy(host, has):
    """What is compiled decides how sums round."""
    functions = []
    for options in (
        cached(has_initial_state=has),
        {**cached(), "initial_state_cache": None, "initial_state_indices": None,
         "initial_states": torch.zeros(1, H, P, N)},
    ):  # fmt: skip
        host.clear()
        scan(make_problem((20,), headdim=P, dstate=N), **options)
        functions.append(host.launches()[-1].function)
    assert functions[0] == functions[1]


def test_a_first_call_launches_onto_the_live_state_once(measuring, monkeypatch):
    """Tuning repeats launches; one that advances a state must not be among them."""
    for kernel in KERNELS:
        monkeypatch.setattr(kernel, "configs", kernel.configs[:2])
        monkeypatch.setattr(kernel, "cache", {})
        monkeypatch.setattr(kernel, "_do_bench", repeat)
    options = cached()
    names = launched(measuring, **options)
    assert names.count("_chunk_scan_fwd_kernel") > 2
    assert names.count(PASSING) == 1
    cache = options["final_states_out"]
    start, end = cache.data_ptr(), cache.data_ptr() + cache.nbytes
    for launch in measuring.launches():
        addresses = [int.from_bytes(param, "little") for param in launch.params if len(param) == 8]
        touches = any(start <= address < end for address in addresses)
        assert touches == (launch.kernel == PASSING), launch


_times = itertools.count(1)


def repeat(call, quantiles=None, **_):
    """Stand in for a benchmark: launch three times, and each time take longer than before."""
    for _ in range(3):
        call()
    return [float(next(_times))] * 3


STATES, SLOTS = torch.zeros(5, H, P, N), torch.zeros(1, dtype=torch.int32)
WRONG = {
    "no indices": ({"initial_state_indices": None}, "initial_state_cache is given without"),
    "no cache": ({"initial_state_cache": None}, "initial_state_indices is given without"),
    "flags alone": (
        {"initial_state_cache": None, "initial_state_indices": None,
         "has_initial_state": torch.ones(1).bool()},
        "has_initial_state is given without",
    ),
    "initial states as well": ({"initial_states": STATES[:1].clone()}, "together with"),
    "another number of heads": (
        {"initial_state_cache": torch.zeros(5, H + 1, P, N)}, "initial_state_cache has shape"),
    "P and N turned": (
        {"initial_state_cache": torch.zeros(5, H, P // 2, 2 * N)}, "initial_state_cache has shape"),
    "integers": ({"initial_state_cache": STATES.int()}, "initial_state_cache is int32"),
    "slots apart": (
        {"initial_state_cache": torch.zeros(5, H, P, 2 * N)[..., ::2]}, "a slot of it is not dense"),
    "slots of two sequences": (
        {"initial_state_indices": torch.zeros(2).int()}, "initial_state_indices has shape"),
    "slots of floats": ({"initial_state_indices": torch.zeros(1)}, "initial_state_indices is"),
    "flags of integers": ({"has_initial_state": torch.ones(1).int()}, "has_initial_state is int32"),
    "flags of two": ({"has_initial_state": torch.ones(2).bool()}, "has_initial_state has shape"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused(host, options, message):
    host.clear()
    with pytest.raises(UsageError, match=message):
        launched(host, **{**cached(), **options})
    assert host.launches() == []


def test_an_output_within_the_cache_is_refused(host):
    problem = make_problem((20,), headdim=P, dstate=N)
    options = cached(final_states_out=None, final_state_indices=None)
    out = options["initial_state_cache"].flatten()[: problem.x.numel()].view(problem.x.shape)
    with pytest.raises(UsageError, match="out shares memory with initial_state_cache"):
        scan(problem, out=out, **options)


@pytest.mark.parametrize("name", ["initial_state_indices", "has_initial_state"])
def test_a_final_cache_over_what_is_read_of_slots_is_refused(host, name):
    memory = torch.zeros(5 * H * P * N)
    dtype = torch.int32 if name == "initial_state_indices" else torch.bool
    read = memory.view(dtype)[:1]
    with pytest.raises(UsageError, match=f"final_states_out shares memory with {name}"):
        launched(host, **cached(final_states_out=memory.view(5, H, P, N), **{name: read}))
