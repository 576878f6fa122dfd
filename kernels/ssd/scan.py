"""The Mamba2 scan of a varlen prefill batch: five kernels behind one checked call.

The chunked algorithm is that of "Transformers are SSMs" (Dao and Gu, 2024), section 6, with
every chunk holding tokens of one sequence only.
"""

from __future__ import annotations

import math

import torch

from launchkit import planned
from launchkit.kernels import arguments
from launchkit.kernels.overlap import refuse_overlaps
from launchkit.kernels.placement import device_guard, require_launchable, require_products
from launchkit.kernels.ssd import checks, state_arguments
from launchkit.kernels.ssd.bmm import launch_bmm_chunk
from launchkit.kernels.ssd.chunk_cumsum import launch_chunk_cumsum
from launchkit.kernels.ssd.chunk_scan import launch_chunk_scan
from launchkit.kernels.ssd.chunk_state import launch_chunk_state
from launchkit.kernels.ssd.indexed_passing import launch_indexed_passing
from launchkit.kernels.ssd.initial_cache import (
    CachedStarts,
    check_starts,
    gather_starts,
    read_in_place,
)
from launchkit.kernels.ssd.scan_arguments import (
    check_endings,
    check_metadata,
    check_optional,
    check_states,
    check_tokens,
)
from launchkit.kernels.ssd.state_passing import launch_state_passing

_OP = "mamba_chunk_scan_combined_varlen"


@planned
def mamba_chunk_scan_combined_varlen(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    cu_seqlens: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    seq_idx: torch.Tensor,
    out: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_intermediate_states: bool = False,
    state_dtype: torch.dtype | None = None,
    final_states_out: torch.Tensor | None = None,
    final_state_indices: torch.Tensor | None = None,
    initial_state_cache: torch.Tensor | None = None,
    initial_state_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Run the Mamba2 scan over packed sequences of different lengths; write ``out`` in place.

    Per sequence and head, with h its initial state or zeros, for each token t:
    ``d = clamp(softplus(dt[t] + dt_bias)); h = exp(d * A) * h + d * x[t] (outer) B[t]`` and
    ``out[t] = (h . C[t] + D * x[t]) * silu(z[t])``, without what is not given. Forward only. All
    tensors are on one device. h is carried in fp32 between chunks; products on tensor cores take
    their inputs in the dtype of x or C, fp32 ones in TF32 where the GPU has it.

    T tokens of S sequences, one after another; H heads of P channels; head h uses group
    h // (H / G) of the G groups; N state channels. ``launchkit.kernels.ssd.metadata`` builds
    the four metadata tensors.

    x: (T, H, P), fp32, fp16 or bf16, any strides, as dt, B, C, z, D and out.
    dt: (T, H), fp32, fp16 or bf16. Not below 0 without softplus.
    A: (H,), not above 0, fp32 in models; fp16 or bf16 as well. A state cannot grow: where it
        would, what is computed is not the recurrence.
    B, C: (T, G, N).
    chunk_size: tokens a chunk holds at most; a power of two up to 1024, and no less than what
        the metadata was built with (longer chunks than this are cut short, unseen).
    cu_seqlens: (S+1,) int32, where each sequence starts. Only its length is used.
    cu_chunk_seqlens: (nchunks+1,) int32, where each chunk starts.
    last_chunk_indices: (S,) int32, each sequence's last chunk. An empty sequence repeats the
        value of the one before, or holds -1.
    seq_idx: (nchunks,) int32, each chunk's sequence.
    out: (T, H, P), any strides; only its T*H*P elements are written. It may be a view beside
        inputs in one buffer, but share no memory with them: programs of the launch still read it.
    D: (H,) or (H, P), the skip connection.
    z: (T, H, P), the gate.
    dt_bias: (H,).
    initial_states: (S, H, P, N), fp32, fp16 or bf16.
    dt_softplus, dt_limit: what is done to dt + dt_bias: softplus or nothing, then the clamp.
    return_intermediate_states: return the state after every chunk.
    state_dtype: dtype of returned states and of those that chunks hand on, by default C's.
    final_states_out: (slots, H, P, N), fp32, fp16 or bf16, P and N dense: row
        ``final_state_indices[s]`` receives sequence s's final state, rounded once from fp32.
    final_state_indices: (S,) int32 or int64. A negative slot is skipped. Of two sequences with
        the same slot either may win.
    initial_state_cache: (slots, H, P, N), fp32, fp16 or bf16, each slot dense: sequence s starts
        in row ``initial_state_indices[s]`` as it is before the call. It may be
        ``final_states_out``, with the same slots, shared or crossed ones. Instead of
        ``initial_states``, with the same bits as ``gather_initial_states`` and those.
    initial_state_indices: (S,) int32 or int64, any stride. A negative slot stands for zeros.
    has_initial_state: (S,) bool, any stride: False where a sequence starts from zeros; its slot
        is not read. By default all True.

    Initial states in a cache are copied first, in a launch of their own, unless S is 1, the final
    state is written to a cache, and ``state_dtype`` is the initial cache's dtype: then the launch
    that passes states on reads the slot itself.

    Values of metadata and indices are not checked, which would wait for the GPU. A NaN in a
    token's x or dt may reach all tokens of its chunk (0 times NaN in a product), and no others
    before it.

    Returns (nchunks, H, P, N) with ``return_intermediate_states``; None with
    ``final_states_out``; else the final states (S, H, P, N) in ``state_dtype``.
    Raises UsageError for shapes, dtypes or devices that do not fit, for intermediate states
    together with ``final_states_out``, for one final argument without the other, for initial
    states beside a cache of them or a cache without indices, for an ``out`` or a final cache that
    shares memory with an input (but for the initial cache) or whose elements share memory, and for
    bf16 in Triton's interpreter, which multiplies its bits.
    """
    return_intermediate_states = check_endings(_OP, final_states_out, return_intermediate_states)
    chunk_size = checks.require_chunk_size(_OP, chunk_size)
    for name, tensor in (("dt", dt), ("B", B)):  # None there would mean an op without them
        arguments.sizes_of(_OP, name, tensor)
    sizes = check_tokens(_OP, x, dt, B, C, out)
    _, nheads, headdim, _, dstate = sizes
    device = x.device
    nchunks, num_seqs = check_metadata(
        _OP, cu_seqlens, cu_chunk_seqlens, last_chunk_indices, seq_idx, device
    )
    check_optional(_OP, sizes, x, D, z, out)
    A = checks.dense_vector(_OP, "A", A, device, nheads)
    if dt_bias is not None:
        dt_bias = checks.dense_vector(_OP, "dt_bias", dt_bias, device, nheads)
    dt_softplus = arguments.flag(_OP, "dt_softplus", dt_softplus)
    dt_limit = checks.limits_of(_OP, dt_limit, dt_softplus)
    state_sizes = (num_seqs, nheads, headdim * dstate, device)
    initial, init_strides = state_arguments.check_initial(_OP, initial_states, *state_sizes)
    final_strides = state_arguments.check_final(
        _OP, final_states_out, final_state_indices, *state_sizes
    )
    check_states(_OP, initial_states, final_states_out, headdim, dstate)
    starts = check_starts(
        _OP, initial_states, initial_state_cache, initial_state_indices, has_initial_state,
        num_seqs, (nheads, headdim, dstate), device,
    )  # fmt: skip
    read = (
        ("x", x), ("dt", dt), ("A", A), ("B", B), ("C", C), ("D", D), ("z", z),
        ("dt_bias", dt_bias), ("initial_states", initial),
        ("final_state_indices", final_state_indices),
        ("initial_state_indices", initial_state_indices), ("has_initial_state", has_initial_state),
    )  # fmt: skip
    written = (("final_states_out", final_states_out), ("out", out))
    refuse_overlaps(_OP, written, read)
    refuse_overlaps(_OP, written[1:], (("initial_state_cache", initial_state_cache),))
    state_dtype = state_dtype or C.dtype
    if state_dtype not in arguments.STATE_DTYPES:
        raise arguments.wrong_dtype(_OP, "state_dtype", state_dtype, arguments.STATE_DTYPES)
    require_launchable(_OP, x)
    require_products(_OP, x, B, C)

    with device_guard(x):
        passed, final = _launch(
            x, dt, A, B, C, chunk_size, cu_chunk_seqlens, last_chunk_indices, seq_idx, out,
            D, z, dt_bias, dt_softplus, dt_limit, initial, init_strides, starts,
            final_states_out, final_strides, final_state_indices,
            not return_intermediate_states, state_dtype, (nchunks, num_seqs, *sizes),
        )  # fmt: skip
    if return_intermediate_states:
        return passed
    return final if final_states_out is None else None


def _launch(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    seq_idx: torch.Tensor,
    out: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
    dt_bias: torch.Tensor | None,
    dt_softplus: bool,
    dt_limit: tuple[float, float],
    initial: torch.Tensor | None,
    init_strides: state_arguments.Strides,
    starts: CachedStarts | None,
    final: torch.Tensor | None,
    final_strides: state_arguments.Strides,
    final_state_indices: torch.Tensor | None,
    wants_final: bool,
    state_dtype: torch.dtype,
    sizes: tuple[int, ...],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Launch the kernels on what was checked; return the states after every chunk, and final.

    One long row of code on purpose: every helper between here and a launch is paid per layer.
    """
    nchunks, num_seqs, _, nheads, headdim, ngroups, dstate = sizes
    fp32, empty, device, dim = torch.float32, torch.empty, x.device, headdim * dstate
    passed = empty((nchunks, nheads, headdim, dstate), dtype=state_dtype, device=device)
    if final is None and wants_final:
        final = empty((num_seqs, nheads, headdim, dstate), dtype=state_dtype, device=device)
        final_strides = (nheads * dim, dim, 1)
    if nheads == 0 or headdim == 0:
        return passed, final
    in_place = read_in_place(starts, final, final_strides, final_state_indices, state_dtype)
    if starts is not None and in_place is None:
        initial, init_strides = gather_starts(starts, num_seqs)
    per_token = (nheads, nchunks, chunk_size)
    dA_cumsum = empty(per_token, dtype=fp32, device=device)
    states = empty((nchunks, nheads, headdim, dstate), dtype=fp32, device=device)
    if nchunks > 0:
        dt_out = empty(per_token, dtype=fp32, device=device)
        launch_chunk_cumsum(
            dt, A, dt_bias, dt_softplus, dt_limit, chunk_size, cu_chunk_seqlens, dA_cumsum, dt_out
        )
        launch_chunk_state(x, B, dt_out, dA_cumsum, cu_chunk_seqlens, states)
    if in_place is not None and final is not None and final_state_indices is not None:
        launch_indexed_passing(
            states, dA_cumsum, last_chunk_indices, passed, *in_place,
            final, final_strides, final_state_indices,
        )  # fmt: skip
    elif num_seqs > 0:
        launch_state_passing(
            states, (nheads * dim, dim, 1), dA_cumsum, last_chunk_indices, passed,
            initial, init_strides, final, final_strides, final_state_indices,
        )  # fmt: skip
    if nchunks > 0:
        CB = empty((nchunks, ngroups, chunk_size, chunk_size), dtype=fp32, device=device)
        launch_bmm_chunk(C, B, chunk_size, cu_chunk_seqlens, CB)
        launch_chunk_scan(
            CB, x, dt_out, dA_cumsum, C, passed, cu_chunk_seqlens, seq_idx, out, D, z, initial,
            states_are_entering=in_place is not None,
        )  # fmt: skip
    return passed, final
