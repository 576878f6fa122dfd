"""``launchkit bench serve``: tokens per second and latencies of a served stack, by launch path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from launchkit import clock, hostonly
from launchkit.benchmarks import machine
from launchkit.benchmarks.launch_variants import refuse_launch_hooks
from launchkit.benchmarks.mamba_failures import named
from launchkit.benchmarks.mode import keep_freed_memory, measuring
from launchkit.benchmarks.pinned_configs import PINNED_CONFIGS, pinned, triton_kernels
from launchkit.benchmarks.serving_engine import BLOCK_SIZE, Engine, make_engine
from launchkit.benchmarks.serving_figures import ratios, summary
from launchkit.benchmarks.serving_model import ATTENTION_EVERY, FEED_FORWARD, ServingModel
from launchkit.benchmarks.serving_pairs import Pairs, run_pairs
from launchkit.benchmarks.serving_requests import Workload
from launchkit.benchmarks.serving_states import GROUPS
from launchkit.benchmarks.serving_variants import VARIANTS, Baseline, Launchkit
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.errors import UsageError

LEAST_REPEATS = 3


@dataclass(frozen=True)
class Asked:
    """What is to be measured. None: what ``DEFAULTS`` has for the mode."""

    models: tuple[str, ...] = ("Nemotron-3-Nano",)
    layers: int | None = None
    """Mamba layers; by default the model's own number, and 2 without a GPU."""
    concurrency: tuple[int, ...] = ()
    requests: int | None = None
    """Of each run; by default two for each that runs at a time, and at least 8."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    rate: float | None = None
    """As in ``Workload``."""
    repeats: int = 4
    seed: int = 0
    time_limit_s: float = 420.0
    """Nothing new is begun after it."""

    def check(self) -> None:
        """Raise UsageError for what cannot be measured."""
        if self.repeats < LEAST_REPEATS:
            raise UsageError(
                f"repeats must be at least {LEAST_REPEATS}, not {self.repeats}. Give more."
            )
        unknown = [model for model in self.models if model not in MAMBA_SHAPES]
        if unknown or not self.models:
            found = f"no model named {', '.join(unknown)}" if unknown else "no model is given"
            raise UsageError(f"{found}. There are: {', '.join(MAMBA_SHAPES)}.")
        if self.layers is not None and self.layers < 1:
            raise UsageError(f"layers must be at least 1, not {self.layers}. Give more.")
        if not self.time_limit_s > 0:
            raise UsageError(f"the time limit must be above 0 s, not {self.time_limit_s}.")
        if self.seed < 0:
            raise UsageError(f"the seed must be at least 0, not {self.seed}.")
        for cuda in (False, True):
            for workload in self.workloads(cuda):
                workload.check()

    def workloads(self, cuda: bool) -> list[Workload]:
        """Return what is served, by concurrency."""
        concurrency, input_tokens, output_tokens, least = DEFAULTS[cuda]
        return [
            Workload(
                concurrency=count,
                requests=max(least, 2 * count) if self.requests is None else self.requests,
                input_tokens=input_tokens if self.input_tokens is None else self.input_tokens,
                output_tokens=output_tokens if self.output_tokens is None else self.output_tokens,
                rate=self.rate,
            )
            for count in dict.fromkeys(self.concurrency or concurrency)
        ]


DEFAULTS = {True: ((1, 4, 16, 64, 128), 512, 32, 8), False: ((1, 4), 40, 4, 4)}
"""By whether there is a GPU: concurrency, input and output tokens, least number of requests."""

_VOCABULARY = {True: 32768, False: 256}
_HIDDEN_WITHOUT_GPU = 16


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
    deadline_ns = clock.now_ns() + int(asked.time_limit_s * 1e9)
    with measuring() as cuda, pinned():
        workloads = asked.workloads(cuda)
        began(len(asked.models) * len(workloads) * (1 + asked.repeats) * len(VARIANTS))
        document = _empty_document(asked, cuda)
        for model in asked.models:
            for case in _cases(model, asked, cuda, deadline_ns, advance):
                for part, rows in case.items():
                    document[part] += rows
                document["ok"] = all(each["difference"] is None for each in document["cases"])
                finished(document)
    return {**document, "complete": not document["skipped"]}


def _empty_document(asked: Asked, cuda: bool) -> dict[str, Any]:
    workload = asked.workloads(cuda)[0]
    return {
        "mode": "cuda" if cuda else hostonly.LABEL,
        "machine": machine.facts(),
        "method": {
            "repeats": asked.repeats,
            "order": "ABBA",
            "warm_up": "a run of each variant, discarded",
            "seed": asked.seed,
            "time_limit_s": asked.time_limit_s,
            "arrivals": "closed loop" if asked.rate is None else "Poisson",
            "rate_per_step": asked.rate,
            "input_tokens": workload.input_tokens,
            "output_tokens": workload.output_tokens,
            "step_tokens": workload.step_tokens,
            "block_size": BLOCK_SIZE,
            "groups": GROUPS,
            "vocabulary": _VOCABULARY[cuda],
            "feed_forward": FEED_FORWARD,
            "attention_every": ATTENTION_EVERY,
            "cuda_graphs": False,
            "configs": {name: str(pair[0]) for name, pair in PINNED_CONFIGS.items()},
            "keep_freed_memory": not cuda and keep_freed_memory(),
            "separate_states": "whole states" if cuda else "one element of each state",
        },
        "complete": False,
        "ok": True,
        "cases": [],
        "rows": [],
        "ratios": [],
        "skipped": [],
    }


def _cases(
    name: str, asked: Asked, cuda: bool, deadline_ns: int, advance: Callable[[], None]
) -> Iterator[dict[str, list[Any]]]:
    """Yield what each workload of a model adds to the document."""
    workloads = asked.workloads(cuda)
    with named(name):
        model = _model(name, asked.layers, cuda)
        widest = max(workloads, key=lambda each: each.concurrency)
        engine = make_engine(model, widest, "cuda" if cuda else "cpu", cuda, seed=asked.seed)
    ops = {
        "baseline": Baseline(engine.states, triton_kernels()),
        "launchkit": Launchkit(engine.states),
    }
    for workload in workloads:
        case = f"{name}/C{workload.concurrency}"
        with named(case):
            pairs = run_pairs(
                engine, ops, workload, asked.repeats, asked.seed,
                lambda: clock.now_ns() < deadline_ns, advance,
            )  # fmt: skip
        yield _described(case, engine, workload, asked, pairs)
    del engine, ops
    if cuda:
        torch.cuda.empty_cache()


def _model(name: str, layers: int | None, cuda: bool) -> ServingModel:
    shape = MAMBA_SHAPES[name]
    inner = shape.nheads * shape.headdim
    return ServingModel(
        shape=shape,
        layers=layers or (shape.layers if cuda else 2),
        hidden=inner // 2 if cuda else _HIDDEN_WITHOUT_GPU,
        vocabulary=_VOCABULARY[cuda],
    )


def _described(
    case: str, engine: Engine, workload: Workload, asked: Asked, pairs: Pairs
) -> dict[str, list[Any]]:
    if pairs.repeats < LEAST_REPEATS and pairs.difference is None:
        reason = f"{pairs.repeats} of {asked.repeats} repeats within {asked.time_limit_s:g} s"
        return {"skipped": [{"case": case, "reason": reason}]}
    model = engine.stack.model
    equal = None if pairs.compared == 0 else pairs.difference is None
    described = {
        "case": case, "model": model.shape.model, "layers": model.layers, "hidden": model.hidden,
        "concurrency": workload.concurrency, "requests": workload.requests,
        "repeats": pairs.repeats, "steps": pairs.steps, "output_tokens": pairs.output_tokens,
        "tokens_and_states_equal": equal, "difference": pairs.difference,
    }  # fmt: skip
    rows = [{"case": case, "variant": name, **summary(pairs.runs[name])} for name in VARIANTS]
    found = {} if pairs.difference else ratios(pairs.runs["launchkit"], pairs.runs["baseline"])
    return {
        "cases": [described],
        "rows": rows,
        "ratios": [
            {"case": case, "figure": figure, "of": "launchkit", "over": "baseline", **ratio}
            for figure, ratio in found.items()
        ],
    }
