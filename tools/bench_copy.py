"""``launchkit bench copy``: how fast Mamba states are copied on this GPU. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from launchkit.errors import UsageError
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
from launchkit.tools.output import AsJson, print_text
from launchkit.tools.output_files import check_output

MODEL_NAMES = "Qwen3.5-9B, Nemotron-3-Super"
HELP = (
    "Compare copies of Mamba states between cache blocks: by bytes, by words, tiled, launchkit's.\n"
    f"\nModels: {MODEL_NAMES}. Needs a CUDA GPU, and 44 GiB of its memory for 128 requests. Then\n"
    "the host's time for a step of each model, for which --host alone needs no GPU."
)
_LEGEND = (
    "Medians of one launch among others in a CUDA graph. GB/s: bytes read and written. ceiling: a "
    "device copy of 2 GiB by torch in the same run. reqs: requests whose states one launch copies, "
    "all layers. Names: kernel, tiles of a state, 64-bit words of a block, warps."
)
_HOST_LEGEND = (
    "Medians of one call for all requests. one by one: an address a state, and Triton's launch. "
    "batched: addresses of all at once, one launch. fused: the kernel finds them. ratio: fused ÷ "
    "one by one; smaller is better."
)
_HOST_VARIANTS = ("state_by_state", "launchkit_batched", "launchkit_fused")

Models = Annotated[
    list[str] | None,
    typer.Option("--model", help=f"One of {MODEL_NAMES}; may be given several times."),
]
Reqs = Annotated[
    list[int] | None,
    typer.Option(
        help="Requests of a launch; may be given several times. Default: 1 to 128, the host's part "
        "1, 8 and 32."
    ),
]
Sweep = Annotated[bool, typer.Option("--sweep", help="Try candidates for the default shape.")]
Host = Annotated[bool, typer.Option("--host", help="Only the host's part: no GPU is needed.")]


def copy(
    model: Models = None,
    reqs: Reqs = None,
    rounds: Rounds = 11,
    sweep: Sweep = False,
    host: Host = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare the variants on the cases named; HELP is what a user reads."""
    check_at_least("--rounds", rounds, 2)
    if sweep and host:
        raise UsageError("--sweep tries kernels, --host measures none. Give one of them.")
    check_output(output)
    check_settings()
    document = _measured(
        tuple(model or ()), tuple(dict.fromkeys(reqs or ())), rounds, sweep, host, output
    )
    give(document, show, as_json, output)


def _measured(
    models: tuple[str, ...],
    reqs: tuple[int, ...],
    rounds: int,
    sweep: bool,
    host: bool,
    output: Path | None,
) -> dict[str, Any]:
    keep = keeper(output, "cases")
    document: dict[str, Any] | None = None
    if not host:
        bench, variants = benchmark("copy.bench"), benchmark("copy.variants")
        compared = variants.swept if sweep else variants.compared
        found: dict[str, Any] = bench.measure(
            models, reqs or bench.REQS, compared, rounds, finished=keep
        )
        if sweep:
            return found
        document = found
    host_part = benchmark("copy.host")
    whole: dict[str, Any] = host_part.measure(
        models, reqs or host_part.REQS, rounds, document, keep
    )
    return whole


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench copy``: a table for each model, then the host's part."""
    console = wide_console()
    if document["rows"]:
        _show_copies(console, document)
    for failure in document["failed"]:
        text = "not measured: {model}, {reqs} requests, {variant}: {error}".format(**failure)
        print_text(console, text)
    if document.get("host"):
        _show_host(console, document)


def _show_copies(console: Console, document: dict[str, Any]) -> None:
    print_title(console, f"copies of Mamba states ({where(document)})")
    for model in dict.fromkeys(row["model"] for row in document["rows"]):
        headings = ("reqs", "variant", "µs", "GB/s", "% of ceiling", "% of datasheet")
        table = plain_table(headings, left=("variant",), title=model)
        rows = [row for row in document["rows"] if row["model"] == model]
        for row in rows:
            table.add_row(*_cells(row))
        console.print()
        console.print(table)
    print_text(console, _LEGEND)


def _show_host(console: Console, document: dict[str, Any]) -> None:
    print_title(console, f"host µs of a step ({where(document)})")
    ratios = {
        (each["model"], each["reqs"], each["op"], each["of"]): each["ratio"]
        for each in document["host_ratios"]
    }
    for model in dict.fromkeys(row["model"] for row in document["host"]):
        rows = [row for row in document["host"] if row["model"] == model]
        headings = ("reqs", "step", "one by one", "batched", "fused", "ratio")
        title = f"{model}, {rows[0]['layers']} layers"
        table = plain_table(headings, left=("step",), title=title)
        medians = {(row["reqs"], row["op"], row["variant"]): row["median_us"] for row in rows}
        for count, op in dict.fromkeys((row["reqs"], row["op"]) for row in rows):
            times = [medians.get((count, op, name)) for name in _HOST_VARIANTS]
            ratio = ratios.get((model, count, op, _HOST_VARIANTS[-1]))
            cells = ["-" if us is None else f"{us:.1f}" for us in times]
            table.add_row(str(count), op, *cells, "-" if ratio is None else f"{ratio:.3f}")
        console.print()
        console.print(table)
    print_text(console, _HOST_LEGEND)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    datasheet = row["of_datasheet"]
    return (
        str(row["reqs"]),
        f"{row['variant']} {row['tiles']}x{row['block_size']}x{row['num_warps']}",
        f"{row['median_us']:.1f}",
        f"{row['gb_per_s']:.0f}",
        f"{100 * row['of_ceiling']:.1f}",
        "-" if datasheet is None else f"{100 * datasheet:.1f}",
    )
