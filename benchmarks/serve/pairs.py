"""Runs of ``launchkit bench serve`` in pairs, one of each variant, and what differed between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from launchkit.benchmarks.serve.engine import Engine, Served
from launchkit.benchmarks.serve.figures import Run, figures
from launchkit.benchmarks.serve.model import LayerOps
from launchkit.benchmarks.serve.requests import Workload, draw_requests, every_kind
from launchkit.benchmarks.serve.variants import VARIANTS


@dataclass
class Pairs:
    """What pairs of runs of one workload gave. The first pair warms up: it is only compared."""

    runs: dict[str, list[Run]] = field(default_factory=lambda: {name: [] for name in VARIANTS})
    """By variant, the figures of each pair but the first."""
    steps: list[int] = field(default_factory=list)
    """Steps that each of these pairs took."""
    output_tokens: list[int] = field(default_factory=list)
    scans: dict[str, int] = field(default_factory=dict)
    """Scans of launchkit's measured runs, by how they went."""
    compared: int = 0
    """Pairs whose tokens and states were compared; 0 where nothing is executed."""
    difference: dict[str, Any] | None = None
    """The first one, or None."""

    @property
    def repeats(self) -> int:
        """Pairs that were measured."""
        return len(self.steps)


def run_order(pair: int) -> tuple[str, ...]:
    """Return the variants in the order in which a pair runs them: A B, then B A, and so on."""
    return VARIANTS if pair % 2 == 0 else VARIANTS[::-1]


def compile_all(engine: Engine, ops: Mapping[str, LayerOps], workload: Workload) -> None:
    """Serve every kind of batch of a workload once with each variant, so that all is compiled.

    Neither variant must pay in a measured run for a kernel that the other launches as well.
    """
    for small, requests in every_kind(workload):
        for name in VARIANTS:
            engine.serve(small, requests, ops[name])


def run_pairs(
    engine: Engine,
    ops: Mapping[str, LayerOps],
    workload: Workload,
    repeats: int,
    seed: int,
    may_go_on: Callable[[], bool] = lambda: True,
    advance: Callable[[], None] = lambda: None,
) -> Pairs:
    """Serve ``repeats`` drawings of a workload with both variants, behind one to warm up.

    Each pair has requests of its own, the same for both. ``may_go_on`` is asked before each pair;
    ``advance`` is called after each run.
    """
    found, before = Pairs(), ops[VARIANTS[1]].scans()
    for number in range(-1, repeats):
        if not may_go_on():
            break
        vocabulary = engine.stack.model.vocabulary
        requests = draw_requests(workload, vocabulary, seed + 1 + number)
        served = {}
        for name in run_order(number):
            served[name] = engine.serve(workload, requests, ops[name])
            advance()
        if engine.states.executes:
            found.compared += 1
            found.difference = found.difference or difference(number, served)
        if number < 0:
            before = ops[VARIANTS[1]].scans()
        else:
            _keep(found, served)
    after = ops[VARIANTS[1]].scans()
    found.scans = {way: count - before[way] for way, count in after.items()}
    return found


def _keep(found: Pairs, served: Mapping[str, Served]) -> None:
    for name, one in served.items():
        found.runs[name].append(figures(one))
    first = served[VARIANTS[0]]
    found.steps.append(len(first.prefill_steps_ns) + len(first.decode_steps_ns))
    found.output_tokens.append(sum(map(len, first.tokens)))


def difference(pair: int, served: Mapping[str, Served]) -> dict[str, Any] | None:
    """Return where the first token differs between the variants, else the first layer's states.

    ``pair``: -1 is the one that warms up. None: nothing differs.
    """
    ours, theirs = served[VARIANTS[1]], served[VARIANTS[0]]
    for request, answers in enumerate(zip(ours.tokens, theirs.tokens, strict=True)):
        if answers[0] != answers[1]:
            place = next(
                at for at in range(max(map(len, answers)))
                if answers[0][at : at + 1] != answers[1][at : at + 1]
            )  # fmt: skip
            return {"what": "token", "pair": pair, "request": request, "place": place}
    layers = [n for n, pair_ in enumerate(zip(ours.states, theirs.states, strict=True))
              if pair_[0] != pair_[1]]  # fmt: skip
    return {"what": "states", "pair": pair, "layer": layers[0]} if layers else None
