"""What ``launchkit bench predict`` runs: a step of Mamba2 layers, whose scans are launched in four ways.

All launch the same kernels with the same configs, and write final states back with torch: only the
launches of the scan differ, which is what the predictions change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from launchkit import annotate, profile_launches
from launchkit.benchmarks.mamba.cases import MambaCase, build
from launchkit.benchmarks.mamba.steps import parts
from launchkit.benchmarks.mode import drain_for
from launchkit.benchmarks.pinned_configs import LAUNCHKIT_KERNELS, triton_kernels
from launchkit.kernels.mamba_layer import FINAL_STATE_WRITEBACK, SSD_SCAN

BASELINE, AUTOTUNED, PLANNED, GRAPH = "baseline", "launch_autotuned", "op_plan", "cuda_graph"
VARIANTS = (BASELINE, AUTOTUNED, PLANNED, GRAPH)
"""Triton's Autotuner, which is what is captured to predict from; ``launch_autotuned`` in its place; the
scan replayed from its op plan; the scan of each layer captured into a CUDA graph."""

RECORDED = (BASELINE, PLANNED)
"""Variants that are run once more while launchkit's own recorder is on."""

OPS = (SSD_SCAN, FINAL_STATE_WRITEBACK)

Call = Callable[[], Any]


class Layer(NamedTuple):
    """One layer's calls."""

    scans: dict[str, Call]
    """By variant."""
    write: Call


def step_range(variant: str, turn: int) -> str:
    """Return the name of the range around each step of one round."""
    return f"{variant} step of round {turn}"


def recorded_range(variant: str) -> str:
    """Return the name of the range around the steps that the recorder sees."""
    return f"{variant} recorded"


def make_layers(case: MambaCase, count: int, cuda: bool) -> list[Layer]:
    """Return ``count`` layers with tensors of their own; each variant has run once.

    Without a GPU there is no variant ``cuda_graph``.
    """
    by_triton = triton_kernels()
    layers = []
    pool = torch.cuda.graph_pool_handle() if cuda else None
    for number in range(count):
        inputs = build(case, "cuda" if cuda else "cpu", seed=number)
        made = parts(inputs, by_triton, LAUNCHKIT_KERNELS)
        calls = {(part.step, part.what): part.call for part in made}
        scans = {name: calls[name, "scan"] for name in (BASELINE, AUTOTUNED, PLANNED)}
        for scan in scans.values():
            scan()
        if cuda:
            scans[GRAPH] = _captured(scans[BASELINE], pool)
        layers.append(_in_ranges(number, scans, calls[BASELINE, "writeback"]))
    return layers


def _in_ranges(number: int, scans: dict[str, Call], write: Call) -> Layer:
    scan_range = annotate(SSD_SCAN, number, op="ssd")
    write_range = annotate(FINAL_STATE_WRITEBACK, number, op="ssd")
    return Layer({name: scan_range(scan) for name, scan in scans.items()}, write_range(write))


def _captured(scan: Call, pool: Any) -> Call:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        scan()
    return graph.replay


def make_steps(layers: Sequence[Layer], cuda: bool) -> dict[str, Call]:
    """Return a step of each variant: every layer's scan and write-back, then the wait for the GPU."""
    drain = drain_for(cuda)

    def step_of(variant: str) -> Call:
        calls = [call for layer in layers for call in (layer.scans[variant], layer.write)]

        def step() -> None:
            for call in calls:
                call()
            drain()

        return step

    return {variant: step_of(variant) for variant in layers[0].scans}


def run_rounds(
    steps: dict[str, Call], rounds: int, count: int, timed: Callable[[Call], float]
) -> dict[str, list[list[float]]]:
    """Run ``count`` steps of each variant in turn, ``rounds`` times; return what ``timed`` gives.

    By variant and round, one for each step. Every other round goes backwards.
    """
    found: dict[str, list[list[float]]] = {variant: [] for variant in steps}
    for turn in range(rounds):
        for variant in steps if turn % 2 == 0 else reversed(steps):
            around = annotate(step_range(variant, turn))
            step = around(steps[variant])
            found[variant].append([timed(step) for _ in range(count)])
    return found


def record(steps: dict[str, Call], count: int, path: str) -> None:
    """Run the ``RECORDED`` variants with launchkit's recorder on, and save its profile."""
    with profile_launches() as profile:
        for variant in RECORDED:
            with annotate(recorded_range(variant)):
                for _ in range(count):
                    steps[variant]()
    profile.save(path)
