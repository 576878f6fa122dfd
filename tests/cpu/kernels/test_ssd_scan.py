"""The whole scan's arguments: what does not fit is refused by name before anything is launched."""

from __future__ import annotations

import pytest
import torch

from launchkit.errors import UsageError
from launchkit.kernels import placement
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen

INT32 = torch.int32


def good_arguments():
    """Return arguments that fit: 20 tokens, H 4, P 3, G 2, N 5, chunk 16, 2 sequences."""
    metadata = build_chunk_metadata([0, 17, 20], 16)
    return {
        "x": torch.zeros(20, 4, 3),
        "dt": torch.zeros(20, 4),
        "A": -torch.ones(4),
        "B": torch.zeros(20, 2, 5),
        "C": torch.zeros(20, 2, 5),
        "chunk_size": 16,
        "cu_seqlens": metadata.cu_seqlens,
        "cu_chunk_seqlens": metadata.cu_chunk_seqlens,
        "last_chunk_indices": metadata.last_chunk_indices,
        "seq_idx": metadata.seq_idx,
        "out": torch.zeros(20, 4, 3),
        "D": torch.zeros(4),
        "z": torch.zeros(20, 4, 3),
        "dt_bias": torch.zeros(4),
        "initial_states": torch.zeros(2, 4, 3, 5),
    }


def with_cache(**change):
    return {
        "final_states_out": torch.zeros(6, 4, 3, 5),
        "final_state_indices": torch.tensor([0, 1]),
        **change,
    }


shared = torch.zeros(8, 4, 3, 5)
same = torch.zeros(20, 4, 3)

BAD = {
    "x of two dimensions": ({"x": torch.zeros(20, 12)}, "x has shape"),
    "x of integers": ({"x": torch.zeros(20, 4, 3, dtype=INT32)}, "x is int32"),
    "x of doubles": ({"x": torch.zeros(20, 4, 3).double()}, "x is float64"),
    "dt of other tokens": ({"dt": torch.zeros(19, 4)}, "dt has shape"),
    "dt of other heads": ({"dt": torch.zeros(20, 3)}, "dt has shape"),
    "dt of doubles": ({"dt": torch.zeros(20, 4).double()}, "dt is float64"),
    "A of other heads": ({"A": torch.zeros(3)}, "A has shape"),
    "A a head and state": ({"A": torch.zeros(4, 5)}, "A has shape"),
    "A of doubles": ({"A": torch.zeros(4).double()}, "A is float64"),
    "B of other tokens": ({"B": torch.zeros(19, 2, 5)}, "B has shape"),
    "B without groups": ({"B": torch.zeros(20, 5)}, "B has shape"),
    "B of integers": ({"B": torch.zeros(20, 2, 5, dtype=INT32)}, "B is int32"),
    "B elsewhere": ({"B": torch.zeros(20, 2, 5, device="meta")}, "B is on meta"),
    "groups that do not divide the heads": (
        {"B": torch.zeros(20, 3, 5), "C": torch.zeros(20, 3, 5)},
        "B has 3 groups",
    ),
    "no group": ({"B": torch.zeros(20, 0, 5), "C": torch.zeros(20, 0, 5)}, "B has 0 groups"),
    "no state channel": (
        {"B": torch.zeros(20, 2, 0), "C": torch.zeros(20, 2, 0)},
        "B has shape .* with N above 0",
    ),
    "C of other states": ({"C": torch.zeros(20, 2, 6)}, "C has shape"),
    "C of other groups": ({"C": torch.zeros(20, 1, 5)}, "C has shape"),
    "C of doubles": ({"C": torch.zeros(20, 2, 5).double()}, "C is float64"),
    "out of other tokens": ({"out": torch.zeros(21, 4, 3)}, "out has shape"),
    "flat out": ({"out": torch.zeros(20, 12)}, "out has shape"),
    "out of integers": ({"out": torch.zeros(20, 4, 3, dtype=INT32)}, "out is int32"),
    "out of one head for all": ({"out": torch.zeros(20, 1, 3).expand(20, 4, 3)}, "out has strides"),
    "out elsewhere": ({"out": torch.zeros(20, 4, 3, device="meta")}, "out is on meta"),
    "steps below zero": ({"dt_limit": (-0.5, 1.0)}, "dt_limit is .* below 0"),
    "limits beyond floats": ({"dt_limit": (0, 10**400)}, "dt_limit is"),
    "softplus by name": ({"dt_softplus": "yes"}, "dt_softplus is 'yes'"),
    "softplus as a tensor": ({"dt_softplus": torch.ones(1)}, "dt_softplus is tensor"),
    "intermediate states of some": (
        {"return_intermediate_states": [True, False]},
        "return_intermediate_states is",
    ),
    "out whose tokens share memory": (
        {"out": torch.zeros(99).as_strided((20, 4, 3), (1, 1, 1))},
        "out has strides",
    ),
    "cache whose slots share memory": (
        with_cache(final_states_out=torch.zeros(999).as_strided((6, 4, 3, 5), (7, 15, 5, 1))),
        "final_states_out has strides",
    ),
    "out over x": ({"x": same, "out": same}, "out shares memory with x"),
    "out over z": ({"z": same, "out": same}, "out shares memory with z"),
    "chunk size 48": ({"chunk_size": 48}, "chunk_size is 48"),
    "chunk size 0": ({"chunk_size": 0}, "chunk_size is 0"),
    "negative chunk size": ({"chunk_size": -16}, "chunk_size is -16"),
    "chunk size of float": ({"chunk_size": 16.0}, r"chunk_size is 16\.0"),
    "chunk size of text": ({"chunk_size": "16"}, "chunk_size is '16'"),
    "chunk size of bool": ({"chunk_size": True}, "chunk_size is True"),
    "chunk size over what a program holds": ({"chunk_size": 2048}, "chunk_size is 2048"),
    "no sequence offsets": ({"cu_seqlens": torch.zeros(0, dtype=INT32)}, "cu_seqlens has shape"),
    "wide chunk offsets": (
        {"cu_chunk_seqlens": torch.zeros(4).long()},
        "cu_chunk_seqlens is int64",
    ),
    "no chunk offsets": (
        {"cu_chunk_seqlens": torch.zeros(0, dtype=INT32)},
        "cu_chunk_seqlens has shape",
    ),
    "chunk offsets elsewhere": (
        {"cu_chunk_seqlens": torch.zeros(4, dtype=INT32, device="meta")},
        "cu_chunk_seqlens is on meta",
    ),
    "seq_idx of other chunks": ({"seq_idx": torch.zeros(4, dtype=INT32)}, "seq_idx has shape"),
    "wide seq_idx": ({"seq_idx": torch.zeros(3).long()}, "seq_idx is int64"),
    "last chunks of other sequences": (
        {"last_chunk_indices": torch.zeros(3, dtype=INT32)},
        "last_chunk_indices has shape",
    ),
    "wide last chunks": (
        {"last_chunk_indices": torch.zeros(2).long()},
        "last_chunk_indices is int64",
    ),
    "D of other heads": ({"D": torch.zeros(3)}, "D has shape"),
    "D of other channels": ({"D": torch.zeros(4, 4)}, "D has shape"),
    "D without dimension": ({"D": torch.zeros(())}, "D has shape"),
    "D of doubles": ({"D": torch.zeros(4).double()}, "D is float64"),
    "z of other tokens": ({"z": torch.zeros(19, 4, 3)}, "z has shape"),
    "z of doubles": ({"z": torch.zeros(20, 4, 3).double()}, "z is float64"),
    "bias of other heads": ({"dt_bias": torch.zeros(5)}, "dt_bias has shape"),
    "bias of doubles": ({"dt_bias": torch.zeros(4).double()}, "dt_bias is float64"),
    "limits the wrong way round": ({"dt_limit": (1.0, 0.0)}, "dt_limit is"),
    "one limit": ({"dt_limit": 0.1}, "dt_limit is"),
    "a limit that is no number": ({"dt_limit": (0.0, float("nan"))}, "dt_limit is"),
    "initial states of other sequences": (
        {"initial_states": torch.zeros(3, 4, 3, 5)},
        "initial_states has shape",
    ),
    "initial states the other way round": (
        {"initial_states": torch.zeros(2, 4, 5, 3)},
        "initial_states has shape",
    ),
    "initial states of doubles": (
        {"initial_states": torch.zeros(2, 4, 3, 5).double()},
        "initial_states is float64",
    ),
    "state of integers": ({"state_dtype": torch.int8}, "state_dtype is int8"),
    "slots without a cache": (with_cache(final_states_out=None), "final_states_out is missing"),
    "a cache without slots": (
        with_cache(final_state_indices=None),
        "final_state_indices is missing",
    ),
    "cache of other heads": (
        with_cache(final_states_out=torch.zeros(6, 2, 3, 5)),
        "final_states_out has shape",
    ),
    "cache the other way round": (
        with_cache(final_states_out=torch.zeros(6, 4, 5, 3)),
        "final_states_out has shape",
    ),
    "transposed cache": (
        with_cache(final_states_out=torch.zeros(6, 4, 5, 3).mT),
        "final_states_out has strides",
    ),
    "cache of integers": (
        with_cache(final_states_out=torch.zeros(6, 4, 3, 5, dtype=INT32)),
        "final_states_out is int32",
    ),
    "slots of other sequences": (
        with_cache(final_state_indices=torch.tensor([0])),
        "final_state_indices has shape",
    ),
    "slots of floats": (
        with_cache(final_state_indices=torch.zeros(2)),
        "final_state_indices is float32",
    ),
    "in-place cache": (
        with_cache(final_states_out=shared[1:], initial_states=shared[:2]),
        "final_states_out shares memory with initial_states",
    ),
    "both a cache and returned states": (
        with_cache(return_intermediate_states=True),
        "return_intermediate_states is set together with final_states_out",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_and_nothing_is_launched(host, change, message):
    with pytest.raises(UsageError, match=message) as caught:
        mamba_chunk_scan_combined_varlen(**{**good_arguments(), **change})
    assert caught.value.fields["argument"] == message.split()[0]
    assert str(caught.value).endswith(".")
    assert host.launches() == []


REQUIRED = (
    "x", "dt", "A", "B", "C", "cu_seqlens", "cu_chunk_seqlens", "last_chunk_indices", "seq_idx",
    "out",
)  # fmt: skip
OPTIONAL = ("D", "z", "dt_bias", "initial_states", "final_states_out", "final_state_indices")


@pytest.mark.parametrize("kind", ["list", "array"])
@pytest.mark.parametrize("name", REQUIRED + OPTIONAL)
def test_what_is_no_tensor_is_refused_by_name(host, name, kind):
    arguments = {**good_arguments(), **with_cache()}
    value = arguments[name].tolist() if kind == "list" else arguments[name].numpy()
    with pytest.raises(UsageError, match=f"{name} is a (list|ndarray). Pass a torch tensor"):
        mamba_chunk_scan_combined_varlen(**{**arguments, name: value})
    assert host.launches() == []


@pytest.mark.parametrize("name", REQUIRED)
def test_a_tensor_that_is_missing_is_refused_by_name(host, name):
    with pytest.raises(UsageError, match=f"{name} is a NoneType"):
        mamba_chunk_scan_combined_varlen(**{**good_arguments(), name: None})


def test_a_sparse_tensor_is_refused(host):
    with pytest.raises(UsageError, match="B is laid out as"):
        mamba_chunk_scan_combined_varlen(
            **{**good_arguments(), "B": torch.zeros(20, 2, 5).to_sparse()}
        )


SHARING = {
    name: (lambda arguments, name=name: arguments[name])
    for name in ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states")
}


@pytest.mark.parametrize("name", SHARING)
def test_an_output_or_cache_that_shares_memory_with_an_input_is_refused(host, name):
    arguments = {**good_arguments(), **with_cache()}
    memory = torch.zeros(2000)
    read = arguments[name]
    arguments[name] = memory.as_strided(read.shape, read.stride(), 7)
    for written in ("out", "final_states_out"):
        over = {written: memory.as_strided(arguments[written].shape, arguments[written].stride())}
        with pytest.raises(UsageError, match=f"{written} shares memory with {name}"):
            mamba_chunk_scan_combined_varlen(**{**arguments, **over})
    assert host.launches() == []


def test_a_cache_over_the_output_or_its_own_slots_is_refused(host):
    memory = torch.zeros(2000)
    arguments = {**good_arguments(), **with_cache()}
    cache = memory.as_strided((6, 4, 3, 5), (60, 15, 5, 1))
    over_out = {"final_states_out": cache, "out": memory.as_strided((20, 4, 3), (12, 3, 1), 100)}
    with pytest.raises(UsageError, match="out shares memory with final_states_out"):
        mamba_chunk_scan_combined_varlen(**{**arguments, **over_out})
    slots = memory.view(torch.int32)[2:4]
    with pytest.raises(UsageError, match="final_states_out shares memory with final_state_indices"):
        mamba_chunk_scan_combined_varlen(
            **{**arguments, "final_states_out": cache, "final_state_indices": slots}
        )


def test_an_output_beside_the_tokens_of_one_buffer_is_taken(host):
    buffer = torch.zeros(20, 24)
    views = {"x": buffer[:, :12].unflatten(1, (4, 3)), "out": buffer[:, 12:].unflatten(1, (4, 3))}
    mamba_chunk_scan_combined_varlen(**{**good_arguments(), **views})
    assert len(host.launches()) == 5


def test_cpu_tensors_are_refused_with_the_three_ways_out(monkeypatch):
    monkeypatch.setattr(placement, "INTERPRETED", False)
    with pytest.raises(UsageError, match="on cpu") as caught:
        mamba_chunk_scan_combined_varlen(**good_arguments())
    for way in ("Move them to a GPU", "TRITON_INTERPRET=1", "launchkit.hostonly.activate()"):
        assert way in str(caught.value)


RETURNS = {
    "final states": ({}, (2, 4, 3, 5)),
    "states after every chunk": ({"return_intermediate_states": True}, (3, 4, 3, 5)),
    "nothing beside a cache": (with_cache(), None),
}


@pytest.mark.parametrize("state_dtype", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("change", "shape"), RETURNS.values(), ids=RETURNS.keys())
def test_the_scan_is_five_launches_whatever_it_returns(host, change, shape, state_dtype):
    arguments = {**good_arguments(), **change, "state_dtype": state_dtype}
    result = mamba_chunk_scan_combined_varlen(**arguments)
    names = [launch.kernel for launch in host.launches()]
    assert len(names) == len(set(names)) == 5
    if shape is None:
        assert result is None
    else:
        assert result.shape == shape
        assert result.dtype == (state_dtype or torch.float32)


def test_no_token_launches_only_what_hands_states_on(host):
    metadata = build_chunk_metadata([0, 0, 0], 16)
    arguments = {
        name: tensor[:0] if tensor.shape[:1] == (20,) else tensor
        for name, tensor in good_arguments().items()
        if isinstance(tensor, torch.Tensor)
    }
    arguments.update(
        chunk_size=16,
        cu_seqlens=metadata.cu_seqlens,
        cu_chunk_seqlens=metadata.cu_chunk_seqlens,
        last_chunk_indices=metadata.last_chunk_indices,
        seq_idx=metadata.seq_idx,
    )
    assert mamba_chunk_scan_combined_varlen(**arguments).shape == (2, 4, 3, 5)
    assert [launch.kernel for launch in host.launches()] == ["_state_passing_fwd_kernel"]
