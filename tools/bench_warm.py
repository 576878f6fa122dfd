"""``launchkit bench warm``: how long a fresh process takes to its first prefill. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Any

from launchkit.tools.bench_output import (
    Output,
    benchmark,
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
    "cold": "nothing stored",
    "store": "configs stored",
    "store_disk": "configs stored, compiled on disk",
    "warm": "configs stored, warm()",
    "warm_disk": "configs stored, compiled on disk, warm()",
}
_LEGEND = (
    "Each line is one fresh process with a config store and a Triton disk cache of its own: one "
    "prefill of five SSD kernels with two configs each. warm: launchkit.warm() with the cold "
    "process's manifest. call: the first prefill, to the GPU's end; start: from the process's "
    "start to there, warm() included. bench: benchmark runs; made: kernels that the first prefill "
    "had to compile or to load, in brackets those that Triton's disk cache lacked."
)


def warm(as_json: AsJson = False, output: Output = None) -> None:
    """Compare first prefills of fresh processes: cold, with stored configs, and warmed."""
    check_output(output)
    check_settings()
    bench, keep = benchmark("warm.bench"), keeper(output, "processes")
    with counted("processes measured", len(bench.VARIANTS)) as advance:
        document = bench.measure(advance=advance, finished=keep)
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print a result of ``launchkit bench warm``: a line for each process."""
    console = wide_console()
    print_title(console, f"seconds to a first prefill ({where(document)})")
    process = "process finds, and does"
    table = plain_table((process, "warm", "call", "start", "bench", "made"), left=(process,))
    for row in document["rows"]:
        warm_s = "" if row["warm_s"] is None else f"{row['warm_s']:.2f}"
        table.add_row(
            _VARIANTS[row["variant"]],
            warm_s,
            f"{row['first_call_s']:.3f}",
            f"{row['to_first_call_s']:.1f}",
            str(row["benchmarks"]),
            f"{row['compilations'] + row['tunings']} [{row['compiled']}]",
        )
    console.print(table)
    print_text(console, _LEGEND)
