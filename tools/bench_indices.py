"""``launchkit bench indices``: what looking up the state blocks of a batch costs. A command.

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

_VARIANTS = {
    "groups_triton": "4 launches\nTriton",
    "groups": "4 launches\nlaunchkit",
    "one_triton": "1 launch\nTriton",
    "launchkit": "1 launch\nlaunchkit",
}
_LEGEND = (
    "Medians of one lookup: 4 KV-cache groups, blocks of 32 tokens, 1,024 columns. 4 launches: a "
    "new tensor and a launch for each group, by kernel[grid] or through launchkit. 1 launch: all "
    "groups into a buffer that stays. ratio: the last ÷ the first; smaller is better."
)
_GPU_LEGEND = " GPU: µs of the first and of the last, replayed from a CUDA graph."

Requests = Annotated[
    list[int] | None,
    typer.Option(help="Requests of a batch; may be given several times. Default: 1 to 256."),
]


def indices(
    requests: Requests = None, rounds: Rounds = 31, as_json: AsJson = False, output: Output = None
) -> None:
    """Compare lookups of the state blocks of four cache groups: a launch each, and one for all."""
    check_at_least("--rounds", rounds, 2)
    check_output(output)
    check_settings()
    bench = benchmark("indices")
    batches = tuple(dict.fromkeys(requests or bench.REQUESTS))
    keep = keeper(output, "batches")
    with counted("batches timed", len(batches)) as advance:
        document = bench.measure(batches, rounds, advance=advance, finished=keep)
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench indices``: a line for each batch."""
    console = wide_console()
    print_title(console, f"host µs per lookup ({where(document)})")
    rows = {(row["requests"], row["variant"]): row for row in document["rows"]}
    gpu = any("gpu_median_us" in row for row in document["rows"])
    table = plain_table(("requests", *_VARIANTS.values(), "ratio", *(("GPU",) * gpu)))
    for ratio in document["ratios"]:
        if (ratio["time"], ratio["over"]) == ("host", "groups_triton"):
            count = ratio["requests"]
            cells = [f"{rows[count, name]['median_us']:.1f}" for name in _VARIANTS]
            table.add_row(str(count), *cells, f"{ratio['ratio']:.3f}", *_gpu(rows, count, gpu))
    console.print(table)
    print_text(console, _LEGEND + _GPU_LEGEND * gpu)


def _gpu(rows: dict[tuple[int, str], dict[str, Any]], count: int, gpu: bool) -> list[str]:
    if not gpu:
        return []
    first, last = (rows[count, name]["gpu_median_us"] for name in ("groups_triton", "launchkit"))
    return [f"{first:.1f} → {last:.1f}"]
