"""The table of ``launchkit bench serve``: a line a figure, the variants side by side."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from launchkit.tools.bench_output import plain_table, print_title, where, wide_console
from launchkit.tools.output import print_text

_FIGURES = {
    "output_tokens_per_s": "tokens/s",
    "ttft_p50_ms": "TTFT p50 ms",
    "ttft_p95_ms": "TTFT p95 ms",
    "itl_p50_ms": "ITL p50 ms",
    "itl_p95_ms": "ITL p95 ms",
    "prefill_step_p50_ms": "step, prompts",
    "decode_step_p50_ms": "step, decode",
}
_LEGEND = (
    "Mean ± standard deviation over repeats, baseline and launchkit in turn (ABBA). baseline: "
    "Triton's launches, states moved with torch, a lookup a group. launchkit: op plans, states read "
    "and written in the cache, one lookup. TTFT: from arrival to the first token; ITL: from one to "
    "the next; step: median ms of steps with prompts, and without. ratio: launchkit ÷ baseline, of "
    "pairs; above 1 is better for tokens/s, below 1 for the rest."
)
_HOST_ONLY = (
    " Host-only: no kernel was executed and torch multiplied on the CPU, so these are no figures of "
    "a model; tokens were not compared."
)


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench serve``: a table for each model."""
    console = wide_console()
    print_title(console, f"served requests ({where(document)})")
    for model in dict.fromkeys(case["model"] for case in document["cases"]):
        cases = [case for case in document["cases"] if case["model"] == model]
        console.print()
        console.print(_table(document, f"{model}, {cases[0]['layers']} Mamba layers", cases))
    for case in document["cases"]:
        if case["difference"] is not None:
            problem = f"{case['case']}: the variants DIFFER: {case['difference']}"
            print_text(console, problem)
    for left in document["skipped"]:
        print_text(console, f"{left['case']}: left out: {left['reason']}")
    host_only = document["machine"]["gpu"] is None
    print_text(console, _LEGEND + _HOST_ONLY * host_only)


def _table(document: dict[str, Any], title: str, cases: list[dict[str, Any]]) -> Table:
    headings = ("at a time", "", "baseline", "launchkit", "ratio")
    table = plain_table(headings, left=("",), title=title)
    rows = {(row["case"], row["variant"]): row for row in document["rows"]}
    ratios = {(row["case"], row["figure"]): row for row in document["ratios"]}
    for case in cases:
        for number, (figure, label) in enumerate(_FIGURES.items()):
            name = case["case"]
            table.add_row(
                "" if number else str(case["concurrency"]),
                label,
                _spread(rows[name, "baseline"][figure]),
                _spread(rows[name, "launchkit"][figure]),
                _ratio(ratios.get((name, figure))),
                end_section=number == len(_FIGURES) - 1,
            )
    return table


def _spread(figure: dict[str, Any]) -> str:
    if figure["mean"] is None:
        return "-"
    digits = 0 if figure["mean"] >= 1000 else 1 if figure["mean"] >= 100 else 2
    return f"{figure['mean']:,.{digits}f} ± {figure['stddev']:,.{digits}f}"


def _ratio(ratio: dict[str, Any] | None) -> str:
    return "-" if ratio is None else f"{ratio['ratio']:.3f} ± {ratio['stddev']:.3f}"
