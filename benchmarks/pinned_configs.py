"""Two fixed configs for each kernel of the scan: nothing is tuned, every run launches the same.

Two, since with one Triton's Autotuner builds no key and its launch costs less than in use. The
first of the two is the one that runs; pruning sees to that, so no config is ever measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import triton

from launchkit.kernels.ssd.bmm import _bmm_chunk_fwd_kernel
from launchkit.kernels.ssd.chunk_cumsum import _chunk_cumsum_fwd_kernel
from launchkit.kernels.ssd.chunk_scan import _chunk_scan_fwd_kernel
from launchkit.kernels.ssd.chunk_state import _chunk_state_fwd_kernel
from launchkit.kernels.ssd.state_passing import _state_passing_fwd_kernel


class ScanKernels(NamedTuple):
    """The autotuned kernels of the scan, each launched as ``kernel[grid](...)``."""

    chunk_cumsum: Any
    chunk_state: Any
    state_passing: Any
    bmm: Any
    chunk_scan: Any


LAUNCHKIT_KERNELS = ScanKernels(
    chunk_cumsum=_chunk_cumsum_fwd_kernel,
    chunk_state=_chunk_state_fwd_kernel,
    state_passing=_state_passing_fwd_kernel,
    bmm=_bmm_chunk_fwd_kernel,
    chunk_scan=_chunk_scan_fwd_kernel,
)
"""The kernels of ``launchkit.kernels.ssd`` as their modules hold them."""


def _tiles(prefix: str, m: int, n: int, k: int, warps: int, stages: int) -> triton.Config:
    blocks = {f"{prefix}_M": m, f"{prefix}_N": n, f"{prefix}_K": k}
    return triton.Config(blocks, num_warps=warps, num_stages=stages)


PINNED_CONFIGS: dict[str, tuple[triton.Config, triton.Config]] = {
    "chunk_cumsum": (
        triton.Config({"BLOCK_SIZE_H": 8}, num_warps=4),
        triton.Config({"BLOCK_SIZE_H": 16}, num_warps=4),
    ),
    "chunk_state": (
        _tiles("BLOCK_SIZE", 64, 128, 64, warps=4, stages=2),
        _tiles("BLOCK_SIZE", 64, 128, 32, warps=4, stages=3),
    ),
    "state_passing": (triton.Config({"BLOCK_SIZE": 512}), triton.Config({"BLOCK_SIZE": 256})),
    "bmm": (
        _tiles("BLOCK", 64, 128, 64, warps=4, stages=3),
        _tiles("BLOCK", 64, 64, 64, warps=4, stages=3),
    ),
    "chunk_scan": (
        _tiles("BLOCK", 64, 64, 64, warps=4, stages=1),
        _tiles("BLOCK", 64, 64, 32, warps=2, stages=3),
    ),
}
"""By field of ``ScanKernels``; the first one runs. All are right and fast on sm_90."""


def _keep_first(configs: Sequence[Any], _named: Any, **_arguments: Any) -> list[Any]:
    return [configs[0]]


_PRUNE = {"early_config_prune": _keep_first}


def triton_kernels() -> ScanKernels:
    """Return the same kernels under Triton's own Autotuner, with the pinned configs."""
    return ScanKernels(
        *(
            triton.autotune(list(PINNED_CONFIGS[name]), list(kernel.keys), prune_configs_by=_PRUNE)(
                kernel.fn
            )
            for name, kernel in LAUNCHKIT_KERNELS._asdict().items()
        )
    )


@contextmanager
def pinned() -> Iterator[ScanKernels]:
    """While it lasts, launchkit's kernels have the pinned configs, and take the first."""
    before = [
        (kernel, kernel.configs, kernel.early_config_prune, kernel.cache)
        for kernel in LAUNCHKIT_KERNELS
    ]
    try:
        for name, kernel in LAUNCHKIT_KERNELS._asdict().items():
            kernel.configs = list(PINNED_CONFIGS[name])
            kernel.early_config_prune = _keep_first
            kernel.cache = {}
        yield LAUNCHKIT_KERNELS
    finally:
        for kernel, configs, prune, cache in before:
            kernel.configs, kernel.early_config_prune, kernel.cache = configs, prune, cache
