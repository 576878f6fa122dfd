"""``launchkit bench``: what a launch costs on the host. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from launchkit.tools import (
    bench_copy,
    bench_costs,
    bench_differential,
    bench_fuzz,
    bench_import,
    bench_indices,
    bench_layer,
    bench_libraries,
    bench_mamba,
    bench_predict,
    bench_serve,
    bench_service,
    bench_soak,
    bench_store,
    bench_warm,
)
from launchkit.tools.bench_output import (
    Output,
    Rounds,
    benchmark,
    check_at_least,
    check_settings,
    give,
    plain_table,
    print_title,
    where,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output

app = typer.Typer(invoke_without_command=True)
_VARIANTS = {
    "triton_autotuner": "Autotuner",
    "config_cache": "cache",
    "triton_jit": "JIT",
    "floor": "driver",
    "launchkit": "launchkit",
}

_KERNEL = re.compile(r"_\d+$")
"""A case's name ends with its number of arguments where it has siblings."""

_FORMS = {
    "positional": "f(a, b)",
    "keywords": "f(a=a)",
    "kwargs": "f(**kw)",
    "declared": "+ grid()",
    "frozen": "frozen",
}
_LEGEND = (
    "Medians. Autotuner, JIT: Triton's own launches; cache: a plain config cache in front of "
    "kernel.fn[grid]. Calls: positional f(a, b) and literal keywords f(a=a) with a tuple grid, "
    "f(**kw) with a callable grid, + grid() with a declared one; frozen: a handle that takes the "
    "tensors. ratio: launchkit ÷ Autotuner, same call; smaller is better."
)
_DRIVER_LEGEND = " driver: cuLaunchKernelEx alone, in a C loop."
CASE_NAMES = "noop_0, noop_19, noop_46, state_passing"

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", help=f"One of {CASE_NAMES}; may be given several times. Default: all."),
]
Launches = Annotated[int, typer.Option(help="Launches per round and row.")]


@app.callback()
def main(context: typer.Context) -> None:
    """Measure host microseconds per launch and per Mamba2 layer, on a GPU or without one.

    Alone it is `bench launch` and then one case of `bench mamba`, which have the options.
    """
    if context.invoked_subcommand is None:
        launch()
        typer.echo()
        bench_mamba.quick()


def launch(
    case: Cases = None,
    rounds: Rounds = 15,
    launches: Launches = 500,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare launches of one kernel: Triton's, a plain config cache's and launchkit's."""
    check_at_least("--rounds", rounds, 2)
    check_at_least("--launches", launches, 1)
    check_output(output)
    check_settings()
    bench = benchmark("launch.bench")
    names = tuple(dict.fromkeys(case or bench.CASES))
    with counted("rounds timed", rounds) as advance:
        document = bench.measure(names, rounds, launches, advance=advance)
    give(document, show, as_json, output)


_PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Launches": {
        "launch": launch,
        "mamba": bench_mamba.mamba,
        "layer": bench_layer.layer,
        "libraries": bench_libraries.libraries,
        "serve": bench_serve.serve,
        "warm": bench_warm.warm,
        "predict": bench_predict.predict,
        "costs": bench_costs.costs,
    },
    "Kernels": {"copy": bench_copy.copy, "indices": bench_indices.indices},
    "Stores, service, captures": {
        "store": bench_store.store,
        "service": bench_service.service,
        "import": bench_import.import_,
    },
    "Proof": {
        "differential": bench_differential.differential,
        "fuzz": bench_fuzz.fuzz,
        "soak": bench_soak.soak,
    },
}
_HELP = {"mamba": bench_mamba.HELP, "copy": bench_copy.HELP, "serve": bench_serve.HELP}

for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, help=_HELP.get(_name), rich_help_panel=_panel)(_command)


def show(document: dict[str, Any]) -> None:
    """Print a benchmark's result as a table: a line per case and call form."""
    console = wide_console()
    rows = {(r["case"], r["call_form"], r["variant"]): r["median_us"] for r in document["rows"]}
    rows |= {
        (r["case"], form, "floor"): r["median_us"]
        for r in document["rows"]
        if r["variant"] == "floor"
        for form in _FORMS
    }
    shown = {key: label for key, label in _VARIANTS.items() if any(v == key for *_, v in rows)}
    print_title(console, f"host µs per launch ({where(document)})")
    headings = ("kernel/args", "call", *shown.values(), "ratio")
    table = plain_table(headings, left=("kernel/args", "call"))
    labels = {r["case"]: f"{_KERNEL.sub('', r['case'])}/{r['args']}" for r in document["rows"]}
    over = {
        (r["case"], r["call_form"]): f"{r['ratio']:.2f}"
        for r in document["ratios"]
        if r["over"] == "triton_autotuner"
    }
    places = [(case, form) for case, form, variant in rows if variant == "launchkit"]
    for place, following in zip(places, [*places[1:], ("", "")], strict=True):
        case, form = place
        cells = [_cell(rows.get((case, form, variant))) for variant in shown]
        name = labels[case] if (case, "positional") == place else ""
        table.add_row(
            name, _FORMS[form], *cells, over.get(place, "-"), end_section=following[0] != case
        )
    console.print(table)
    legend = _LEGEND + (_DRIVER_LEGEND if "floor" in shown else "")
    print_text(console, legend)
    added_us = [row["added_us"] for row in document.get("recording", ())]
    if added_us:
        print_text(
            console,
            f"profile_launches adds {min(added_us):.2f} to {max(added_us):.2f} µs to a launch.",
        )


def _cell(median_us: float | None) -> str:
    return "-" if median_us is None else f"{median_us:.1f}"
