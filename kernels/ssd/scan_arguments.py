"""Checks of what the whole scan is given, made once for its five kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch

from launchkit.kernels import arguments
from launchkit.kernels.ssd import checks


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
    dt: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    out: torch.Tensor,
    chunk_size: int,
) -> ScanSizes:
    """Return the sizes; raise UsageError unless shapes, dtypes and devices fit together."""
    checks.require_sizes(op, "x", x, "T, H, P", None, None, None)
    ntokens, nheads, headdim = x.shape
    checks.require_sizes(op, "B", B, "T, G, N", ntokens, None, None)
    _, ngroups, dstate = B.shape
    checks.require_sizes(op, "C", C, "T, G, N", ntokens, ngroups, dstate)
    checks.require_groups(op, "B", nheads, ngroups)
    checks.require_sizes(op, "dt", dt, "T, H", ntokens, nheads)
    checks.require_sizes(op, "out", out, "T, H, P", ntokens, nheads, headdim)
    device, allowed = x.device, checks.ACTIVATION_DTYPES
    for name, tensor in (("x", x), ("dt", dt), ("B", B), ("C", C), ("out", out)):
        arguments.require_tensor(op, name, tensor, allowed, device)
    checks.require_chunk_size(op, chunk_size)
    checks.require_heads(op, "x", nheads)
    if dstate == 0:
        raise arguments.wrong_shape(op, "B", B, "(T, G, N) with N above 0")
    return ScanSizes(ntokens, nheads, headdim, ngroups, dstate)


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
    checks.require_seqs(op, "cu_seqlens", num_seqs)
    return nchunks, num_seqs


def check_optional(
    op: str,
    sizes: ScanSizes,
    x: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Raise UsageError unless D and z fit, and ``out`` is neither x nor z."""
    device, allowed = x.device, checks.ACTIVATION_DTYPES
    if D is not None:
        wanted = (sizes.nheads,) if D.dim() == 1 else (sizes.nheads, sizes.headdim)
        checks.require_sizes(op, "D", D, "H, P"[: 3 * len(wanted) - 2], *wanted)
        arguments.require_tensor(op, "D", D, allowed, device)
    if z is not None:
        checks.require_sizes(op, "z", z, "T, H, P", *x.shape)
        arguments.require_tensor(op, "z", z, allowed, device)
        _refuse_same(op, out, "z", z)
    _refuse_same(op, out, "x", x)


def _refuse_same(op: str, out: torch.Tensor, name: str, read: torch.Tensor) -> None:
    """Raise UsageError where ``out`` starts where an input does; views elsewhere may be apart."""
    address = out.data_ptr()
    if address != 0 and address == read.data_ptr():
        problem = f"is {name}, which other programs of the launch still read"
        raise arguments.refusal(op, "out", problem, "Pass a tensor of its own.")
