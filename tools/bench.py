"""``launchkit bench``: what a launch costs on the host. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from launchkit import jsonio, settings
from launchkit.errors import UsageError

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

_WIDTH = 80

_FORMS = {"positional": "f(a, b)", "keywords": "f(a=a)", "kwargs": "f(**kw)"}
_LEGEND = (
    "Medians. Autotuner, JIT: Triton's own launches; cache: a plain config cache in front of "
    "kernel.fn[grid]. Calls: positional f(a, b) and literal keywords f(a=a) with a tuple grid, "
    "f(**kw) with a callable grid. ratio: launchkit ÷ Autotuner, same call; smaller is better."
)
_DRIVER_LEGEND = " driver: cuLaunchKernelEx alone, in a C loop."
CASE_NAMES = "noop_0, noop_19, noop_46, state_passing"

Cases = Annotated[
    list[str] | None,
    typer.Option("--case", help=f"One of {CASE_NAMES}; may be given several times. Default: all."),
]
Operators = Annotated[
    list[str] | None,
    typer.Option("--operator", help="May be given several times. Default: all."),
]
Rounds = Annotated[int, typer.Option(help="How often each row is timed, at least 2.")]
Launches = Annotated[int, typer.Option(help="Launches per round and row.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON here.")]


@app.callback()
def main(context: typer.Context) -> None:
    """Measure host microseconds per launch, on a GPU or without one.

    Alone it is `bench launch`, which has the options.
    """
    if context.invoked_subcommand is None:
        launch()


@app.command("launch")
def launch(
    case: Cases = None,
    rounds: Rounds = 15,
    launches: Launches = 500,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare launches of one kernel: Triton's, a plain config cache's and launchkit's."""
    _check_output(output)
    _check_settings()
    launch_overhead = _benchmark("launch_overhead")
    names = tuple(dict.fromkeys(case or launch_overhead.CASES))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("compiling, then timing", total=rounds)
        document = launch_overhead.measure(
            names, rounds, launches, advance=lambda: progress.advance(task)
        )
    _emit(document, as_json, output, show)


@app.command("libraries")
def libraries(
    operator: Operators = None,
    rounds: Annotated[int, typer.Option(help="How often each row is timed.")] = 7,
    calls: Annotated[int, typer.Option(help="Calls of the operator per round.")] = 50,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare operators of liger-kernel and flash-linear-attention with and without install()."""
    _check_output(output)
    _check_settings()
    measure = _benchmark("libraries").measure
    options: dict[str, Any] = {"operators": tuple(dict.fromkeys(operator))} if operator else {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("compiling, then timing", total=len(operator or []) or None)
        document = measure(
            rounds=rounds, calls=calls, advance=lambda: progress.advance(task), **options
        )
    _emit(document, as_json, output, show_libraries)


def _emit(
    document: dict[str, Any], as_json: bool, output: Path | None, table: Callable[..., None]
) -> None:
    data = jsonio.dumps(document)
    if as_json:
        typer.echo(data, nl=False)
    else:
        table(document)
    if output is not None:
        _write(output, data)


def _benchmark(name: str) -> Any:
    # Imported here: torch takes seconds, and other commands do not need it.
    try:
        return importlib.import_module(f"launchkit.benchmarks.{name}")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the benchmark needs torch and Triton: {error}. Install launchkit-triton[torch]."
        ) from error


def _check_settings() -> None:
    """Refuse to measure launchkit while it is told to be something else."""
    current = settings.current()
    if current.disable or current.verify:
        raise UsageError(
            "LAUNCHKIT_DISABLE or LAUNCHKIT_VERIFY is set, and the figures would be those of plain "
            "Triton or of the checks. Unset it to measure launchkit."
        )
    if current.install:
        raise UsageError(
            "LAUNCHKIT_INSTALL is set, and Triton's own launches would be launchkit's. Unset it to "
            "compare them."
        )


def _check_output(output: Path | None) -> None:
    """Refuse before measuring what cannot be written after it."""
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise UsageError(f"{output} cannot be written. Give a file in a directory that exists.")


def _write(output: Path, data: bytes) -> None:
    try:
        output.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"the JSON was not written: {error}. Give another file, or print it with --json."
        ) from error


def show(document: dict[str, Any]) -> None:
    """Print a benchmark's result as a table: a line per case and call form."""
    console = Console()
    # A narrower terminal wraps the lines, rich would cut the figures.
    console.width = max(console.width, _WIDTH)
    rows = {(r["case"], r["call_form"], r["variant"]): r["median_us"] for r in document["rows"]}
    rows |= {
        (r["case"], form, "floor"): r["median_us"]
        for r in document["rows"]
        if r["variant"] == "floor"
        for form in _FORMS
    }
    shown = {key: label for key, label in _VARIANTS.items() if any(v == key for *_, v in rows)}
    # Without edges and double padding it fits into _WIDTH columns.
    table = Table(
        title=f"host µs per launch ({_where(document)})",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    for heading in ("kernel/args", "call", *shown.values(), "ratio"):
        left = heading in ("kernel/args", "call")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    labels = {r["case"]: f"{_KERNEL.sub('', r['case'])}/{r['args']}" for r in document["rows"]}
    last = ""
    for ratio in document["ratios"]:
        if ratio["over"] != "triton_autotuner":
            continue
        case, form = ratio["case"], ratio["call_form"]
        cells = [_cell(rows.get((case, form, variant))) for variant in shown]
        name = "" if case == last else labels[case]
        table.add_row(
            name, _FORMS[form], *cells, f"{ratio['ratio']:.2f}", end_section=form == "kwargs"
        )
        last = case
    console.print(table)
    legend = _LEGEND + (_DRIVER_LEGEND if "floor" in shown else "")
    console.print(legend, highlight=False, markup=False)


def _cell(median_us: float | None) -> str:
    return "-" if median_us is None else f"{median_us:.1f}"


def _where(document: dict[str, Any]) -> str:
    facts = document["machine"]
    place = facts["gpu"] or f"{document['mode']}, so without the CUDA driver's own cost"
    return f"{place}; Triton {facts['triton']}"


def show_libraries(document: dict[str, Any]) -> None:
    """Print the benchmark of other people's operators as a table: a line per operator."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    table = Table(
        title=f"host µs per call, Triton → launchkit ({_where(document)})",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for heading in ("operator", "launches", "in all", "in launches", "ratio", "equal"):
        table.add_column(heading, justify="left" if heading == "operator" else "right")
    for row in document["rows"]:
        table.add_row(
            row["operator"],
            str(row["launches"]),
            f"{row['host_us_before']:.0f} → {row['host_us_after']:.0f}",
            f"{row['launch_us_before']:.0f} → {row['launch_us_after']:.0f}",
            f"{row['launch_ratio']:.2f}",
            {True: "yes", False: "no"}.get(row.get("equal"), "-"),
        )
    console.print(table)
    console.print(
        "Forward and backward, medians, one config per kernel. in launches: the part spent in "
        "kernel[grid](...); ratio: of that. equal: outputs and gradients have the same bits.",
        highlight=False,
        markup=False,
    )
