"""``launchkit bench serve``: tokens per second and latencies of a served stack, by launch path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch

from launchkit import clock
from launchkit.benchmarks.failures import named
from launchkit.benchmarks.mode import measuring, one_thread, refuse_launch_hooks
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels
from launchkit.benchmarks.serve.asked import Asked
from launchkit.benchmarks.serve.document import described, empty_document
from launchkit.benchmarks.serve.engine import make_engine
from launchkit.benchmarks.serve.pairs import compile_all, run_pairs
from launchkit.benchmarks.serve.variants import VARIANTS, Baseline, Launchkit


def measure(
    asked: Asked,
    began: Callable[[int], None] = lambda _runs: None,
    advance: Callable[[], None] = lambda: None,
    finished: Callable[[dict[str, Any]], None] = lambda _document: None,
) -> dict[str, Any]:
    """Serve what is asked for with both variants, and return the result as JSON values.

    Runs on the current CUDA device. Without one the same loop runs on the host-only driver with
    small multiplications beside the launches; tokens mean nothing there, and are not compared.
    Configs are fixed; nothing is tuned and nothing stored.

    Args:
        asked: what is measured.
        began: called once with the number of runs to come.
        advance: called after each run.
        finished: called after each case with the result so far, whose ``complete`` is false.

    Raises:
        UsageError: numbers that cannot be served, or a launch hook of another tool is installed.
        LaunchkitError: a case could not be compiled or measured; it is named.
    """
    asked.check()
    refuse_launch_hooks()
    deadline_ns = clock.now_ns() + asked.time_limit_s * 1e9
    with measuring() as cuda, pinned(), nullcontext() if cuda else one_thread():
        workloads = asked.workloads(cuda)
        began(len(asked.models) * len(workloads) * (1 + asked.repeats) * len(VARIANTS))
        document = empty_document(asked, cuda)
        for model in asked.models:
            for case in _cases(model, asked, cuda, deadline_ns, advance):
                for part, rows in case.items():
                    document[part] += rows
                document["ok"] = all(each["difference"] is None for each in document["cases"])
                finished(document)
    return {**document, "complete": not document["skipped"]}


def _cases(
    name: str, asked: Asked, cuda: bool, deadline_ns: float, advance: Callable[[], None]
) -> Iterator[dict[str, list[Any]]]:
    """Yield what each workload of a model adds to the document."""
    workloads = asked.workloads(cuda)
    with named(name):
        model = asked.model(name, cuda)
        widest = max(workloads, key=lambda each: each.concurrency)
        engine = make_engine(model, widest, "cuda" if cuda else "cpu", cuda, seed=asked.seed)
        ops = {
            "baseline": Baseline(engine.states, triton_kernels()),
            "launchkit": Launchkit(engine.states),
        }
        compile_all(engine, ops, widest)
    for workload in workloads:
        case = f"{name}/C{workload.concurrency}"
        with named(case):
            pairs = run_pairs(
                engine, ops, workload, asked.repeats, asked.seed,
                lambda: clock.now_ns() < deadline_ns, advance,
            )  # fmt: skip
        yield described(case, engine, workload, asked, pairs)
    del engine, ops
    if cuda:
        torch.cuda.empty_cache()
