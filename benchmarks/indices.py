"""``launchkit bench indices``: looking up the state blocks of all KV-cache groups, by launch path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from launchkit.benchmarks import machine
from launchkit.benchmarks.gpu_time import add_gpu_times
from launchkit.benchmarks.mode import drain_for, measuring, refuse_launch_hooks
from launchkit.benchmarks.timing import TimedRow, repeated, time_rows
from launchkit.errors import UsageError
from launchkit.kernels.state_indices import (
    AlignedStateIndices,
    get_aligned_state_indices_kernel,
    get_aligned_state_indices_multi_group_kernel,
    mamba_get_block_table_tensor,
)

REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Requests of a measured batch, a token each."""

GROUPS, BLOCK_SIZE, COLUMNS, MAX_REQUESTS = 4, 32, 1024, 256

VARIANTS = ("groups_triton", "groups", "one_triton", "launchkit")
"""A new tensor and a launch for each group, as engines do it: ``kernel[grid]``; the same through
launchkit; one launch for all groups: ``kernel[grid]``; the same as ``AlignedStateIndices`` does."""

_CALLS = 50


@dataclass(frozen=True)
class _Spec:
    block_size: int = BLOCK_SIZE
    num_speculative_blocks: int = 0


def measure(
    requests: Sequence[int],
    rounds: int,
    advance: Callable[[], None] = lambda: None,
    finished: Callable[[dict[str, Any]], None] = lambda _document: None,
) -> dict[str, Any]:
    """Measure batches of these sizes and return the result as JSON values.

    Runs on the current CUDA device; without one, on the host-only driver, where figures hold
    everything but the CUDA driver's own cost and there are no GPU times. The variants of a batch
    take turns.

    Args:
        requests: of each batch, from 1 to ``MAX_REQUESTS``.
        rounds: how often each variant is timed, at least 2.
        advance: called after each batch.
        finished: called after each batch with the result so far, whose ``complete`` is false.

    Raises:
        UsageError: fewer than 2 rounds, no batch or one of another size, or a launch hook of
            another tool is installed.
    """
    if rounds < 2:
        raise UsageError(f"rounds must be at least 2, not {rounds}. Give more.", rounds=rounds)
    wrong = [count for count in requests if not 1 <= count <= MAX_REQUESTS]
    if wrong or not requests:
        found = f"{wrong[0]} requests" if wrong else "no requests"
        raise UsageError(f"a batch cannot have {found}. Give from 1 to {MAX_REQUESTS}.")
    refuse_launch_hooks()
    with measuring() as cuda:
        document = _empty_document(cuda, rounds)
        tables = _tables("cuda" if cuda else "cpu")
        for count in requests:
            rows = _measured(tables, count, rounds, cuda)
            document["rows"].extend(rows)
            document["ratios"].extend(_ratios(rows))
            finished(document)
            advance()
    return {**document, "complete": True}


def _empty_document(cuda: bool, rounds: int) -> dict[str, Any]:
    return {
        **machine.measured_on(cuda),
        "method": {
            "rounds": rounds,
            "calls_per_round": _CALLS,
            "statistic": "median",
            "groups": GROUPS,
            "block_size": BLOCK_SIZE,
            "columns": COLUMNS,
        },
        "complete": False,
        "rows": [],
        "ratios": [],
    }


def _tables(device: str) -> list[torch.Tensor]:
    sizes = (MAX_REQUESTS, COLUMNS)
    rng = torch.Generator(device).manual_seed(0)
    return [
        torch.randint(1, 2**20, sizes, dtype=torch.int32, device=device, generator=rng)
        for _ in range(GROUPS)
    ]


def calls(tables: Sequence[torch.Tensor], requests: int) -> dict[str, Callable[[], Any]]:
    """Return a batch's lookup by variant; each returns what it found, by group."""
    device = tables[0].device
    rng = torch.Generator(device).manual_seed(requests)
    most = BLOCK_SIZE * COLUMNS + 1
    seq_lens = torch.randint(1, most, (MAX_REQUESTS,), device=device, generator=rng).int()
    context = AlignedStateIndices(tables, BLOCK_SIZE)
    own, lengths = [table[:requests] for table in tables], seq_lens[:requests]
    spec = _Spec()
    return {
        "groups_triton": lambda: [group_by_triton(table, lengths) for table in own],
        "groups": lambda: [
            mamba_get_block_table_tensor(table, lengths, spec, "align") for table in own
        ],
        "one_triton": _one_by_triton(tables, seq_lens, requests),
        "launchkit": lambda: context.compute_aligned_state_indices(seq_lens, requests),
    }


def group_by_triton(
    table: torch.Tensor, seq_lens: torch.Tensor, block_size: int = BLOCK_SIZE
) -> torch.Tensor:
    """Return one group's blocks, (requests, 1), as ``mamba_get_block_table_tensor`` does.

    The launch is Triton's, as an engine makes it.
    """
    requests, columns = table.shape
    out = torch.empty((requests, 1), dtype=torch.int32, device=table.device)
    get_aligned_state_indices_kernel[(-(-requests // 32),)](
        table, seq_lens, out, table.stride(0), seq_lens.stride(0), requests, columns,
        CACHE_BLOCK_SIZE=block_size, NUM_STATE_SLOTS=1, BLOCK_STATE_SLOTS=1, BLOCK_ROWS=32,
        num_warps=1,
    )  # fmt: skip
    return out


def _one_by_triton(
    tables: Sequence[torch.Tensor], seq_lens: torch.Tensor, requests: int
) -> Callable[[], torch.Tensor]:
    addresses = [table.data_ptr() for table in tables]
    pointers = torch.tensor(addresses, dtype=torch.int64, device=seq_lens.device)
    sizes = (GROUPS, MAX_REQUESTS, 1)
    out = torch.zeros(sizes, dtype=torch.int32, device=seq_lens.device)

    def call() -> torch.Tensor:
        get_aligned_state_indices_multi_group_kernel[(-(-requests // 32),)](
            pointers, seq_lens, out, tables[0].stride(0), seq_lens.stride(0), *out.stride(),
            requests, CACHE_BLOCK_SIZE=BLOCK_SIZE, NUM_GROUPS=GROUPS, BLOCK_GROUPS=GROUPS,
            NUM_STATE_SLOTS=1, BLOCK_STATE_SLOTS=1, BLOCK_ROWS=32, num_rows=requests,
            num_columns=COLUMNS, num_warps=1,
        )  # fmt: skip
        return out[:, :requests]

    return call


def _measured(
    tables: Sequence[torch.Tensor], requests: int, rounds: int, cuda: bool
) -> list[dict[str, Any]]:
    found = calls(tables, requests)
    timed = [
        TimedRow({"requests": requests, "variant": name}, repeated(found[name]))
        for name in VARIANTS
    ]
    time_rows(timed, rounds, _CALLS, drain_for(cuda))
    rows = [row.summary() for row in timed]
    if cuda:
        add_gpu_times(rows, [found[name] for name in VARIANTS], rounds)
    for row in rows:
        row["launches"] = GROUPS if row["variant"].startswith("groups") else 1
    return rows


def _ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return launchkit ÷ each other variant of one batch, of host and, if there, GPU times."""
    by_variant = {row["variant"]: row for row in rows}
    ours = by_variant["launchkit"]
    times = [("host", "median_us"), ("gpu", "gpu_median_us")]
    return [
        {
            "requests": ours["requests"],
            "time": time,
            "of": "launchkit",
            "over": over,
            "ratio": round(ours[field] / by_variant[over][field], 4),
        }
        for time, field in times
        if field in ours
        for over in VARIANTS[:-1]
    ]
