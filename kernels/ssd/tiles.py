"""Configs of the kernels that multiply tiles, and which of them Triton compiles wrongly where.

The wrong ones are dropped for the live GPU while pruning, never at import: one process may
launch on different GPUs. What pruning drops is not taken from a store either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import triton

from launchkit.kernels.placement import live_arch

TileChoice = tuple[tuple[int, int, int], int, int]
"""(BLOCK_M, BLOCK_N, BLOCK_K), num_warps, num_stages. M, N: the tile written; K: summed over."""

_WARPS_PER_GROUP = 4
_ROWS_PER_GROUP = 64


def tile_configs(choices: Iterable[TileChoice]) -> list[triton.Config]:
    """Return the config of each choice, in order."""
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages
        )
        for (m, n, k), warps, stages in choices
    ]


def keeps_operand_in_flight(config: triton.Config) -> bool:
    """Whether a config makes Triton pipeline Hopper's wgmma over a loop.

    That instruction may still read a left operand from registers while the next iteration
    computes a new one into them: rows of NaN, Inf or plain wrong values. It is used by whole
    warp groups on tiles of 64 rows; without them, or in one stage, each iteration waits.
    """
    whole_groups = config.num_warps % _WARPS_PER_GROUP == 0
    whole_rows = config.kwargs["BLOCK_M"] % _ROWS_PER_GROUP == 0
    return bool(whole_groups and whole_rows and config.num_stages > 1)


def drop_miscompiled(
    configs: Sequence[triton.Config], named_args: Mapping[str, Any], **_: Any
) -> list[triton.Config]:
    """Return the configs that are right on the live GPU where registers hold a left operand.

    An ``early_config_prune`` of ``triton.autotune``, for kernels that compute the left operand
    of a product in a loop. Only compute capability 9.0 is affected.
    """
    if live_arch() != 90:
        return list(configs)
    return [config for config in configs if not keeps_operand_in_flight(config)]


def drop_miscompiled_casts(
    configs: Sequence[triton.Config], named_args: Mapping[str, Any], **kwargs: Any
) -> list[triton.Config]:
    """Return the configs that are right on the live GPU for a left operand C, perhaps cast.

    An ``early_config_prune`` for kernels that multiply C by B: registers hold C only if it is
    cast to the dtype of the product.
    """
    named = {**named_args, **kwargs}
    dtype: torch.dtype = named["C_ptr"].dtype
    if dtype == product_dtype(dtype, named["B_ptr"].dtype):
        return list(configs)
    return drop_miscompiled(configs, named_args)


def product_dtype(left: torch.dtype, right: torch.dtype) -> torch.dtype:
    """Return what two dtypes are multiplied in: bf16 if either is, else fp16, else fp32."""
    for dtype in (torch.bfloat16, torch.float16):
        if dtype in (left, right):
            return dtype
    return torch.float32
