"""What ``launchkit bench layer`` compares: a short continuation of one prompt, as calls.

One request of some thousand computed tokens gets 32 more: every layer starts in the state of one
cache block and ends in it. A step does this in all layers, behind the lookup of the blocks and the
copy of states into a block that the request enters, and before the copy of states at a block's end
that was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from launchkit.benchmarks.baseline.scan import scan_before
from launchkit.benchmarks.baseline.stored_states import (
    final_state_writeback_separate,
    gather_separate,
)
from launchkit.benchmarks.indices import group_by_triton
from launchkit.benchmarks.mamba.cases import MambaCase, ScanInputs, build
from launchkit.benchmarks.mamba.steps import Part
from launchkit.benchmarks.pinned_configs import ScanKernels
from launchkit.kernels.mamba_layer import MambaLayer, MambaStep
from launchkit.kernels.state_copy.align import (
    precopy_mamba_align_fused_kernel,
    preprocess_mamba_align_fused_kernel,
)
from launchkit.kernels.state_copy.layout import StateTensor, block_tables, state_table
from launchkit.kernels.state_copy.postprocess import postprocess_mamba_fused_kernel
from launchkit.kernels.state_copy.shapes import copy_options, copy_shape
from launchkit.kernels.state_indices import AlignedStateIndices

TOKENS, GROUPS, BLOCKS, BLOCK_SIZE, COLUMNS = 32, 4, 4, 528, 16
VARIANTS = ("baseline", "copied", "launchkit")
"""Triton's launches, and initial states and final ones by torch; launchkit's, with initial states
gathered in one launch; launchkit's, with initial states read from the cache."""

_CONV_WIDTH = 3
_FROM, _TO = 8, 9
_ADVANCED = (
    "idx_mapping", "new_state_idx", "computed", "query_start_loc", "accepted", "new_src_col",
    "src_off",
)  # fmt: skip
_ENDED = ("snapshot", "accepted_at_end", "state_idx", "ended")
_BEFORE_END, _ACCEPTED = 1, 2
"""How the step ends: its state holds one token less than a block, and two tokens are accepted, so
that one moves it to the block's end."""


@dataclass(frozen=True)
class Continuation:
    """The tensors of one request in all layers of a model. Layer l belongs to group l % GROUPS."""

    inputs: ScanInputs
    caches: list[torch.Tensor]
    """By layer, (BLOCKS, H, P, N)."""
    has_initial: torch.Tensor
    tables: list[torch.Tensor]
    """By group, (1, COLUMNS) int32: the request's blocks."""
    seq_lens: torch.Tensor
    counts: dict[str, torch.Tensor]
    """(1,) or (2,) int32 each: what the copies are decided by."""
    states: Any
    """All state tensors, as the copy kernels read them."""

    def by_name(self, *names: str) -> Any:
        """Return what the copies are decided by, in this order."""
        return tuple(self.counts[name] for name in names)


def make_continuation(model: str, device: str) -> Continuation:
    """Return one request's tensors: it has filled block column 8, and now enters column 9."""
    case = MambaCase(model, sequences=1, tokens=TOKENS, initial_states=False)
    inputs, shape = build(case, device), case.shape
    sizes = (BLOCKS, shape.nheads, shape.headdim, shape.dstate)
    width = shape.nheads * shape.headdim + 2 * shape.ngroups * shape.dstate

    def ints(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    caches = [
        torch.zeros(sizes, dtype=inputs.state_dtype, device=device) for _ in range(shape.layers)
    ]
    conv = [
        torch.zeros((BLOCKS, _CONV_WIDTH, width), dtype=torch.bfloat16, device=device)
        for _ in caches
    ]
    tensors = [
        StateTensor(tensor, is_conv, layer % GROUPS)
        for layer, pair in enumerate(zip(conv, caches, strict=True))
        for tensor, is_conv in zip(pair, (True, False), strict=True)
    ]
    computed = _TO * BLOCK_SIZE
    columns = [1] * (_FROM + 1) + [2] * (COLUMNS - _TO)
    return Continuation(
        inputs=inputs,
        caches=caches,
        has_initial=torch.ones(1, dtype=torch.bool, device=device),
        tables=[ints(*columns)[None] for _ in range(GROUPS)],
        seq_lens=ints(computed + TOKENS),
        counts={
            "idx_mapping": ints(0), "state_idx": ints(_TO), "src_col": ints(_FROM),
            "src_off": ints(0), "computed": ints(computed), "query_start_loc": ints(0, TOKENS),
            "accepted": ints(1), "new_state_idx": ints(_FROM), "new_src_col": ints(_FROM),
            "ended": ints(_TO * BLOCK_SIZE - _BEFORE_END + _ACCEPTED - 1),
            "accepted_at_end": ints(_ACCEPTED), "snapshot": ints(0),
        },
        states=state_table(tensors),
    )  # fmt: skip


def parts(model: str, device: str, by_triton: ScanKernels) -> list[Part]:
    """Return what is timed: a layer in each variant, and a step in the first and the last."""
    request = make_continuation(model, device)
    layers: dict[str, Any] = {
        "baseline": _Baseline(request, by_triton),
        "copied": _Launchkit(request, in_place=False),
        "launchkit": _Launchkit(request, in_place=True),
    }
    slot = request.tables[0][:, _TO]
    calls = [Part(name, "layer", _layer(layers[name], slot)) for name in VARIANTS]
    return [*calls, *(Part(name, "step", layers[name].step) for name in ("baseline", "launchkit"))]


def _layer(variant: Any, slot: torch.Tensor) -> Callable[[], Any]:
    return lambda: variant.layer(0, slot)


class _Baseline:
    """As engines do it: a launch through ``kernel[grid]`` each, states moved with torch."""

    def __init__(self, request: Continuation, kernels: ScanKernels) -> None:
        self._request, self._kernels = request, kernels
        self._copied = request.caches[0][:1].clone()
        self._tables = block_tables(request.tables)

    def layer(self, layer: int, slot: torch.Tensor) -> None:
        r, i, m = self._request, self._request.inputs, self._request.inputs.metadata
        cache = r.caches[layer]
        if cache.is_cuda:
            initial = gather_separate(cache, slot, r.has_initial)
        else:
            # torch really copies CPU tensors, which is no cost of a launch: one element a row,
            # and of a slot that is known, since no kernel has looked it up.
            cache, initial, slot = cache[:, :1, :1, :1], self._copied, r.tables[0][:, _TO]
            gather_separate(cache, slot, r.has_initial)
        states: Any = scan_before(
            self._kernels, i.x, i.dt, i.A, i.B, i.C, i.chunk_size, m.cu_seqlens,
            m.cu_chunk_seqlens, m.last_chunk_indices, m.seq_idx, i.out, D=i.D, dt_bias=i.dt_bias,
            initial_states=initial, dt_softplus=True, return_intermediate_states=True,
            state_dtype=i.state_dtype,
        )  # fmt: skip
        if not cache.is_cuda:
            states = states[:, :1, :1, :1]
        final_state_writeback_separate(states, m.last_chunk_indices, cache, slot)

    def step(self) -> None:
        r = self._request
        found = [group_by_triton(table, r.seq_lens, BLOCK_SIZE) for table in r.tables]
        self._copy()
        for layer in range(len(r.caches)):
            self.layer(layer, found[layer % GROUPS][:, 0])
        self._end()

    def _copy(self) -> None:
        r = self._request
        shape = copy_shape(r.states.largest_bytes)
        preprocess: Any = preprocess_mamba_align_fused_kernel
        precopy: Any = precopy_mamba_align_fused_kernel
        preprocess[(1,)](
            *r.by_name(*_ADVANCED), 1, BLOCK_SIZE=128, MAMBA_BLOCK_SIZE=BLOCK_SIZE,
        )  # fmt: skip
        precopy[(shape.tiles * len(r.states), 1)](
            *r.by_name("state_idx", "src_col", "src_off"), *r.states.with_tables(self._tables),
            r.counts["idx_mapping"], 1, **self._options(),
        )  # fmt: skip

    def _end(self) -> None:
        r = self._request
        shape = copy_shape(r.states.largest_bytes)
        postprocess: Any = postprocess_mamba_fused_kernel
        snapshot, accepted, running, ended = r.by_name(*_ENDED)
        snapshot.copy_(accepted)
        postprocess[(shape.tiles * len(r.states), 1)](
            snapshot, running, None, ended, None, *r.states.with_tables(self._tables), accepted,
            r.counts["idx_mapping"], 1, block_size=BLOCK_SIZE, PRECOMPUTED_NEW_COMPUTED=True,
            **self._options(),
        )  # fmt: skip

    def _options(self) -> dict[str, Any]:
        return {
            "CONV_STATE_DIM_FIRST": False,
            "HAS_IDX_MAPPING": True,
            "BLOCK_TABLE_BY_SLOT": True,
            **copy_options(copy_shape(self._request.states.largest_bytes)),
        }


class _Launchkit:
    """``launchkit.kernels.mamba_layer``: initial states in their cache, or copied out of it."""

    def __init__(self, request: Continuation, in_place: bool) -> None:
        self._request, self._in_place = request, in_place
        self._layers: Sequence[MambaLayer] = [MambaLayer(n) for n in range(len(request.caches))]
        self._step = MambaStep()
        self._tables = block_tables(request.tables)
        self._indices = AlignedStateIndices(request.tables, BLOCK_SIZE)
        columns = request.by_name("state_idx", "src_col", "src_off")
        places = (request.states, 1, request.counts["idx_mapping"])
        self._advance: Any = (*request.by_name(*_ADVANCED), 1, BLOCK_SIZE)
        self._move: Any = (*columns, self._tables, *places)
        snapshot, accepted, running, ended = request.by_name(*_ENDED)
        states, count, mapping = places
        self._end: Any = (
            snapshot, running, None, ended, None, self._tables, states, accepted, count,
            BLOCK_SIZE, mapping,
        )  # fmt: skip

    def layer(self, layer: int, slot: torch.Tensor) -> None:
        r, i, m = self._request, self._request.inputs, self._request.inputs.metadata
        ops, cache = self._layers[layer], r.caches[layer]
        start: dict[str, Any] = {
            "initial_state_cache": cache,
            "initial_state_indices": slot,
            "has_initial_state": r.has_initial,
        }
        if not self._in_place:
            start = {"initial_states": ops.gather_initial_states(cache, slot, r.has_initial)}
        ops.ssd_scan(
            i.x, i.dt, i.A, i.B, i.C, i.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
            m.last_chunk_indices, m.seq_idx, i.out, D=i.D, dt_bias=i.dt_bias, dt_softplus=True,
            state_dtype=i.state_dtype, final_states_out=cache, final_state_indices=slot, **start,
        )  # fmt: skip

    def step(self) -> None:
        r, step = self._request, self._step
        found = step.state_indices(self._indices, r.seq_lens, 1)
        step.preprocess_align(*self._advance)
        step.precopy_align(*self._move)
        slots = [found[group, :, 0] for group in range(GROUPS)]
        for layer in range(len(r.caches)):
            self.layer(layer, slots[layer % GROUPS])
        r.counts["snapshot"].copy_(r.counts["accepted_at_end"])
        step.postprocess_align(*self._end)
