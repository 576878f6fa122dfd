"""What ``launchkit bench serve`` is asked to measure, and what it takes where it is not told."""

from __future__ import annotations

import math
from dataclasses import dataclass

from launchkit.benchmarks.serve.model import ServingModel
from launchkit.benchmarks.serve.requests import Workload, check_between
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.errors import UsageError

LEAST_REPEATS, MOST_REPEATS = 3, 1000
MOST_LAYERS = 1024

DEFAULTS = {True: ((1, 4, 16, 64, 128), 512, 32, 8), False: ((1, 4), 40, 4, 4)}
"""By whether there is a GPU: concurrency, input and output tokens, least number of requests."""

VOCABULARY = {True: 32768, False: 256}
"""Likewise."""

_HIDDEN_WITHOUT_GPU = 16


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
        check_between("repeats", self.repeats, LEAST_REPEATS, MOST_REPEATS)
        unknown = [model for model in self.models if model not in MAMBA_SHAPES]
        if unknown or not self.models:
            found = f"no model named {', '.join(unknown)}" if unknown else "no model is given"
            raise UsageError(f"{found}. Give some of: {', '.join(MAMBA_SHAPES)}.")
        if self.layers is not None:
            check_between("layers", self.layers, 1, MOST_LAYERS)
        if not 0 < self.time_limit_s < math.inf:
            raise UsageError(
                f"the time limit must be a number of seconds above 0, not {self.time_limit_s}. Give "
                "one, for no limit a large one."
            )
        check_between("the seed", self.seed, 0, 2**32 - 1)
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

    def model(self, name: str, cuda: bool) -> ServingModel:
        """Return the sizes of a model's stack; without a GPU its multiplications are small."""
        shape = MAMBA_SHAPES[name]
        inner = shape.nheads * shape.headdim
        return ServingModel(
            shape=shape,
            layers=self.layers or (shape.layers if cuda else 2),
            hidden=inner // 2 if cuda else _HIDDEN_WITHOUT_GPU,
            vocabulary=VOCABULARY[cuda],
        )
