"""Checks of what chunk scan is given when it is called alone. Raise UsageError, look at no value."""

from __future__ import annotations

import torch

from launchkit.kernels import arguments
from launchkit.kernels.ssd import checks
from launchkit.kernels.ssd.scan_arguments import ScanSizes


def check_tokens(
    op: str, x: torch.Tensor, C: torch.Tensor, out: torch.Tensor, cu_chunk_seqlens: torch.Tensor
) -> tuple[int, ScanSizes]:
    """Check what has a row for each token; return nchunks and the sizes."""
    checks.require_sizes(op, "x", x, "T, H, P", None, None, None)
    ntokens, nheads, headdim = x.shape
    checks.require_sizes(op, "C", C, "T, G, N", ntokens, None, None)
    _, ngroups, dstate = C.shape
    checks.require_groups(op, "C", nheads, ngroups)
    checks.require_heads(op, "x", nheads)
    checks.require_sizes(op, "out", out, "T, H, P", *x.shape)
    for name, tensor in (("x", x), ("C", C), ("out", out)):
        arguments.require_tensor(op, name, tensor, checks.ACTIVATION_DTYPES, x.device)
    if 0 in out.stride() and any(
        size > 1 and stride == 0 for size, stride in zip(out.shape, out.stride(), strict=True)
    ):
        problem = f"has strides {out.stride()}, so elements of it share memory"
        raise arguments.refusal(op, "out", problem, "Pass a tensor that is not expanded.")
    nchunks = checks.count_chunks(op, cu_chunk_seqlens, x.device)
    return nchunks, ScanSizes(ntokens, nheads, headdim, ngroups, dstate)


def check_chunks(
    op: str,
    nchunks: int,
    sizes: ScanSizes,
    CB: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    states: torch.Tensor,
    seq_idx: torch.Tensor,
    device: torch.device,
) -> None:
    """Check what has a row for each chunk."""
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


def check_initial(
    op: str, initial_states: torch.Tensor | None, sizes: ScanSizes, device: torch.device
) -> None:
    """Check the states that sequences start in, of any strides."""
    if initial_states is not None:
        wanted = (None, sizes.nheads, sizes.headdim, sizes.dstate)
        checks.require_sizes(op, "initial_states", initial_states, "S, H, P, N", *wanted)
        arguments.require_tensor(
            op, "initial_states", initial_states, arguments.STATE_DTYPES, device
        )
