"""``launchkit bench store``: what a config store costs as its keys become many. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit.tools.bench_output import (
    Output,
    benchmark,
    check_at_least,
    give,
    plain_table,
    print_title,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output

_LEGEND = (
    "One kernel's keys in a directory, looked up by a new process. put: µs a key, all at once in "
    "the order of a listing, and one more. get: median µs where the file was not read before, "
    "where it was, of a key asked for again, and of an absent one. MiB: what that process grew "
    "by until then, and after all keys were looked up once."
)

Keys = Annotated[
    list[int] | None,
    typer.Option(help="Keys of a store; may be given several times. Default: 100, 10000, 100000."),
]


def store(
    keys: Keys = None,
    lookups: Annotated[int, typer.Option(help="Lookups of each kind.")] = 1000,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Store many keys of one kernel, and look them up: time and memory, by number of keys."""
    check_at_least("--lookups", lookups, 1)
    for count in keys or ():
        check_at_least("--keys", count, 64)
    check_output(output)
    bench = benchmark("store.bench")
    counts = tuple(keys or bench.KEYS)
    with counted("keys stored", sum(set(counts))) as advance:
        document = bench.measure(counts, lookups, advance=advance)
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print a result as a table: a line for each number of keys."""
    console = wide_console()
    facts = document["machine"]
    print_title(console, f"store of one kernel's keys ({facts['cpu']}, Python {facts['python']})")
    table = plain_table(_HEADINGS)
    for row in document["rows"]:
        gets = [f"{row[f'get_{what}_median_us']:.0f}" for what in _GETS]
        table.add_row(
            f"{row['keys']:,}",
            _mib(row["stored_bytes"]),
            f"{row['put_all_us_per_key']:.0f}",
            f"{row['put_one_median_us']:,.0f}",
            f"{row['open_us']:.0f}",
            *gets,
            _mib(row["memory_bytes"]),
            _mib(row["memory_after_all_bytes"]),
        )
    console.print(table)
    print_text(console, _LEGEND)


_HEADINGS = (
    "keys", "MiB\ndisk", "put\nall", "put\none", "open", "get\nfirst", "get\nread", "get\nagain",
    "get\nabsent", "MiB", "MiB\nall",
)  # fmt: skip
_GETS = ("first", "other", "again", "absent")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f}"
