"""``launchkit bench serve``: a hybrid stack served by a small engine, by launch path. A command.

Exit codes: 0 measured, 1 the variants gave different tokens or states, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated

import typer

from launchkit.tools.bench_mamba import MODEL_NAMES
from launchkit.tools.bench_output import (
    Output,
    benchmark,
    check_at_least,
    check_settings,
    give,
    keeper,
)
from launchkit.tools.bench_serve_table import show
from launchkit.tools.output import AsJson, counts
from launchkit.tools.output_files import check_output

HELP = (
    "Serve random requests with a hybrid stack, launched as engines do it and with launchkit.\n\n"
    "Mamba2 layers of a model's shape with random weights, a feed-forward layer behind each and a "
    "stand-in for attention after every fourth; one mixed batch a step, prompts in pieces beside "
    "requests that decode. Requests arrive by steps of the engine, not by the clock, so that both "
    "variants compute the same batches; they must give the same tokens and leave the same states. "
    "Times are wall time at the ends of steps, each of which waits for the GPU. No CUDA graphs.\n\n"
    f"Models: {MODEL_NAMES}. The defaults take a few minutes on a GPU. Without one they are small, "
    "no kernel is executed, torch multiplies on the CPU, and tokens are not compared: the loop runs, "
    "but its times are no figures of a model."
)

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
    asked = benchmark("serve.asked").Asked(
        tuple(dict.fromkeys(model or ("Nemotron-3-Nano",))), layers, tuple(concurrency or ()),
        requests, input_tokens, output_tokens, rate, repeats, seed, time_limit,
    )  # fmt: skip
    with counts() as progress:
        task = progress.add_task("runs", total=None)
        document = benchmark("serve.bench").measure(
            asked,
            began=lambda runs: progress.update(task, total=runs),
            advance=lambda: progress.advance(task),
            finished=keeper(output, "cases"),
        )
    give(document, show, as_json, output)
    if not document["ok"]:
        raise typer.Exit(1)
