"""What ``launchkit bench mamba`` compares: the same prefill in cumulative steps, as calls.

The steps launch the same kernels with the same arguments and configs. Each but the first adds
one thing that saves host time to the step before it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from launchkit import launch_autotuned
from launchkit.benchmarks.baseline.scan import scan_before
from launchkit.benchmarks.baseline.stored_states import final_state_writeback_separate
from launchkit.benchmarks.mamba.cases import ScanInputs
from launchkit.benchmarks.pinned_configs import ScanKernels
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen

STEPS = ("baseline", "fused_write", "launch_autotuned", "lean_wrappers", "op_plan")
"""Cumulative: Triton's Autotuner with a separate write-back; the state-passing kernel writes the
final states; ``launch_autotuned`` in place of ``kernel[grid]``; launchkit's own wrappers; the op is
replayed from its plan, which is ``launchkit.kernels.ssd`` as it stands."""

OPS = ("ssd_scan", "final_state_writeback", "layer")
"""The scan, with the write-back where the step has fused it; the write-back; the two together."""


class Part(NamedTuple):
    """Something of one step that is timed by itself."""

    step: str
    what: str
    """``scan`` without a write-back, ``writeback`` alone, or ``layer``: both."""
    call: Callable[[], Any]


def parts(inputs: ScanInputs, triton_kernels: ScanKernels, ours: ScanKernels) -> list[Part]:
    """Return what is timed for one case; those to be compared stand side by side.

    ``ours``: launchkit's kernels, with the same configs pinned as ``triton_kernels``.
    """
    baseline = functools.partial(scan_before, triton_kernels)
    return [
        *_separate("baseline", baseline, inputs),
        *_fused("fused_write", baseline, inputs),
        *_fused("launch_autotuned", functools.partial(scan_before, _by_launchkit(ours)), inputs),
        *_fused("lean_wrappers", inspect.unwrap(mamba_chunk_scan_combined_varlen), inputs),
        *_fused("op_plan", mamba_chunk_scan_combined_varlen, inputs),
    ]


class _ByLaunchkit:
    """A kernel whose ``kernel[grid](...)`` is ``launch_autotuned(kernel, grid, ...)``."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(launch_autotuned, self._kernel, grid)


def _by_launchkit(kernels: ScanKernels) -> ScanKernels:
    return ScanKernels(*(_ByLaunchkit(kernel) for kernel in kernels))


_Scan = Callable[..., Any]


def _separate(step: str, scan: _Scan, inputs: ScanInputs) -> list[Part]:
    last, slots = inputs.metadata.last_chunk_indices, inputs.state_indices
    alone = _scan_alone(scan, inputs)
    states = alone()
    if states.is_cuda:

        def layer() -> None:
            final_state_writeback_separate(alone(), last, inputs.ssm_state, slots)

        def writeback() -> None:
            final_state_writeback_separate(states, last, inputs.ssm_state, slots)
    else:
        # torch really copies CPU tensors, which is no cost of a launch: one element a row.
        source, cache = states[:, :1, :1, :1], inputs.ssm_state[:, :1, :1, :1]

        def layer() -> None:
            alone()
            final_state_writeback_separate(source, last, cache, slots)

        def writeback() -> None:
            final_state_writeback_separate(source, last, cache, slots)

    return [
        Part(step, "scan", alone), Part(step, "writeback", writeback), Part(step, "layer", layer),
    ]  # fmt: skip


def _fused(step: str, scan: _Scan, inputs: ScanInputs) -> list[Part]:
    return [
        Part(step, "scan", _scan_alone(scan, inputs)),
        Part(step, "layer", _scan_and_write(scan, inputs)),
    ]


def _scan_alone(scan: _Scan, inputs: ScanInputs) -> Callable[[], torch.Tensor]:
    i, m = inputs, inputs.metadata

    def call() -> Any:
        return scan(
            i.x, i.dt, i.A, i.B, i.C, i.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
            m.last_chunk_indices, m.seq_idx, i.out, D=i.D, dt_bias=i.dt_bias,
            initial_states=i.initial_states, dt_softplus=True, return_intermediate_states=True,
            state_dtype=i.state_dtype,
        )  # fmt: skip

    return call


def _scan_and_write(scan: _Scan, inputs: ScanInputs) -> Callable[[], Any]:
    i, m = inputs, inputs.metadata

    def call() -> Any:
        return scan(
            i.x, i.dt, i.A, i.B, i.C, i.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
            m.last_chunk_indices, m.seq_idx, i.out, D=i.D, dt_bias=i.dt_bias,
            initial_states=i.initial_states, dt_softplus=True, state_dtype=i.state_dtype,
            final_states_out=i.ssm_state, final_state_indices=i.state_indices,
        )  # fmt: skip

    return call


def per_op(
    values: Mapping[tuple[str, str], Sequence[float]],
) -> dict[tuple[str, str], list[float]]:
    """Return values per (op, step) from values per (step, what), sample by sample.

    A fused write-back is what the layer takes more than its scan without a write-back, in the
    same round.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for step in STEPS:
        scan, layer = values[step, "scan"], values[step, "layer"]
        separate = values.get((step, "writeback"))
        found["ssd_scan", step] = list(layer if separate is None else scan)
        found["final_state_writeback", step] = list(
            separate or [both - one for both, one in zip(layer, scan, strict=True)]
        )
        found["layer", step] = list(layer)
    return found
