"""What the chunk cumsum refuses, and what it launches and compiles."""

from __future__ import annotations

import math

import pytest
import torch
import triton
from chunk_cases import bounds_of
from launching import compiled_by
from pinning import pin

from launchkit.errors import UsageError
from launchkit.kernels import placement
from launchkit.kernels.ssd import chunk_cumsum as module
from launchkit.kernels.ssd.chunk_cumsum import _chunk_cumsum_fwd_kernel, chunk_cumsum


def good_arguments(tokens=10, heads=3, lengths=(4, 6), before=0):
    """Return arguments that fit: by default 10 tokens, 3 heads, chunks of 4 and 6 tokens."""
    return {
        "dt": torch.zeros(tokens, heads),
        "A": torch.zeros(heads),
        "chunk_size": 8,
        "cu_chunk_seqlens": bounds_of(lengths, before=before),
        "dt_bias": torch.zeros(heads),
        "dt_softplus": True,
        "dt_limit": (0.0, 1.0),
    }


BAD = {
    "dt of one head": ({"dt": torch.zeros(10)}, "dt has shape"),
    "dt of integers": ({"dt": torch.zeros(10, 3, dtype=torch.int32)}, "dt is int32"),
    "dt of double": ({"dt": torch.zeros(10, 3).double()}, "dt is float64"),
    "dt on another device": ({"dt": torch.zeros(10, 3, device="meta")}, "A is on cpu"),
    "too many heads": ({"dt": torch.zeros(1, 65536)}, "dt has 65536 heads"),
    "A of other heads": ({"A": torch.zeros(2)}, "A has shape"),
    "A of a matrix": ({"A": torch.zeros(3, 1)}, "A has shape"),
    "A of double": ({"A": torch.zeros(3).double()}, "A is float64"),
    "bias of other heads": ({"dt_bias": torch.zeros(4)}, "dt_bias has shape"),
    "bias of integers": ({"dt_bias": torch.zeros(3, dtype=torch.int8)}, "dt_bias is int8"),
    "no chunk size": ({"chunk_size": 0}, "chunk_size is 0"),
    "a negative chunk size": ({"chunk_size": -8}, "chunk_size is -8"),
    "an odd chunk size": ({"chunk_size": 12}, "chunk_size is 12"),
    "a chunk size no program holds": ({"chunk_size": 2048}, "chunk_size is 2048"),
    "no offset": (
        {"cu_chunk_seqlens": torch.zeros(0, dtype=torch.int32)},
        "cu_chunk_seqlens has shape",
    ),
    "offsets in a matrix": (
        {"cu_chunk_seqlens": torch.zeros(3, 1, dtype=torch.int32)},
        "cu_chunk_seqlens has shape",
    ),
    "wide offsets": ({"cu_chunk_seqlens": torch.zeros(3).long()}, "cu_chunk_seqlens is int64"),
    "offsets with gaps": (
        {"cu_chunk_seqlens": torch.zeros(6, dtype=torch.int32)[::2]},
        "cu_chunk_seqlens has strides",
    ),
    "limits the wrong way round": ({"dt_limit": (1.0, 0.0)}, "dt_limit is"),
    "one limit": ({"dt_limit": (1.0,)}, "dt_limit is"),
    "limits that are no pair": ({"dt_limit": 1.0}, "dt_limit is"),
    "a limit that is not a number": ({"dt_limit": (math.nan, 1.0)}, "dt_limit is"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_with_what_to_pass(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        chunk_cumsum(**{**good_arguments(), **change})
    assert caught.value.fields["argument"] == message.split()[0]
    assert str(caught.value).endswith(".")


def test_a_wrong_size_is_told_by_its_name():
    with pytest.raises(UsageError, match=r"A has shape \(2,\), not \(H,\) with H 3\."):
        chunk_cumsum(**{**good_arguments(), "A": torch.zeros(2)})
    with pytest.raises(UsageError, match=r"dt has shape \(10,\), not \(T, H\)\."):
        chunk_cumsum(**{**good_arguments(), "dt": torch.zeros(10)})


def test_cpu_tensors_are_refused_where_nothing_can_run(monkeypatch):
    monkeypatch.setattr(placement, "INTERPRETED", False)
    with pytest.raises(UsageError, match="on cpu"):
        chunk_cumsum(**good_arguments())


def test_no_chunk_launches_nothing(host):
    dA_cumsum, steps = chunk_cumsum(**good_arguments(lengths=()))
    assert dA_cumsum.shape == steps.shape == (3, 0, 8)
    assert host.launches() == []


def test_the_grid_covers_all_chunks_and_heads(host, monkeypatch):
    config = triton.Config({"BLOCK_SIZE_H": 2})
    pin(monkeypatch, _chunk_cumsum_fwd_kernel, config)
    chunk_cumsum(**good_arguments())
    assert host.launches()[-1].grid == (2, 2, 1)


def test_no_size_of_a_batch_and_no_limit_compiles_anew(host, monkeypatch):
    batches = [good_arguments(sum(lengths), lengths=lengths) for lengths in ((1,), (2,) * 16, (8,))]
    shifted = torch.zeros(4, dtype=torch.int32)[1:]
    batches.append({**good_arguments(), "cu_chunk_seqlens": shifted})
    batches += [{**good_arguments(), "dt_limit": limit} for limit in ((0, 1), (0.5, math.inf))]
    compiled = compiled_by(monkeypatch, module, chunk_cumsum, *batches)
    assert len(compiled) == 6
    assert len({id(kernel) for kernel in compiled}) == 1


@pytest.mark.parametrize("config", _chunk_cumsum_fwd_kernel.configs, ids=str)
def test_every_config_compiles(host, monkeypatch, config):
    pin(monkeypatch, _chunk_cumsum_fwd_kernel, config)
    problem = {**good_arguments(heads=64), "chunk_size": 256}
    (kernel,) = compiled_by(monkeypatch, module, chunk_cumsum, problem)
    assert kernel.metadata.num_warps == config.num_warps
