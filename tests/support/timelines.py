"""A small timeline with a bit of everything, for reports of it."""

from __future__ import annotations

import io
from functools import partial

import handmade
from rich.console import Console

from launchkit.profiling.report.terminal import renderables
from launchkit.profiling.timeline import Source, Timeline

P, T = 10, 11
_range = partial(handmade.rng, process=P, thread=T, domain="launchkit")
_call = partial(handmade.call, process=P, thread=T)
_work = partial(handmade.work, "kernel_a", process=P, full_name="kernel_a(int)")


def small_timeline(**changes) -> Timeline:
    """Two steps of two layers on thread 11, a crossing range, a second thread, one GPU; times in ns."""
    ranges, calls, gpu = [], [], []
    for step in range(2):
        begin = 1_000_000 * step
        ranges.append(_range(f"step {step}", begin, begin + 900_000))
        for layer in range(2):
            at = begin + 100_000 + 400_000 * layer
            ranges.append(_range(f"layer{layer}", at, at + 300_000))
            for number in range(3):
                correlation = 100 * step + 10 * layer + number
                start = at + 20_000 + 80_000 * number
                calls.append(_call("cuLaunchKernel", start, start + 6_000, "launch", correlation))
                gpu.append(_work(start + 9_000, start + 29_000, correlation))
    ranges.append({**_range("crossing", 850_000, 1_050_000), "domain": "other"})
    ranges.append({**_range("</script><b>µ", 5, 10), "thread": 12})
    ranges.append({**_range("never", 1_950_000, 2_000_000), "closed": False})
    ranges.append({**_range("loose", 100, 1_500_000), "kind": "start_end"})
    ranges.append({**_range("a mark", 500, 500), "kind": "mark"})
    calls.append(_call("cudaDeviceSynchronize", 1_880_000, 1_890_000, "sync"))
    tables = {"ranges": ranges, "calls": calls, "gpu": gpu}
    tables["processes"] = [{"process": P, "name": "python", "rank": 3}]
    tables["threads"] = [{"process": P, "thread": T, "name": "main"}]
    tables["devices"] = [{"device": 0, "name": "GPU of a test", "sm_count": 1}]
    source = Source("/somewhere/small.sqlite", "nsys-sqlite", product="A profiler", version="1")
    made = Timeline(source).with_tables(**tables)
    made.counts.add("RUNTIME", read=14, used=13, dropped={"without a start": 1})
    return made.with_tables(**changes) if changes else made


def printed(document, width=220, limit=50) -> str:
    """A report as a terminal of this width shows it."""
    console = Console(file=io.StringIO(), width=width)
    for part in renderables(document, width=width, limit=limit):
        console.print(part)
    return console.file.getvalue()
