"""How many launches a call makes: counted as they happen, torch's own included.

On a GPU the profiler sees every kernel, copy and fill that runs. On the host-only driver
Triton's launches are recorded, and torch's operators, which run on the CPU, are seen by its
profiler: each that computes or copies would be one launch on a GPU.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch

# Unlike its successor it writes nothing to stderr, whatever torch it is.
from torch.autograd.profiler_legacy import profile as profile_operators
from torch.profiler import ProfilerActivity, profile

from launchkit import hostonly
from launchkit.benchmarks.mamba.steps import Part
from launchkit.benchmarks.noop_kernels import noop_0

Counts = dict[tuple[str, str], "int | None"]
"""Launches by (step, what), None where they could not be seen."""

# Operators that launch nothing: views, allocations, and those that call others for the work.
_LAUNCH_NOTHING = frozenset(
    f"aten::{name}"
    for name in (
        "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "as_strided", "chunk", "clone",
        "contiguous", "detach", "empty", "empty_like", "empty_strided", "expand", "expand_as",
        "flatten", "index_put_", "lift_fresh", "movedim", "narrow", "new_empty", "permute",
        "reshape", "resize_", "result_type", "select", "slice", "split", "split_with_sizes",
        "squeeze", "t", "to", "transpose", "unbind", "unflatten", "unsqueeze", "view", "view_as",
    )
)  # fmt: skip

_MARKER = "noop_0"


def count(parts: Sequence[Part], cuda: bool) -> Counts:
    """Return the launches of one call of each part. Compiles what is not compiled yet."""
    for part in parts:
        part.call()
    found = _on_gpu(parts) if cuda else [_host_only(part) for part in parts]
    return {(part.step, part.what): number for part, number in zip(parts, found, strict=True)}


def _host_only(part: Part) -> int:
    hostonly.clear()
    operator_profiler: Any = profile_operators
    with operator_profiler() as profiler:
        part.call()
    operators = [event.name for event in profiler.function_events or ()]
    return len(hostonly.launches()) + torch_launches(operators)


def torch_launches(operators: Iterable[str]) -> int:
    """Return how many of these operators launch something where tensors are on a GPU."""
    return sum(name.startswith("aten::") and name not in _LAUNCH_NOTHING for name in operators)


def _on_gpu(parts: Sequence[Part]) -> Sequence[int | None]:
    noop_0[(1,)]()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for part in parts:
            noop_0[(1,)]()
            part.call()
        noop_0[(1,)]()
        torch.cuda.synchronize()
    on_gpu = [event for event in profiler.events() if event.device_type.name == "CUDA"]
    on_gpu.sort(key=lambda event: event.time_range.start)
    found = between_markers([event.name for event in on_gpu])
    if len(found) == len(parts):
        return found
    logging.getLogger("launchkit").warning(
        "launches were not counted: the profiler saw %d of %d calls. Close other profilers, and "
        "check that CUPTI may be used on this machine.", len(found), len(parts),
    )  # fmt: skip
    return [None] * len(parts)


def between_markers(names: Sequence[str]) -> list[int]:
    """Return how many names stand between each marker kernel and the next."""
    places = [place for place, name in enumerate(names) if name == _MARKER]
    return [after - before - 1 for before, after in itertools.pairwise(places)]
