"""``launchkit bench copy``: how fast Mamba states are copied on this GPU. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit import jsonio
from launchkit.tools.bench_output import (
    AsJson,
    Output,
    benchmark,
    check_at_least,
    check_output,
    check_settings,
    keeper,
    plain_table,
    print_title,
    where,
    wide_console,
    write,
)

MODEL_NAMES = "Qwen3.5-9B, Nemotron-3-Super"
HELP = (
    "Compare copies of Mamba states between cache blocks: by bytes, by words, tiled, launchkit's.\n"
    f"\nModels: {MODEL_NAMES}. Needs a CUDA GPU, and 44 GiB of its memory for 128 requests."
)
_LEGEND = (
    "Medians of one launch among others in a CUDA graph. GB/s: bytes read and written. ceiling: a "
    "device copy of 2 GiB by torch in the same run. reqs: requests whose states one launch copies, "
    "all layers. Names: kernel, tiles of a state, 64-bit words of a block, warps."
)

Models = Annotated[
    list[str] | None,
    typer.Option("--model", help=f"One of {MODEL_NAMES}; may be given several times."),
]
Reqs = Annotated[
    list[int] | None,
    typer.Option(help="Requests of a launch; may be given several times. Default: 1 to 128."),
]
Rounds = Annotated[int, typer.Option(help="How often each row is timed, at least 2.")]
Sweep = Annotated[bool, typer.Option("--sweep", help="Try candidates for the default shape.")]


def copy(
    model: Models = None,
    reqs: Reqs = None,
    rounds: Rounds = 11,
    sweep: Sweep = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare the variants on the cases named; HELP is what a user reads."""
    check_at_least("--rounds", rounds, 2)
    check_output(output)
    check_settings()
    bandwidth, variants = benchmark("copy_bandwidth"), benchmark("copy_variants")
    document = bandwidth.measure(
        tuple(model or ()),
        tuple(dict.fromkeys(reqs or bandwidth.REQS)),
        variants.swept if sweep else variants.compared,
        rounds,
        finished=keeper(output, "cases"),
    )
    data = jsonio.dumps(document)
    try:
        if as_json:
            typer.echo(data, nl=False)
        else:
            show(document)
    finally:
        # Also where the output failed: what was measured is kept.
        if output is not None:
            write(output, data)


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench copy``: a table for each model."""
    console = wide_console()
    print_title(console, f"copies of Mamba states ({where(document)})")
    for model in dict.fromkeys(row["model"] for row in document["rows"]):
        table = plain_table(model)
        for heading in ("reqs", "variant", "µs", "GB/s", "% of ceiling", "% of datasheet"):
            table.add_column(heading, justify="left" if heading == "variant" else "right")
        rows = [row for row in document["rows"] if row["model"] == model]
        for row in rows:
            table.add_row(*_cells(row))
        console.print()
        console.print(table)
    console.print(_LEGEND, highlight=False, markup=False)
    for failure in document["failed"]:
        text = "not measured: {model}, {reqs} requests, {variant}: {error}".format(**failure)
        console.print(text, highlight=False, markup=False)


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
