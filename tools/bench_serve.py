"""``launchkit bench serve``: a hybrid stack served by a small engine, by launch path. A command.

Exit codes: 0 measured, 1 the variants gave different tokens or states, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from launchkit.tools.bench_mamba import MODEL_NAMES
from launchkit.tools.bench_output import (
    AsJson,
    Output,
    benchmark,
    check_at_least,
    check_output,
    check_settings,
    give,
    keeper,
    plain_table,
    print_title,
    where,
    wide_console,
)

HELP = (
    "Serve random requests with a hybrid stack, launched as engines do it and with launchkit.\n\n"
    "Mamba2 layers of a model's shape with random weights, a feed-forward layer behind each and a "
    "stand-in for attention after every fourth; one mixed batch a step, prompts in pieces beside "
    "requests that decode. Requests arrive by steps of the engine, not by the clock, so that both "
    "variants compute the same batches; they must give the same tokens and leave the same states. "
    "Times are wall time at the ends of steps, each of which waits for the GPU. No CUDA graphs.\n\n"
    f"Models: {MODEL_NAMES}. The defaults take a few minutes on a GPU. Without one they are small, "
    "and the times are of launching alone: nothing is executed, and tokens are not compared."
)

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
_HOST_ONLY = " Host-only: nothing was executed, so these are no figures of a model; tokens were not compared."

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="One of the models above; may be given several times. Default: Nemotron-3-Nano.",
    ),
]
Layers = Annotated[
    int | None, typer.Option(help="Mamba layers. Default: the model's own; without a GPU 2.")
]
Concurrency = Annotated[
    list[int] | None,
    typer.Option(
        help="Requests at a time; may be given several times. Default: 1, 4, 16, 64, 128; without "
        "a GPU 1, 4."
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(help="Requests of a run. Default: two for each at a time, at least 8; or 4."),
]
InputTokens = Annotated[
    int | None,
    typer.Option(
        help="Mean tokens of a prompt, drawn from half to 1.5 times. Default: 512; or 40."
    ),
]
OutputTokens = Annotated[
    int | None, typer.Option(help="Mean tokens of an answer, likewise. Default: 32; or 4.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        help="Arrivals per step, Poisson. Default: a new request when one has ended (closed loop)."
    ),
]
Repeats = Annotated[int, typer.Option(help="Measured runs of each variant, at least 3.")]
Seed = Annotated[int, typer.Option(help="Of weights and requests; each repeat draws new ones.")]
TimeLimit = Annotated[
    float, typer.Option(help="Seconds after which no run is begun; what is left is skipped.")
]


def serve(
    model: Models = None,
    layers: Layers = None,
    concurrency: Concurrency = None,
    requests: Requests = None,
    input_tokens: InputTokens = None,
    output_tokens: OutputTokens = None,
    rate: Rate = None,
    repeats: Repeats = 4,
    seed: Seed = 0,
    time_limit: TimeLimit = 420.0,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Serve what is asked for; HELP is what a user reads."""
    check_at_least("--repeats", repeats, 3)
    check_output(output)
    check_settings()
    asked = benchmark("serving_asked").Asked(
        tuple(dict.fromkeys(model or ("Nemotron-3-Nano",))), layers, tuple(concurrency or ()),
        requests, input_tokens, output_tokens, rate, repeats, seed, time_limit,
    )  # fmt: skip
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("runs", total=None)
        document = benchmark("serving").measure(
            asked,
            began=lambda runs: progress.update(task, total=runs),
            advance=lambda: progress.advance(task),
            finished=keeper(output, "cases"),
        )
    give(document, show, as_json, output)
    if not document["ok"]:
        raise typer.Exit(1)


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
            console.print(problem, highlight=False, markup=False)
    for left in document["skipped"]:
        console.print(f"{left['case']}: left out: {left['reason']}", highlight=False, markup=False)
    host_only = document["machine"]["gpu"] is None
    console.print(_LEGEND + _HOST_ONLY * host_only, highlight=False, markup=False)


def _table(document: dict[str, Any], title: str, cases: list[dict[str, Any]]) -> Table:
    table = plain_table(title)
    for heading in ("at a time", "", "baseline", "launchkit", "ratio"):
        table.add_column(heading, justify="left" if heading == "" else "right", no_wrap=True)
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
