"""``launchkit bench costs``: what launchkit costs a program beside its launches. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Any

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

_LEGEND = (
    "Medians. Imports are CPU time in fresh processes; the launch path beside torch and Triton, "
    "which are imported already. First calls: of a kind whose kernel is compiled. Plans: bytes that each "
    "kind leaves behind. Ranges are annotate's; off: no tool and no recording; sampled: one "
    "launch of a thousand is recorded."
)
_PARTS = 4


def costs(rounds: Rounds = 15, as_json: AsJson = False, output: Output = None) -> None:
    """Measure imports, first launches, memory of plans, ranges and recording, without a GPU."""
    check_at_least("--rounds", rounds, 2)
    check_output(output)
    check_settings()
    with counted("parts measured", _PARTS) as advance:
        document = benchmark("costs").measure(rounds, advance=advance)
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print a result as a table: a line for each thing that costs."""
    console = wide_console()
    print_title(console, f"what else launchkit costs ({where(document)})")
    table = plain_table(("what", "median", "p90"), left=("what",))
    for row in document["rows"]:
        if "bytes" in row:
            table.add_row(row["what"], f"{row['bytes']:,} bytes", "")
        else:
            table.add_row(row["what"], _time(row["median_us"]), _time(row["p90_us"]))
    console.print(table)
    print_text(console, _LEGEND)


def _time(time_us: float) -> str:
    return f"{time_us / 1000:.1f} ms" if time_us >= 1000 else f"{time_us:.3g} µs"
