"""What the chunk scan refuses, and what it launches."""

from __future__ import annotations

import pytest
import torch
from chunk_cases import bounds_of

from launchkit.errors import UsageError
from launchkit.kernels import placement
from launchkit.kernels.ssd.chunk_scan import chunk_scan


def good_arguments():
    """Return arguments that fit: 10 tokens, 4 heads, P 5, 2 groups, N 16, 2 chunks of up to 8."""
    return {
        "CB": torch.zeros(2, 2, 8, 8),
        "x": torch.zeros(10, 4, 5),
        "dt": torch.zeros(4, 2, 8),
        "dA_cumsum": torch.zeros(4, 2, 8),
        "C": torch.zeros(10, 2, 16),
        "states": torch.zeros(2, 4, 5, 16),
        "cu_chunk_seqlens": bounds_of((4, 6), before=0),
        "seq_idx": torch.tensor([0, 1], dtype=torch.int32),
        "out": torch.zeros(10, 4, 5),
        "D": torch.zeros(4),
        "z": torch.zeros(10, 4, 5),
        "initial_states": torch.zeros(2, 4, 5, 16),
    }


shared = torch.zeros(10, 4, 5)

BAD = {
    "x of one head": ({"x": torch.zeros(10, 5)}, "x has shape"),
    "x of double": ({"x": torch.zeros(10, 4, 5).double()}, "x is float64"),
    "C of other tokens": ({"C": torch.zeros(9, 2, 16)}, "C has shape"),
    "C of integers": ({"C": torch.zeros(10, 2, 16, dtype=torch.int32)}, "C is int32"),
    "C on another device": ({"C": torch.zeros(10, 2, 16, device="meta")}, "C is on meta"),
    "groups that share no heads": ({"C": torch.zeros(10, 3, 16)}, "C has 3 groups"),
    "no group": ({"C": torch.zeros(10, 0, 16)}, "C has 0 groups"),
    "no state channel": (
        {"C": torch.zeros(10, 2, 0), "states": torch.zeros(2, 4, 5, 0)},
        "C has shape .* with N above 0",
    ),
    "out of other heads": ({"out": torch.zeros(10, 3, 5)}, "out has shape"),
    "out of integers": ({"out": torch.zeros(10, 4, 5, dtype=torch.int32)}, "out is int32"),
    "out of one head for all": ({"out": torch.zeros(10, 1, 5).expand(10, 4, 5)}, "out has strides"),
    "out over x": ({"x": shared, "out": shared}, "out shares memory with x"),
    "out over z": ({"z": shared, "out": shared}, "out shares memory with z"),
    "sums of other heads": ({"dA_cumsum": torch.zeros(3, 2, 8)}, "dA_cumsum has shape"),
    "sums of other chunks": ({"dA_cumsum": torch.zeros(4, 3, 8)}, "dA_cumsum has shape"),
    "sums of half": ({"dA_cumsum": torch.zeros(4, 2, 8).half()}, "dA_cumsum is float16"),
    "sums of an odd chunk size": ({"dA_cumsum": torch.zeros(4, 2, 7)}, "chunk_size is 7"),
    "steps of another chunk size": ({"dt": torch.zeros(4, 2, 16)}, "dt has shape"),
    "steps with gaps": ({"dt": torch.zeros(4, 2, 16)[..., ::2]}, "dt has strides"),
    "products of other groups": ({"CB": torch.zeros(2, 1, 8, 8)}, "CB has shape"),
    "products of another chunk size": ({"CB": torch.zeros(2, 2, 8, 16)}, "CB has shape"),
    "products the other way round": ({"CB": torch.zeros(2, 2, 8, 8).mT}, "CB has strides"),
    "states of other chunks": ({"states": torch.zeros(3, 4, 5, 16)}, "states has shape"),
    "flat states": ({"states": torch.zeros(2, 4, 80)}, "states has shape"),
    "states the other way round": (
        {"states": torch.zeros(2, 4, 16, 5).mT},
        "states has strides",
    ),
    "states of double": ({"states": torch.zeros(2, 4, 5, 16).double()}, "states is float64"),
    "wide sequences": ({"seq_idx": torch.tensor([0, 1])}, "seq_idx is int64"),
    "sequences of other chunks": (
        {"seq_idx": torch.tensor([0], dtype=torch.int32)},
        "seq_idx has shape",
    ),
    "no offset": (
        {"cu_chunk_seqlens": torch.zeros(0, dtype=torch.int32)},
        "cu_chunk_seqlens has shape",
    ),
    "D of other heads": ({"D": torch.zeros(3)}, "D has shape"),
    "D of other channels": ({"D": torch.zeros(4, 6)}, "D has shape"),
    "D without a dimension": ({"D": torch.zeros(())}, "D has shape"),
    "D of integers": ({"D": torch.zeros(4, dtype=torch.int32)}, "D is int32"),
    "z of other heads": ({"z": torch.zeros(10, 3, 5)}, "z has shape"),
    "z of double": ({"z": torch.zeros(10, 4, 5).double()}, "z is float64"),
    "flat initial states": ({"initial_states": torch.zeros(2, 4, 80)}, "initial_states has shape"),
    "initial states the other way round": (
        {"initial_states": torch.zeros(2, 4, 16, 5)},
        "initial_states has shape",
    ),
    "initial states of integers": (
        {"initial_states": torch.zeros(2, 4, 5, 16, dtype=torch.int32)},
        "initial_states is int32",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_with_what_to_pass(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        chunk_scan(**{**good_arguments(), **change})
    assert caught.value.fields["argument"] == message.split()[0]
    assert str(caught.value).endswith(".")


def test_cpu_tensors_are_refused_where_nothing_can_run(monkeypatch):
    monkeypatch.setattr(placement, "INTERPRETED", False)
    with pytest.raises(UsageError, match="on cpu"):
        chunk_scan(**good_arguments())


def test_each_head_is_a_column_of_programs(host):
    chunk_scan(**good_arguments())
    (launch,) = host.launches()
    assert launch.kernel == "_chunk_scan_fwd_kernel"
    assert launch.grid == (2, 4, 1)


@pytest.mark.parametrize(
    "left_out",
    [{"D", "z", "initial_states"}, {"D"}, {"z", "D"}],
    ids=lambda names: " ".join(sorted(names)),
)
def test_what_is_optional_may_be_left_out(host, left_out):
    chunk_scan(**{name: v for name, v in good_arguments().items() if name not in left_out})
    assert len(host.launches()) == 1


def test_no_number_of_chunks_compiles_anew(host):
    compiled = set()
    for nchunks in (1, 2, 3, 16, 17):
        case = good_arguments() | {
            "CB": torch.zeros(nchunks, 2, 8, 8),
            "dt": torch.zeros(4, nchunks, 8),
            "dA_cumsum": torch.zeros(4, nchunks, 8),
            "states": torch.zeros(nchunks, 4, 5, 16),
            "cu_chunk_seqlens": torch.zeros(nchunks + 2, dtype=torch.int32)[1:],
            "seq_idx": torch.zeros(nchunks + 3, dtype=torch.int32)[3:],
        }
        chunk_scan(**case)
        compiled.add(host.launches()[-1].function)
    assert len(compiled) == 1


@pytest.mark.parametrize("heads", [0, 4])
def test_nothing_to_compute_launches_nothing(host, heads):
    nchunks, headdim = (2, 5) if heads == 0 else (0, 5)
    case = {
        "CB": torch.zeros(nchunks, 2, 8, 8),
        "x": torch.zeros(10, heads, headdim),
        "dt": torch.zeros(heads, nchunks, 8),
        "dA_cumsum": torch.zeros(heads, nchunks, 8),
        "C": torch.zeros(10, 2, 16),
        "states": torch.zeros(nchunks, heads, headdim, 16),
        "cu_chunk_seqlens": torch.zeros(nchunks + 1, dtype=torch.int32),
        "seq_idx": torch.zeros(nchunks, dtype=torch.int32),
        "out": torch.zeros(10, heads, headdim),
    }
    chunk_scan(**case)
    assert host.launches() == []
