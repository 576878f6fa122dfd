"""``launchkit bench predict``: what-if predictions against steps that were then run. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from launchkit.errors import UsageError
from launchkit.tools.bench_output import (
    Output,
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

_LEGEND = (
    "A step: every layer's scan and write-back of final states, then a wait for the GPU. The "
    "baseline, Triton's Autotuner, is captured with Nsight Systems, and what `launchkit report` "
    "predicts of it stands beside the step that is then run, captured too. Predictions change the "
    "launches of the scan alone; of cached ones (launch_autotuned) there are two: all Python above "
    "2 µs a launch saved, and what `bench launch` says that it saves. error: predicted ÷ measured - "
    "1; warm: the same where the host code that stays is taken to be a quarter faster; hidden: µs "
    "that the host saves and the GPU takes as long anyway; share: predicted ÷ baseline; plain: "
    "measured ÷ baseline, without a profiler. Medians over rounds, each with a baseline of its own."
)
_AGREEMENT = (
    "recorder: profile_launches in the same process, beside the NVTX ranges that the capture has "
    "of the same calls."
)

Model = Annotated[str, typer.Option(help="As of `bench mamba`.")]
Layers = Annotated[int | None, typer.Option(help="Layers of a step. Default: the model's own.")]
Turns = Annotated[int, typer.Option("--rounds", help="Turns of each variant.")]
Steps = Annotated[int, typer.Option(help="Steps of a turn; the first does not count.")]
Keep = Annotated[Path | None, typer.Option(help="A new directory in which the captures are left.")]


def predict(
    model: Model = "Nemotron-3-Nano",
    layers: Layers = None,
    rounds: Turns = 20,
    steps: Steps = 5,
    keep: Keep = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Hold what-if predictions, and the recorder, to captured steps of Mamba2 layers."""
    check_at_least("--rounds", rounds, 1)
    check_at_least("--steps", steps, 2)
    if layers is not None:
        check_at_least("--layers", layers, 1)
    if keep is not None and keep.exists():
        raise UsageError(f"{keep} exists. Give a new directory with --keep.", keep=str(keep))
    check_output(output)
    check_settings()
    bench = benchmark("predict.bench")
    with counted("parts done", bench.parts()) as advance:
        document = bench.measure(
            model, layers, rounds, steps, keep, advance, keeper(output, "batches")
        )
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench predict``: what was run, predicted and recorded."""
    console = wide_console()
    method = document["method"]
    layers = f"{method['layers']} layers of {method['model']}"
    print_title(console, f"µs of a step, {layers} ({where(document)})")
    table = plain_table(
        ("launches", "predicted", "measured", "error", "warm", "hidden", "share", "plain"),
        left=("launches",),
    )
    for case in dict.fromkeys(row["case"] for row in document["steps"]):
        steps = {row["variant"]: row for row in document["steps"] if row["case"] == case}
        first = _whole(steps["baseline"]["captured_us"])
        name = case.removeprefix(f"{method['model']}/")
        table.add_row(f"{name}, baseline", "", first, "", "", "", "", "")
        rows = [row for row in document["predictions"] if row["case"] == case]
        for row in rows:
            table.add_row(
                f" {_named(row)}", _whole(row["predicted_us"]), _whole(row["measured_us"]),
                _percent(row["error"]), _percent(row["warm_error"]), _whole(row["hidden_us"]),
                _share(row["predicted_share"]), _share(steps[row["variant"]]["plain_share"]), end_section=row is rows[-1],
            )  # fmt: skip
    console.print(table)
    print_text(console, _LEGEND)
    _show_agreement(console, document, method["model"])


def _show_agreement(console: Any, document: dict[str, Any], model: str) -> None:
    table = plain_table(
        ("batch", "steps", "op", "calls", "recorder", "NVTX", "ratio"),
        left=("batch", "steps", "op"),
    )
    for row in document["agreement"]:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        table.add_row(
            row["case"].removeprefix(f"{model}/"), row["variant"], row["op"],
            f"{row['nvtx_calls']:,}", _whole(row["recorder_us"]), _whole(row["nvtx_us"]), ratio,
        )  # fmt: skip
    console.print()
    console.print(table)
    print_text(console, _AGREEMENT)


def _named(row: dict[str, Any]) -> str:
    """Return a change's name; of the two of ``launch_autotuned``, what it takes off a launch."""
    if row["change"] != "CachedLaunches":
        return str(row["variant"])
    saves_ns = row["parameters"]["saves_ns"]
    return "cached, all" if saves_ns is None else f"cached, {saves_ns / 1e3:.0f} µs"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.0%}"
