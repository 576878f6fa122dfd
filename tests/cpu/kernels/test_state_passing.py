from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from launchkit.errors import UsageError
from launchkit.kernels import placement
from launchkit.kernels.ssd import state_passing as state_passing_module
from launchkit.kernels.ssd.reference import rounding_tolerance, state_passing_reference
from launchkit.kernels.ssd.state_passing import state_passing

ROOT = Path(__file__).parents[3]


def good_arguments():
    """Return arguments that fit: 4 chunks, 2 heads, P 3, N 5, 2 sequences, 6 slots."""
    return {
        "states": torch.zeros(4, 2, 15),
        "dA_cumsum": torch.zeros(2, 4, 8),
        "last_chunk_indices": torch.tensor([1, 3], dtype=torch.int32),
        "initial_states": torch.zeros(2, 2, 3, 5),
        "final_states_out": torch.zeros(6, 2, 3, 5),
        "final_state_indices": torch.tensor([0, 1]),
    }


shared = torch.zeros(10, 2, 3, 5)

BAD = {
    "states not flattened": ({"states": torch.zeros(4, 2, 3, 5)}, "states has shape"),
    "states of double": ({"states": torch.zeros(4, 2, 15).double()}, "states is float64"),
    "states on another device": (
        {"states": torch.zeros(4, 2, 15, device="meta")},
        "dA_cumsum is on cpu",
    ),
    "dA of other chunks": ({"dA_cumsum": torch.zeros(2, 3, 8)}, "dA_cumsum has shape"),
    "dA chunk first": ({"dA_cumsum": torch.zeros(4, 2, 8)}, "dA_cumsum has shape"),
    "dA of empty chunks": ({"dA_cumsum": torch.zeros(2, 4, 0)}, "dA_cumsum has shape"),
    "dA of half": ({"dA_cumsum": torch.zeros(2, 4, 8).half()}, "dA_cumsum is float16"),
    "wide chunk indices": (
        {"last_chunk_indices": torch.tensor([1, 3])},
        "last_chunk_indices is int64",
    ),
    "scalar chunk index": (
        {"last_chunk_indices": torch.tensor(3, dtype=torch.int32)},
        "last_chunk_indices has shape",
    ),
    "more sequences than a grid holds": (
        {"last_chunk_indices": torch.zeros(65536, dtype=torch.int32)},
        "last_chunk_indices has 65536 sequences",
    ),
    "initial states of another batch": (
        {"initial_states": torch.zeros(3, 2, 3, 5)},
        "initial_states has shape",
    ),
    "initial states of integers": (
        {"initial_states": torch.zeros(2, 2, 3, 5, dtype=torch.int32)},
        "initial_states is int32",
    ),
    "out of integers": ({"out_dtype": torch.int8}, "out_dtype is int8"),
    "slots without a cache": ({"final_states_out": None}, "final_states_out is missing"),
    "a cache without slots": ({"final_state_indices": None}, "final_state_indices is missing"),
    "initial states of no channel": (
        {"states": torch.zeros(4, 2, 0), "initial_states": torch.zeros(2, 2, 3, 0)},
        "initial_states has shape .* with N above 0",
    ),
    "a cache of no channel": (
        {
            "states": torch.zeros(4, 2, 0),
            "initial_states": None,
            "final_states_out": torch.zeros(6, 2, 3, 0),
        },
        "final_states_out has shape .* with N above 0",
    ),
    "flat cache": ({"final_states_out": torch.zeros(6, 2, 15)}, "final_states_out has shape"),
    "cache of other heads": (
        {"final_states_out": torch.zeros(6, 3, 3, 5)},
        "final_states_out has shape",
    ),
    "cache of transposed states": (
        {"final_states_out": torch.zeros(6, 2, 5, 3).transpose(2, 3)},
        "final_states_out has strides",
    ),
    "cache of one slot for all": (
        {"final_states_out": torch.zeros(1, 2, 3, 5).expand(6, 2, 3, 5)},
        "final_states_out has strides",
    ),
    "cache of one head for all": (
        {"final_states_out": torch.zeros(6, 1, 3, 5).expand(6, 2, 3, 5)},
        "final_states_out has strides",
    ),
    "cache of one element for all": (
        {"final_states_out": torch.zeros(6, 2, 1, 1).expand(6, 2, 3, 5)},
        "final_states_out has strides",
    ),
    "initial states the other way round": (
        {"initial_states": torch.zeros(2, 2, 5, 3)},
        "initial_states has shape",
    ),
    "cache of integers": (
        {"final_states_out": torch.zeros(6, 2, 3, 5, dtype=torch.int32)},
        "final_states_out is int32",
    ),
    "slots of another batch": (
        {"final_state_indices": torch.tensor([0, 1, 2])},
        "final_state_indices has shape",
    ),
    "slots of floats": (
        {"final_state_indices": torch.zeros(2)},
        "final_state_indices is float32",
    ),
    "in-place cache": (
        {"initial_states": shared[:2], "final_states_out": shared[1:7]},
        "final_states_out shares memory with initial_states",
    ),
    "cache over the input": (
        {"states": shared.flatten(2)[:4], "final_states_out": shared[1:7]},
        "final_states_out shares memory with states",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_with_what_to_pass(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        state_passing(**{**good_arguments(), **change})
    assert caught.value.fields["argument"] in message
    assert str(caught.value).endswith(".")


def test_empty_tensors_share_nothing(host):
    arguments = {
        "states": torch.zeros(0, 2, 15),
        "dA_cumsum": torch.zeros(2, 0, 8),
        "last_chunk_indices": torch.zeros(0, dtype=torch.int32),
        "final_states_out": torch.zeros(0, 2, 3, 5),
        "final_state_indices": torch.zeros(0, dtype=torch.int32),
    }
    assert state_passing(**arguments).shape == (0, 2, 15)
    assert host.launches() == []


def test_cpu_tensors_are_refused_with_the_three_ways_out(monkeypatch):
    monkeypatch.setattr(placement, "INTERPRETED", False)
    monkeypatch.setattr(placement.hostonly, "is_active", lambda: False)
    with pytest.raises(UsageError, match="on cpu") as caught:
        state_passing(**good_arguments())
    for way in ("Move them to a GPU", "TRITON_INTERPRET=1", "launchkit.hostonly.activate()"):
        assert way in str(caught.value)


@pytest.mark.parametrize(("index", "current", "guarded"), [(0, 0, False), (1, 0, True)])
def test_a_device_guard_is_entered_only_for_another_gpu(monkeypatch, index, current, guarded):
    class FakeTensor:
        is_cuda = True
        device = torch.device("cuda", index)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    guard = placement.device_guard(FakeTensor())
    assert isinstance(guard, torch.cuda.device) is guarded


def test_the_reference_equals_the_recurrence_step_by_step():
    rng = torch.Generator().manual_seed(0)
    states = torch.randn(6, 2, 15, generator=rng)
    dA = -torch.rand(2, 6, 8, generator=rng)
    initial = torch.randn(4, 2, 3, 5, generator=rng)
    last = torch.tensor([2, 2, 4, -1], dtype=torch.int32)
    out, final = state_passing_reference(states, dA, last, initial)
    chunks = {0: (0, 1, 2), 1: (), 2: (3, 4), 3: ()}
    for seq, own in chunks.items():
        state = initial[seq].double().flatten(1)
        for chunk in own:
            state = dA[:, chunk, -1].double().exp()[:, None] * state + states[chunk].double()
            torch.testing.assert_close(out[chunk], state, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(final[seq], state, rtol=1e-13, atol=1e-13)
    assert out[5].isnan().all()


def test_the_tolerance_tells_one_unit_in_the_last_place_from_rounding():
    exact = torch.linspace(0.5, 4.0, 1001, dtype=torch.float64)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rounded = exact.to(dtype)
        limit = rounding_tolerance(exact, exact, 1, dtype)
        assert ((rounded.double() - exact).abs() <= limit).all()
        wrong = rounded.double() * (1 + 20 * torch.finfo(dtype).eps)
        assert ((wrong - exact).abs() > limit).all()


def test_the_kernels_refuse_to_be_imported_under_another_name():
    spec = importlib.util.spec_from_file_location("kernels", ROOT / "kernels" / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.raises(ImportError, match=r"import launchkit\.kernels instead"):
        spec.loader.exec_module(module)


def test_the_kernels_refuse_to_be_imported_from_the_checkout():
    found = subprocess.run(
        [sys.executable, "-c", "import kernels.ssd.reference"],
        cwd=ROOT,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert "import launchkit.kernels instead" in found.stderr


def test_dense_states_are_read_and_written_four_at_a_time(host):
    """A stride that is not compiled as the constant 1 would cost three quarters of the speed."""
    arguments = {**good_arguments(), "states": torch.zeros(4, 2, 512)}
    arguments["initial_states"] = torch.zeros(2, 2, 8, 64)
    arguments["final_states_out"] = torch.zeros(6, 2, 8, 64)
    state_passing(**arguments)
    kernel = state_passing_module._state_passing_fwd_kernel
    compiled = [one for entry in kernel.fn.device_caches.values() for one in entry[0].values()]
    assert compiled
    for one in compiled:
        ptx = one.asm["ptx"]
        # The initial state and each chunk's addition; each chunk's state and the final one.
        assert ptx.count("ld.global.v4") >= 2
        assert ptx.count("st.global.v4") >= 2
