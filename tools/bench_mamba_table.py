"""The table of ``launchkit bench mamba``: two lines a case, the steps side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from launchkit.tools.bench_output import plain_table, print_title, where, wide_console
from launchkit.tools.output import print_text

_STEPS = {
    "baseline": "base-\nline",
    "fused_write": "+ fused\nwrite",
    "launch_autotuned": "+ tuned\nlaunch",
    "lean_wrappers": "+ lean\ncode",
    "op_plan": "+ op\nplan",
}
_OPS = {"layer": "layer", "final_state_writeback": "write-back"}

_LEGEND = (
    "Medians of one layer: the scan, and the write-back of final states into the cache. S "
    "sequences, T tokens in all; init: with initial states. baseline: Triton's Autotuner, einops "
    "views, four device guards, a write-back of its own with torch. Each further column adds one "
    "change: the scan writes final states itself; launchkit's launches; launchkit's wrappers; the "
    "op replayed from its plan. A fused write-back launches nothing: its time is the layer's less "
    "that of a scan that returns the states, so it may be below 0. ratio: launchkit ÷ baseline; "
    "smaller is better."
)
_GPU_LEGEND = " GPU: the same five kernels in a CUDA graph, launchkit's launches ÷ Triton's."
_HOST_ONLY_LEGEND = (
    " Nothing is executed here: the baseline's write-back copies one number a state, so that only "
    "its launching is measured."
)

Row = dict[str, Any]


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench mamba``: a table for each model."""
    console = wide_console()
    rows = {(r["case"], r["op"], r["step"]): r for r in document["rows"]}
    ratios = {(r["case"], r["time"], r["over"]): r["ratio"] for r in document["ratios"]}
    gpu = any(time == "gpu" for _, time, _ in ratios)
    print_title(console, f"host µs per Mamba2 layer ({where(document)})")
    for model in dict.fromkeys(case["model"] for case in document["cases"]):
        cases = [case for case in document["cases"] if case["model"] == model]
        table = _table(f"{model}, {cases[0]['layers']} Mamba layers", gpu)
        for case in cases:
            for op in _OPS:
                table.add_row(*_cells(case, op, rows, ratios, gpu), end_section=op != "layer")
        console.print()
        console.print(table)
    legend = _LEGEND + (_GPU_LEGEND if gpu else _HOST_ONLY_LEGEND)
    print_text(console, legend)


def _table(title: str, gpu: bool) -> Table:
    steps = (*_STEPS.values(), "ratio", *(("GPU",) * gpu))
    headings = ("S", "T", "init", "", "laun-\nches", *steps)
    return plain_table(headings, left=("init", ""), title=title, padding=0)


def _cells(
    case: dict[str, Any],
    op: str,
    rows: dict[tuple[str, str, str], Row],
    ratios: dict[tuple[str, str, str], float],
    gpu: bool,
) -> Sequence[str]:
    name = case["case"]
    steps = [rows[name, op, step] for step in _STEPS]
    whole = op == "layer"
    sizes = [str(case["sequences"]), str(case["tokens"]), "yes" if case["initial_states"] else "no"]
    cells = [
        *(sizes if whole else ("", "", "")),
        _OPS[op],
        f"{_count(steps[0])} → {_count(steps[-1])}",
        *(f"{row['median_us']:.1f}" for row in steps),
        f"{ratios[name, 'host', 'baseline']:.2f}" if whole else "",
    ]
    if gpu:
        cells.append(f"{ratios[name, 'gpu', 'fused_write']:.3f}" if whole else "")
    return cells


def _count(row: Row) -> str:
    return "?" if row["launches"] is None else str(row["launches"])
