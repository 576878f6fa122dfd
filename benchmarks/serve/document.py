"""The result of ``launchkit bench serve`` as JSON values."""

from __future__ import annotations

from typing import Any

from launchkit.benchmarks import machine
from launchkit.benchmarks.mode import keep_freed_memory
from launchkit.benchmarks.pinned_configs import PINNED_CONFIGS
from launchkit.benchmarks.serve.asked import LEAST_REPEATS, VOCABULARY, Asked
from launchkit.benchmarks.serve.engine import BLOCK_SIZE, Engine
from launchkit.benchmarks.serve.figures import ratios, summary
from launchkit.benchmarks.serve.model import ATTENTION_EVERY, FEED_FORWARD
from launchkit.benchmarks.serve.pairs import Pairs
from launchkit.benchmarks.serve.requests import Workload
from launchkit.benchmarks.serve.states import GROUPS
from launchkit.benchmarks.serve.variants import VARIANTS


def empty_document(asked: Asked, cuda: bool) -> dict[str, Any]:
    """Return the result before anything is measured."""
    workload = asked.workloads(cuda)[0]
    return {
        **machine.measured_on(cuda),
        "method": {
            "repeats": asked.repeats,
            "order": "ABBA",
            "warm_up": "every kind of batch, then a run of each variant, discarded",
            "seed": asked.seed,
            "time_limit_s": asked.time_limit_s,
            "arrivals": "closed loop" if asked.rate is None else "Poisson",
            "rate_per_step": asked.rate,
            "input_tokens": workload.input_tokens,
            "output_tokens": workload.output_tokens,
            "step_tokens": workload.step_tokens,
            "block_size": BLOCK_SIZE,
            "groups": GROUPS,
            "vocabulary": VOCABULARY[cuda],
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


def described(
    case: str, engine: Engine, workload: Workload, asked: Asked, pairs: Pairs
) -> dict[str, list[Any]]:
    """Return what a case adds to the result, by part."""
    if pairs.repeats < LEAST_REPEATS and pairs.difference is None:
        reason = f"{pairs.repeats} of {asked.repeats} repeats within {asked.time_limit_s:g} s"
        return {"skipped": [{"case": case, "reason": reason}]}
    model = engine.stack.model
    equal = None if pairs.compared == 0 else pairs.difference is None
    case_facts = {
        "case": case, "model": model.shape.model, "layers": model.layers, "hidden": model.hidden,
        "concurrency": workload.concurrency, "requests": workload.requests,
        "repeats": pairs.repeats, "steps": pairs.steps, "output_tokens": pairs.output_tokens,
        "scans": pairs.scans,
        "tokens_and_states_equal": equal, "difference": pairs.difference,
    }  # fmt: skip
    rows = [{"case": case, "variant": name, **summary(pairs.runs[name])} for name in VARIANTS]
    found = {} if pairs.difference else ratios(pairs.runs["launchkit"], pairs.runs["baseline"])
    return {
        "cases": [case_facts],
        "rows": rows,
        "ratios": [
            {"case": case, "figure": figure, "of": "launchkit", "over": "baseline", **ratio}
            for figure, ratio in found.items()
        ],
    }
