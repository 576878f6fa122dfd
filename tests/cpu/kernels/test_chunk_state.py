"""What the chunk state refuses, and what it launches and compiles."""

from __future__ import annotations

import pytest
import torch
import triton
from chunk_cases import bounds_of
from launching import compiled_by
from pinning import pin

from launchkit.errors import UsageError
from launchkit.kernels import placement
from launchkit.kernels.ssd import chunk_state as module
from launchkit.kernels.ssd.chunk_state import _chunk_state_fwd_kernel, chunk_state


def good_arguments(lengths=(4, 6), heads=4, headdim=8, dstate=16, groups=2, chunk_size=8):
    """Return arguments that fit: by default 10 tokens, 4 heads, P 8, 2 groups, N 16, 2 chunks."""
    passed = (heads, len(lengths), chunk_size)
    return {
        "x": torch.zeros(sum(lengths), heads, headdim),
        "B": torch.zeros(sum(lengths), groups, dstate),
        "dt": torch.zeros(passed),
        "dA_cumsum": torch.zeros(passed),
        "cu_chunk_seqlens": bounds_of(lengths, before=0),
    }


BAD = {
    "x of one head": ({"x": torch.zeros(10, 8)}, "x has shape"),
    "x of double": ({"x": torch.zeros(10, 4, 8).double()}, "x is float64"),
    "x on another device": ({"x": torch.zeros(10, 4, 8, device="meta")}, "B is on cpu"),
    "B of one group": ({"B": torch.zeros(10, 16)}, "B has shape"),
    "B of other tokens": ({"B": torch.zeros(9, 2, 16)}, "B has shape"),
    "B of integers": ({"B": torch.zeros(10, 2, 16, dtype=torch.int32)}, "B is int32"),
    "groups that share no heads": ({"B": torch.zeros(10, 3, 16)}, "B has 3 groups"),
    "more groups than heads": ({"B": torch.zeros(10, 8, 16)}, "B has 8 groups"),
    "no group": ({"B": torch.zeros(10, 0, 16)}, "B has 0 groups"),
    "no state channel": ({"B": torch.zeros(10, 2, 0)}, "B has shape .* with N above 0"),
    "steps as tokens": ({"dt": torch.zeros(10, 4)}, "dt has shape"),
    "steps of other heads": ({"dt": torch.zeros(2, 2, 8)}, "dt has shape"),
    "steps of other chunks": ({"dt": torch.zeros(4, 3, 8)}, "dt has shape"),
    "steps of an odd chunk size": ({"dt": torch.zeros(4, 2, 7)}, "chunk_size is 7"),
    "steps of half": ({"dt": torch.zeros(4, 2, 8).half()}, "dt is float16"),
    "steps with gaps": ({"dt": torch.zeros(4, 2, 16)[..., ::2]}, "dt has strides"),
    "sums of another chunk size": ({"dA_cumsum": torch.zeros(4, 2, 16)}, "dA_cumsum has shape"),
    "sums of half": ({"dA_cumsum": torch.zeros(4, 2, 8).half()}, "dA_cumsum is float16"),
    "sums the other way round": (
        {"dA_cumsum": torch.zeros(2, 4, 8).transpose(0, 1)},
        "dA_cumsum has strides",
    ),
    "no offset": (
        {"cu_chunk_seqlens": torch.zeros(0, dtype=torch.int32)},
        "cu_chunk_seqlens has shape",
    ),
    "wide offsets": ({"cu_chunk_seqlens": torch.zeros(3).long()}, "cu_chunk_seqlens is int64"),
    "offsets with gaps": (
        {"cu_chunk_seqlens": torch.zeros(6, dtype=torch.int32)[::2]},
        "cu_chunk_seqlens has strides",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_with_what_to_pass(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        chunk_state(**{**good_arguments(), **change})
    assert caught.value.fields["argument"] == message.split()[0]
    assert str(caught.value).endswith(".")


def test_cpu_tensors_are_refused_where_nothing_can_run(monkeypatch):
    monkeypatch.setattr(placement, "INTERPRETED", False)
    with pytest.raises(UsageError, match="on cpu"):
        chunk_state(**good_arguments())


@pytest.mark.parametrize("sizes", [{"lengths": ()}, {"headdim": 0}], ids=str)
def test_no_element_launches_nothing(host, sizes):
    assert chunk_state(**good_arguments(**sizes)).numel() == 0
    assert host.launches() == []


def real(dtype=torch.bfloat16, lengths=(128, 44), **sizes):
    """Return a problem of the sizes of a real model: P 64, N 128, chunks of up to 128 tokens."""
    sizes = {"heads": 8, "headdim": 64, "dstate": 128, "chunk_size": 128, **sizes}
    problem = good_arguments(lengths, **sizes)
    return {**problem, "x": problem["x"].to(dtype), "B": problem["B"].to(dtype)}


def test_the_grid_covers_all_chunks_heads_and_tiles(host, monkeypatch):
    blocks = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
    pin(monkeypatch, _chunk_state_fwd_kernel, triton.Config(blocks))
    chunk_state(**good_arguments((3, 2, 4), heads=5, groups=1, headdim=80, dstate=130))
    assert host.launches()[-1].grid == (3 * 5 * 3 * 3, 1, 1)


def test_no_size_of_a_batch_compiles_anew(host, monkeypatch):
    batches = [real(lengths=lengths) for lengths in ((1,), (16,) * 16, (128,), (3, 5, 7))]
    offset = torch.zeros(4, dtype=torch.int32)[1:]
    batches.append({**real(), "cu_chunk_seqlens": offset})
    compiled = compiled_by(monkeypatch, module, chunk_state, *batches)
    assert len(compiled) == 5
    assert len({id(kernel) for kernel in compiled}) == 1


def test_elements_next_to_each_other_are_copied_sixteen_bytes_at_a_time(host, monkeypatch):
    (kernel,) = compiled_by(monkeypatch, module, chunk_state, real())
    # Only copies of sixteen bytes can leave out the nearest cache.
    assert "cp.async.cg.shared.global" in kernel.asm["ptx"]


@pytest.mark.parametrize("config", _chunk_state_fwd_kernel.configs, ids=str)
def test_every_config_compiles_and_fits_into_the_shared_memory_of_sm_90(host, monkeypatch, config):
    pin(monkeypatch, _chunk_state_fwd_kernel, config)
    (kernel,) = compiled_by(monkeypatch, module, chunk_state, real())
    assert kernel.metadata.num_warps == config.num_warps
    assert 0 < kernel.metadata.shared <= 227 * 1024
