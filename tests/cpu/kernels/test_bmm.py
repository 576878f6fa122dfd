"""What the chunk products refuse, and what they launch."""

from __future__ import annotations

import pytest
import torch
from chunk_cases import bounds_of

from launchkit.errors import UsageError
from launchkit.kernels import placement
from launchkit.kernels.ssd.bmm import bmm_chunk


def good_arguments():
    """Return arguments that fit: 10 tokens, 2 groups, N 16, 2 chunks of up to 8."""
    return {
        "C": torch.zeros(10, 2, 16),
        "B": torch.zeros(10, 2, 16),
        "chunk_size": 8,
        "cu_chunk_seqlens": bounds_of((4, 6), before=0),
    }


BAD = {
    "C of one group": ({"C": torch.zeros(10, 16)}, "C has shape"),
    "C of double": ({"C": torch.zeros(10, 2, 16).double()}, "C is float64"),
    "no state channel": (
        {"C": torch.zeros(10, 2, 0), "B": torch.zeros(10, 2, 0)},
        "C has shape .* with N above 0",
    ),
    "B of one group": ({"B": torch.zeros(10, 16)}, "B has shape"),
    "B of other tokens": ({"B": torch.zeros(9, 2, 16)}, "B has shape"),
    "B of other groups": ({"B": torch.zeros(10, 1, 16)}, "B has shape"),
    "B of another state": ({"B": torch.zeros(10, 2, 8)}, "B has shape"),
    "B of integers": ({"B": torch.zeros(10, 2, 16, dtype=torch.int32)}, "B is int32"),
    "B on another device": ({"B": torch.zeros(10, 2, 16, device="meta")}, "B is on meta"),
    "more groups than a grid holds": (
        {"C": torch.zeros(0, 65536, 1), "B": torch.zeros(0, 65536, 1)},
        "C has 65536 groups",
    ),
    "an odd chunk size": ({"chunk_size": 12}, "chunk_size is 12"),
    "no chunk size": ({"chunk_size": 0}, "chunk_size is 0"),
    "wide offsets": ({"cu_chunk_seqlens": torch.zeros(3).long()}, "cu_chunk_seqlens is int64"),
    "no offset": (
        {"cu_chunk_seqlens": torch.zeros(0, dtype=torch.int32)},
        "cu_chunk_seqlens has shape",
    ),
    "offsets with gaps": (
        {"cu_chunk_seqlens": torch.zeros(6, dtype=torch.int32)[::2]},
        "cu_chunk_seqlens has strides",
    ),
    "a result of integers": ({"out_dtype": torch.int32}, "out_dtype is int32"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_with_what_to_pass(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        bmm_chunk(**{**good_arguments(), **change})
    assert caught.value.fields["argument"] == message.split()[0]
    assert str(caught.value).endswith(".")


def test_cpu_tensors_are_refused_where_nothing_can_run(monkeypatch):
    monkeypatch.setattr(placement, "INTERPRETED", False)
    with pytest.raises(UsageError, match="on cpu"):
        bmm_chunk(**good_arguments())


def test_each_group_is_a_column_of_programs(host):
    CB = bmm_chunk(**good_arguments())
    assert CB.shape == (2, 2, 8, 8)
    (launch,) = host.launches()
    assert launch.kernel == "_bmm_chunk_fwd_kernel"
    assert launch.grid == (2, 2, 1)


@pytest.mark.parametrize(
    "empty",
    [
        {"cu_chunk_seqlens": torch.zeros(1, dtype=torch.int32)},
        {"C": torch.zeros(10, 0, 16), "B": torch.zeros(10, 0, 16)},
    ],
    ids=["no chunk", "no group"],
)
def test_nothing_to_multiply_launches_nothing(host, empty):
    assert bmm_chunk(**{**good_arguments(), **empty}).numel() == 0
    assert host.launches() == []
