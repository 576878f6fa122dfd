"""``launchkit bench mamba``: what one Mamba2 layer's prefill costs on the host. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from launchkit.tools.bench_mamba_table import show
from launchkit.tools.bench_output import (
    Output,
    Rounds,
    benchmark,
    check_at_least,
    check_settings,
    give,
    keeper,
)
from launchkit.tools.output import AsJson, counts
from launchkit.tools.output_files import check_output

MODEL_NAMES = (
    "Nemotron-3-Nano, Nemotron-3.5-Lightning, Nemotron-3-Super, Granite-4.0-h-micro, Bamba-9B"
)
HELP = (
    "Compare the scan of one Mamba2 layer: as engines launch it, then step by step as here.\n\n"
    f"Models: {MODEL_NAMES}. All of them, with every batch, take about a minute without a GPU and "
    "several with one; progress is shown on a terminal."
)

_ROUNDS = 31

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", help="One of the models above; may be given several times. Default: all."
    ),
]
Sequences = Annotated[
    list[int] | None,
    typer.Option(help="Sequences of a batch; may be given several times. Default: 1, 4, 16."),
]
Tokens = Annotated[
    list[int] | None,
    typer.Option(
        help="Tokens of a batch, all sequences together; may be given several times. "
        "Default: 32, 512, 2048, 8192."
    ),
]
InitialStates = Annotated[
    bool | None,
    typer.Option(
        "--initial-states/--fresh",
        help="Only sequences that continue, or only such that start. Default: both.",
    ),
]


def mamba(
    model: Models = None,
    sequences: Sequences = None,
    tokens: Tokens = None,
    initial_states: InitialStates = None,
    rounds: Rounds = _ROUNDS,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare the steps on the cases named; HELP is what a user reads."""
    check_at_least("--rounds", rounds, 2)
    check_output(output)
    check_settings()
    cases = benchmark("mamba.cases").select(
        model or (), sequences or (), tokens or (), initial_states
    )
    document = _measure(cases, rounds, output)
    give(document, show, as_json, output)


def quick() -> None:
    """Show one case, as part of ``launchkit bench``."""
    check_settings()
    show(_measure(benchmark("mamba.cases").QUICK, _ROUNDS, None))


def _measure(cases: Sequence[Any], rounds: int, output: Path | None) -> dict[str, Any]:
    bench = benchmark("mamba.bench")
    with counts() as progress:
        tasks = {
            "prepared": progress.add_task("cases compiled", total=len(cases)),
            "timed": progress.add_task("cases timed", total=len(cases)),
        }
        measured: dict[str, Any] = bench.measure(
            cases,
            rounds,
            report=lambda stage, number: progress.advance(tasks[stage], number),
            finished=keeper(output, "cases"),
        )
    return measured
