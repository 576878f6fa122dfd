"""Aligned state indices: the cache blocks that hold each request's Mamba state.

A cache whose states end at block boundaries keeps a request's current state in the block of its
last token. All KV-cache groups are looked up in one launch, into a buffer that stays; the path
that takes a launch for each group remains for callers without that buffer.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from launchkit import launch, planned
from launchkit.kernels import arguments
from launchkit.kernels.overlap import refuse_overlaps
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.state_copy.layout import (
    BlockTables,
    block_tables,
    require_block_tables,
)
from launchkit.kernels.state_copy.protocols import MambaSpec

NULL_BLOCK = 0
"""The block that no request owns: what rows without a state point to."""

MODES = ("none", "all", "align")
"""How a cache keeps states: one a request, all at block boundaries, or the last at its block."""

_OP = "aligned_state_indices"
_BLOCK_ROWS = 32


@triton.jit
def first_state_column(seq_len, CACHE_BLOCK_SIZE: tl.constexpr):
    """Return the block table's column of the last of ``seq_len`` tokens; 0 without tokens."""
    return tl.maximum((seq_len - 1) // CACHE_BLOCK_SIZE, 0)


@triton.jit(
    # One variant whatever the batch: these are used once a row.
    do_not_specialize=[
        "block_table_stride_req",
        "seq_lens_stride",
        "num_requests",
        "idx_mapping_stride",
        "num_rows",
        "num_columns",
    ],
    do_not_specialize_on_alignment=["seq_lens_ptr", "idx_mapping_ptr"],
)
def get_aligned_state_indices_multi_group_kernel(
    block_table_ptrs_ptr,
    seq_lens_ptr,
    state_indices_ptr,
    block_table_stride_req: tl.int64,
    seq_lens_stride,
    state_indices_stride_0: tl.constexpr,
    state_indices_stride_1: tl.constexpr,
    state_indices_stride_2: tl.constexpr,
    num_requests,
    CACHE_BLOCK_SIZE: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    NUM_STATE_SLOTS: tl.constexpr,
    BLOCK_STATE_SLOTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    idx_mapping_ptr=None,
    idx_mapping_stride=0,
    num_rows=-1,
    num_columns=2147483647,
):
    """Write ``out[g, r, s] = table_g[row of r, first column + s]``; 0 where there is no state.

    Rows from ``num_requests`` up to ``num_rows`` (if that is more) are padding and get 0; none of
    their inputs is read. ``idx_mapping_ptr`` holds each row's place in the tables, by default r.
    """
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    groups = tl.arange(0, BLOCK_GROUPS)
    slots = tl.arange(0, BLOCK_STATE_SLOTS)
    live = rows < num_requests
    wide = rows.to(tl.int64)

    seq_lens = tl.load(seq_lens_ptr + wide * seq_lens_stride, mask=live, other=0)
    places = wide
    if idx_mapping_ptr is not None:
        mapped = tl.load(idx_mapping_ptr + wide * idx_mapping_stride, mask=live, other=-1)
        places = mapped.to(tl.int64)
    live = live & (seq_lens > 0) & (places >= 0)
    first = first_state_column(seq_lens, CACHE_BLOCK_SIZE)

    tables = tl.load(block_table_ptrs_ptr + groups, mask=groups < NUM_GROUPS, other=0)
    tables = tables.to(tl.pointer_type(tl.int32))[:, None, None]
    columns = first[None, :, None].to(tl.int64) + slots[None, None, :]
    known = (groups < NUM_GROUPS)[:, None, None] & (slots < NUM_STATE_SLOTS)[None, None, :]
    read = known & live[None, :, None] & (columns < num_columns)
    offsets = (places * block_table_stride_req)[None, :, None] + columns
    blocks = tl.load(tables + offsets, mask=read, other=0)

    out = state_indices_ptr + groups[:, None, None] * state_indices_stride_0
    out += wide[None, :, None] * state_indices_stride_1
    out += slots[None, None, :] * state_indices_stride_2
    written = rows < tl.maximum(num_requests, num_rows)
    tl.store(out, blocks, mask=known & written[None, :, None])


@triton.jit(
    do_not_specialize=["stride_req", "seq_lens_stride", "num_requests", "num_columns"],
    do_not_specialize_on_alignment=["block_table_ptr", "seq_lens_ptr"],
)
def get_aligned_state_indices_kernel(
    block_table_ptr,
    seq_lens_ptr,
    state_indices_ptr,
    stride_req: tl.int64,
    seq_lens_stride,
    num_requests,
    num_columns,
    CACHE_BLOCK_SIZE: tl.constexpr,
    NUM_STATE_SLOTS: tl.constexpr,
    BLOCK_STATE_SLOTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Do for one group, into (requests, slots), what the kernel of all groups does."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    slots = tl.arange(0, BLOCK_STATE_SLOTS)
    wide = rows.to(tl.int64)
    present = rows < num_requests
    seq_lens = tl.load(seq_lens_ptr + wide * seq_lens_stride, mask=present, other=0)
    first = first_state_column(seq_lens, CACHE_BLOCK_SIZE)
    columns = first[:, None].to(tl.int64) + slots[None, :]
    known = present[:, None] & (slots < NUM_STATE_SLOTS)[None, :]
    read = known & (seq_lens > 0)[:, None] & (columns < num_columns)
    blocks = tl.load(block_table_ptr + wide[:, None] * stride_req + columns, mask=read, other=0)
    tl.store(state_indices_ptr + wide[:, None] * NUM_STATE_SLOTS + slots[None, :], blocks, known)


class AlignedStateIndices:
    """The state blocks of a batch in all KV-cache groups: one launch into a buffer that stays.

    block_tables: one (rows, columns) int32 tensor for each group, all of one shape, device and
        row stride, columns dense. They are read where they are, at every call, and kept alive.
    block_size: tokens of a cache block, the same in all groups.
    num_state_slots: blocks to look up for each request, from that of its last token on: one, and
        one for each speculative token.
    max_num_reqs: most rows of a batch, by default the tables' rows.

    Raises UsageError for tables that do not fit together and for numbers below 1.
    """

    def __init__(
        self,
        block_tables: Sequence[torch.Tensor],
        block_size: int,
        num_state_slots: int = 1,
        max_num_reqs: int | None = None,
    ) -> None:
        self._tables = _alike(block_tables)
        rows, self._columns = self._tables.tables[0].shape
        self._block_size = _count("block_size", block_size)
        slots = _count("num_state_slots", num_state_slots)
        self._max_reqs = rows if max_num_reqs is None else _count("max_num_reqs", max_num_reqs)
        device = self._tables.pointers.device
        sizes = (len(self._tables.tables), self._max_reqs, slots)
        self._out = torch.full(sizes, NULL_BLOCK, dtype=torch.int32, device=device)
        self._views: dict[int, torch.Tensor] = {}

    @property
    def state_indices(self) -> torch.Tensor:
        """(groups, max_num_reqs, num_state_slots) int32: the buffer, at one address for good."""
        return self._out

    def compute_aligned_state_indices(
        self,
        seq_lens: torch.Tensor,
        num_reqs: int,
        idx_mapping: torch.Tensor | None = None,
        num_rows: int | None = None,
    ) -> torch.Tensor:
        """Return the state blocks of each request, (groups, rows, num_state_slots) int32.

        The result is a view of ``state_indices``, the same object for the same number of rows,
        and valid until the next call. Slot s of request r holds column
        ``(seq_lens[r] - 1) // block_size + s`` of its row in the group's table. A request of no
        tokens, one whose place is negative, and a column behind the table's last give the null
        block 0. Buffer rows behind the result are left as they were.

        seq_lens: (at least num_reqs,) int32 or int64, any stride: tokens of each request, those
            of this step included.
        num_reqs: how many requests there are.
        idx_mapping: (at least num_reqs,) int32 or int64, any stride: each request's row in the
            tables; by default request r's row is r. Entries behind ``num_reqs`` are not read.
        num_rows: rows to return, by default ``num_reqs``. Those behind ``num_reqs`` are padding,
            as of a CUDA graph for more requests, and hold the null block.

        Rows of ``idx_mapping`` beyond the tables are not checked, which would wait for the GPU.
        Raises UsageError for shapes, dtypes or devices that do not fit.
        """
        rows = num_reqs if num_rows is None else num_rows
        if rows or num_reqs:
            _look_up(
                self._tables.pointers, seq_lens, self._out, self._tables.stride_req, num_reqs,
                self._block_size, idx_mapping, rows, self._columns, self._tables.tables[0].shape[0],
            )  # fmt: skip
        view = self._views.get(rows)
        if view is None:
            arguments.require_count(_OP, "num_reqs", rows, 0, self._max_reqs)
            view = self._views[rows] = self._out[:, :rows]
        return view


@planned
def _look_up(
    pointers: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor,
    row_stride: int,
    num_reqs: int,
    block_size: int,
    idx_mapping: torch.Tensor | None,
    num_rows: int,
    num_columns: int,
    table_rows: int,
) -> None:
    """Check the arguments and launch: once per kind of call, since equal calls are replayed."""
    groups, max_rows, slots = out.shape
    arguments.require_count(_OP, "num_rows", num_rows, 0, max_rows)
    arguments.require_count(_OP, "num_reqs", num_reqs, 0, num_rows)
    _require_entries("seq_lens", seq_lens, num_reqs, out.device)
    if idx_mapping is not None:
        _require_entries("idx_mapping", idx_mapping, num_reqs, out.device)
    else:
        arguments.require_count(_OP, "num_reqs", num_reqs, 0, table_rows)
    refuse_overlaps(
        _OP, (("state_indices", out),), (("seq_lens", seq_lens), ("idx_mapping", idx_mapping))
    )
    require_launchable(_OP, out)
    with device_guard(out):
        launch(
            get_aligned_state_indices_multi_group_kernel,
            (-(-num_rows // _BLOCK_ROWS),),
            pointers,
            seq_lens,
            out,
            row_stride,
            seq_lens.stride(0),
            *out.stride(),
            num_reqs,
            CACHE_BLOCK_SIZE=block_size,
            NUM_GROUPS=groups,
            BLOCK_GROUPS=_power_of_two(groups),
            NUM_STATE_SLOTS=slots,
            BLOCK_STATE_SLOTS=_power_of_two(slots),
            BLOCK_ROWS=_BLOCK_ROWS,
            idx_mapping_ptr=idx_mapping,
            idx_mapping_stride=0 if idx_mapping is None else idx_mapping.stride(0),
            num_rows=num_rows,
            num_columns=num_columns,
            num_warps=1,
        )


def mamba_get_block_table_tensor(
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    kv_cache_spec: MambaSpec,
    mamba_cache_mode: str,
    precomputed: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return one group's state blocks: a new tensor and a launch, where they must be looked up.

    block_table: (at least n, columns) int32, columns dense: each request's blocks.
    seq_lens: (n,) int32 or int64, any stride.
    mamba_cache_mode: with "none" and "all" the table itself is the result; with "align", (n, 1 +
        speculative blocks) int32 as from ``AlignedStateIndices``, for one group.
    precomputed: that group's rows of ``AlignedStateIndices``: returned, if given, in mode "align".

    Raises UsageError for another mode, and shapes, dtypes or devices that do not fit.
    """
    if mamba_cache_mode not in MODES:
        advice = f"Pass one of {', '.join(MODES)}."
        raise arguments.refusal(_OP, "mamba_cache_mode", f"is {mamba_cache_mode!r}", advice)
    if mamba_cache_mode != "align":
        return block_table
    if precomputed is not None:
        return precomputed
    require_block_tables((block_table,), _OP, "block_table")
    requests = arguments.sizes_of(_OP, "seq_lens", seq_lens)[:1].numel()
    _require_entries("seq_lens", seq_lens, requests, block_table.device)
    arguments.require_count(_OP, "seq_lens", requests, 0, block_table.shape[0])
    slots = _count("1 + num_speculative_blocks", 1 + kv_cache_spec.num_speculative_blocks)
    out = torch.empty((requests, slots), dtype=torch.int32, device=block_table.device)
    require_launchable(_OP, out)
    if requests:
        with device_guard(out):
            launch(
                get_aligned_state_indices_kernel,
                (-(-requests // _BLOCK_ROWS),),
                block_table,
                seq_lens,
                out,
                block_table.stride(0),
                seq_lens.stride(0),
                requests,
                block_table.shape[1],
                CACHE_BLOCK_SIZE=_count("block_size", kv_cache_spec.block_size),
                NUM_STATE_SLOTS=slots,
                BLOCK_STATE_SLOTS=_power_of_two(slots),
                BLOCK_ROWS=_BLOCK_ROWS,
                num_warps=1,
            )
    return out


def _alike(tables: Sequence[torch.Tensor]) -> BlockTables:
    """Return the description of tables; raise UsageError unless all are of one shape and pitch."""
    described = block_tables(tables, _OP, "block_tables")
    for index, table in enumerate(described.tables):
        if table.shape != described.tables[0].shape:
            wanted = f"{tuple(described.tables[0].shape)} as the first"
            raise arguments.wrong_shape(_OP, f"block_tables[{index}]", table, wanted)
    return described


def _require_entries(argument: str, tensor: object, count: int, device: torch.device) -> None:
    """Raise UsageError unless ``tensor`` is one-dimensional, of ``count`` integers or more."""
    shape = arguments.sizes_of(_OP, argument, tensor)
    if len(shape) != 1 or shape[0] < count:
        raise arguments.wrong_shape(_OP, argument, tensor, f"({count} or more,)")
    arguments.require_tensor(_OP, argument, tensor, arguments.INDEX_DTYPES, device)


def _count(argument: str, value: int) -> int:
    return arguments.require_count(_OP, argument, value, 1)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
