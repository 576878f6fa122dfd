"""Checks of what the whole scan, or chunk scan alone, is given. Raise UsageError, see no value."""

from __future__ import annotations

from typing import NamedTuple

import torch

from launchkit.kernels import arguments, overlap
from launchkit.kernels.ssd import checks, state_arguments


class ScanSizes(NamedTuple):
    """T, H, P, G and N."""

    ntokens: int
    nheads: int
    headdim: int
    ngroups: int
    dstate: int


def check_tokens(
    op: str,
    x: torch.Tensor,
    dt: torch.Tensor | None,
    B: torch.Tensor | None,
    C: torch.Tensor,
    out: torch.Tensor,
) -> ScanSizes:
    """Return the sizes; raise UsageError unless shapes, dtypes and devices fit together.

    None stands for what the op does not take.
    """
    checks.require_sizes(op, "x", x, "T, H, P", None, None, None)
    ntokens, nheads, headdim = x.shape
    name, first = ("C", C) if B is None else ("B", B)
    checks.require_sizes(op, name, first, "T, G, N", ntokens, None, None)
    _, ngroups, dstate = first.shape
    checks.require_sizes(op, "C", C, "T, G, N", ntokens, ngroups, dstate)
    checks.require_groups(op, name, nheads, ngroups)
    checks.require_state_channels(op, name, first, "T, G, N")
    if dt is not None:
        checks.require_sizes(op, "dt", dt, "T, H", ntokens, nheads)
    checks.require_sizes(op, "out", out, "T, H, P", ntokens, nheads, headdim)
    device, allowed = x.device, checks.ACTIVATION_DTYPES
    for name, tensor in (("x", x), ("dt", dt), ("B", B), ("C", C), ("out", out)):
        if tensor is not None:
            arguments.require_tensor(op, name, tensor, allowed, device)
    checks.require_grid_axis(op, "x", nheads, "heads")
    return ScanSizes(ntokens, nheads, headdim, ngroups, dstate)


def check_chunks(
    op: str,
    sizes: ScanSizes,
    CB: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    states: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    seq_idx: torch.Tensor,
    device: torch.device,
) -> int:
    """Return nchunks, having checked what chunk scan is given of each chunk."""
    nchunks = checks.count_chunks(op, cu_chunk_seqlens, device)
    checks.require_sizes(op, "dA_cumsum", dA_cumsum, "H, nchunks, Q", sizes.nheads, nchunks, None)
    chunk_size = dA_cumsum.shape[2]
    checks.require_chunk_size(op, chunk_size)
    per_token = (device, "H, nchunks, Q", sizes.nheads, nchunks, chunk_size)
    checks.require_passed(op, "dA_cumsum", dA_cumsum, *per_token)
    checks.require_passed(op, "dt", dt, *per_token)
    floats = arguments.STATE_DTYPES
    products = ("nchunks, G, Q, Q", nchunks, sizes.ngroups, chunk_size, chunk_size)
    checks.require_passed(op, "CB", CB, device, *products, allowed=floats)
    of_chunk = ("nchunks, H, P, N", nchunks, sizes.nheads, sizes.headdim, sizes.dstate)
    checks.require_passed(op, "states", states, device, *of_chunk, allowed=floats)
    checks.require_metadata(op, "seq_idx", seq_idx, device, "nchunks", nchunks)
    return nchunks


def check_metadata(
    op: str,
    cu_seqlens: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    seq_idx: torch.Tensor,
    device: torch.device,
) -> tuple[int, int]:
    """Return nchunks and S; raise UsageError unless the metadata tensors fit together."""
    nchunks = checks.count_chunks(op, cu_chunk_seqlens, device)
    checks.require_metadata(op, "seq_idx", seq_idx, device, "nchunks", nchunks)
    checks.require_sizes(op, "cu_seqlens", cu_seqlens, "S+1", None)
    num_seqs = cu_seqlens.shape[0] - 1
    if num_seqs < 0:
        raise arguments.wrong_shape(op, "cu_seqlens", cu_seqlens, "(S+1,), of one element or more")
    checks.require_metadata(op, "last_chunk_indices", last_chunk_indices, device, "S", num_seqs)
    checks.require_grid_axis(op, "cu_seqlens", num_seqs, "sequences")
    return nchunks, num_seqs


def check_optional(
    op: str,
    sizes: ScanSizes,
    x: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Raise UsageError unless D and z fit, and the elements of ``out`` lie apart."""
    device, allowed = x.device, checks.ACTIVATION_DTYPES
    if D is not None:
        ndim = len(arguments.sizes_of(op, "D", D))
        wanted = (sizes.nheads,) if ndim == 1 else (sizes.nheads, sizes.headdim)
        checks.require_sizes(op, "D", D, "H, P"[: 3 * len(wanted) - 2], *wanted)
        arguments.require_tensor(op, "D", D, allowed, device)
    if z is not None:
        checks.require_sizes(op, "z", z, "T, H, P", *x.shape)
        arguments.require_tensor(op, "z", z, allowed, device)
    overlap.refuse_self_overlap(op, "out", out)


def check_endings(
    op: str, final_states_out: torch.Tensor | None, return_intermediate_states: bool
) -> bool:
    """Return the flag as a bool; raise UsageError if final states are to be written as well."""
    every = arguments.flag(op, "return_intermediate_states", return_intermediate_states)
    if every and final_states_out is not None:
        raise arguments.refusal(
            op,
            "return_intermediate_states",
            "is set together with final_states_out",
            "Take the final states from the intermediate ones, or leave one of the two out.",
        )
    return every


def check_states(
    op: str,
    initial_states: torch.Tensor | None,
    final_states_out: torch.Tensor | None,
    headdim: int,
    dstate: int,
) -> None:
    """Raise UsageError unless the states that are given have P and N the right way round."""
    for name, state in (
        ("initial_states", initial_states),
        ("final_states_out", final_states_out),
    ):
        if state is not None:
            state_arguments.require_state_sizes(op, name, state, headdim, dstate)
