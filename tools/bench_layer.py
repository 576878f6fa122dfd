"""``launchkit bench layer``: what a short continuation costs, in a layer and in a step. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit.tools.bench_output import (
    Output,
    Rounds,
    benchmark,
    check_at_least,
    check_settings,
    give,
    keeper,
    plain_table,
    print_title,
    where,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output

_VARIANTS = {"baseline": "baseline", "copied": "copied", "launchkit": "launchkit"}
_LEGEND = (
    "Medians. One request gets 32 more tokens: every layer starts in the state of a cache block, "
    "and ends in it. layer: the scan, with state read and write. step: all layers, the lookup of "
    "blocks in 4 groups, the copy into a block that is entered and the one at a block's end. "
    "baseline: Triton's launches, initial and final states moved with torch, a lookup a group. "
    "copied: launchkit's, initial states gathered in one launch. launchkit: the scan is given the "
    "cache. ratio: launchkit ÷ baseline; smaller is better. +: steps, without those copies, of "
    "batches with 8 decode rows: one prompt goes on (+decode), four do (+several), one with a "
    "checkpoint (+checkpoint); ratio: launchkit ÷ copied."
)
_GPU_LEGEND = " GPU: the same ratio of GPU time, replayed from a CUDA graph."

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="As of `bench mamba`; may be given several times. "
        "Default: Granite-4.0-h-micro, Nemotron-3-Nano.",
    ),
]


def layer(
    model: Models = None, rounds: Rounds = 31, as_json: AsJson = False, output: Output = None
) -> None:
    """Compare a short continuation: as engines launch it, and with states left in the cache."""
    check_at_least("--rounds", rounds, 2)
    check_output(output)
    check_settings()
    bench = benchmark("layer.bench")
    models = tuple(dict.fromkeys(model or bench.MODELS))
    keep = keeper(output, "models")
    with counted("models compiled and timed", len(models)) as advance:
        document = bench.measure(models, rounds, advance=advance, finished=keep)
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench layer``: a line for each part of a model."""
    console = wide_console()
    print_title(console, f"host µs of a short continuation ({where(document)})")
    gpu = any(ratio["time"] == "gpu" for ratio in document["ratios"])
    headings = ("model", "", "launches", *_VARIANTS.values(), "ratio", *(("GPU",) * gpu))
    table = plain_table(headings, left=("model", ""))
    for model in dict.fromkeys(row["model"] for row in document["rows"]):
        parts = dict.fromkeys(r["what"] for r in document["rows"] if r["model"] == model)
        for number, what in enumerate(parts):
            mixed = what.startswith("mixed_")
            name = f" +{what.removeprefix('mixed_')}" if mixed else "" if number else model
            cells = _cells(document, model, what, gpu)
            table.add_row(
                name, "step" if mixed else what, *cells, end_section=number == len(parts) - 1
            )
    console.print(table)
    print_text(console, _LEGEND + _GPU_LEGEND * gpu)


def _cells(document: dict[str, Any], model: str, what: str, gpu: bool) -> list[str]:
    place = (model, what)
    rows = {r["variant"]: r for r in document["rows"] if (r["model"], r["what"]) == place}
    first = next(name for name in _VARIANTS if name in rows)
    ratios = {
        r["time"]: r["ratio"]
        for r in document["ratios"]
        if (r["model"], r["what"], r["over"]) == (*place, first)
    }
    medians = [f"{rows[name]['median_us']:.1f}" if name in rows else "-" for name in _VARIANTS]
    counts = [_count(rows[name]["launches"]) for name in (first, "launchkit")]
    cells = [" → ".join(counts), *medians, f"{ratios['host']:.3f}"]
    return cells + ([f"{ratios['gpu']:.3f}"] if gpu else [])


def _count(launches: int | None) -> str:
    return "?" if launches is None else str(launches)
