"""The requests of ``launchkit bench serve``: how long they are, what they say, when they arrive.

All of it follows from a seed. Time is counted in steps of the engine, not in seconds: the same
requests meet in the same batches however fast a step is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from launchkit.errors import UsageError

Tokens = npt.NDArray[np.int32]

MOST_TOKENS = 2**24
"""Of all prompts of a run together, or of all answers: a run keeps each with its time."""

_MOST = {
    "concurrency": 2**16, "requests": 10**5, "input_tokens": 10**6, "output_tokens": 10**6,
}  # fmt: skip


def check_between(name: str, value: int, least: int, most: int) -> None:
    """Raise UsageError for a number that is not from ``least`` to ``most``."""
    if not least <= value <= most:
        advice = "Give more." if value < least else "Give less."
        raise UsageError(f"{name} must be from {least} to {most}, not {value}. {advice}")


@dataclass(frozen=True)
class Workload:
    """What is served: so many requests of about these lengths, at most so many at a time."""

    concurrency: int
    """Requests that run at a time, at most."""
    requests: int
    input_tokens: int
    """Mean length of a prompt; from half of it to half as much again."""
    output_tokens: int
    """Mean length of an answer; likewise."""
    rate: float | None = None
    """Arrivals per step of a Poisson process; None: a new request arrives when one has ended, so
    that ``concurrency`` of them are always there."""
    step_tokens: int = 2048
    """Tokens that a step computes at most, of prompts and answers together."""

    def check(self) -> None:
        """Raise UsageError for numbers that cannot be served."""
        for name, most in _MOST.items():
            check_between(name, getattr(self, name), 1, most)
        tokens = self.requests * max(self.input_tokens, self.output_tokens)
        if tokens > MOST_TOKENS:
            raise UsageError(
                f"requests of {tokens} tokens would be drawn, more than {MOST_TOKENS}, all of which "
                "are kept in memory. Give fewer requests or tokens."
            )
        if self.rate is not None and not 1e-6 <= self.rate <= 1e6:
            raise UsageError(
                f"the rate must be from 0.000001 to 1000000 arrivals per step, not {self.rate}. "
                "Give such a one, or none for requests that follow each other."
            )
        if self.step_tokens < self.concurrency:
            raise UsageError(
                f"{self.concurrency} requests need a token each in a step, which has at most "
                f"{self.step_tokens}. Give a concurrency up to that."
            )

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest prompt and of the longest answer that can be drawn."""
        return _longest(self.input_tokens), _longest(self.output_tokens)

    @property
    def most_tokens(self) -> int:
        """Tokens of the longest request, its last one not counted."""
        return sum(self.longest) - 1


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt, and how many tokens are to follow it."""

    number: int
    """Its place in the order of arrival, from 0."""
    arrival_step: int
    """The step before which it arrives; not before its turn in a closed loop."""
    prompt: Tokens
    output_tokens: int


def draw_requests(workload: Workload, vocabulary: int, seed: int) -> list[Request]:
    """Return the requests of a workload in the order of their arrival.

    vocabulary: token ids are below it. The same arguments give the same requests.
    """
    rng = np.random.default_rng(seed)
    count = workload.requests
    prompts = _lengths(rng, workload.input_tokens, count)
    outputs = _lengths(rng, workload.output_tokens, count)
    arrivals = np.zeros(count, dtype=np.int64)
    if workload.rate is not None:
        arrivals = np.floor(rng.exponential(1 / workload.rate, count).cumsum()).astype(np.int64)
    return [
        Request(
            number,
            int(arrivals[number]),
            rng.integers(0, vocabulary, int(prompts[number]), dtype=np.int32),
            int(outputs[number]),
        )
        for number in range(count)
    ]


def every_kind(workload: Workload) -> list[tuple[Workload, list[Request]]]:
    """Return small workloads with every kind of batch that ``workload`` can come to.

    Prompts alone and together, from the start and in pieces, beside requests that decode or not;
    and states that enter another block, if the longest request has more than one.
    """
    prompt, output = workload.longest
    piece = min(prompt // 3 + 1, workload.step_tokens)
    alone = replace(workload, concurrency=1, requests=1, rate=None, step_tokens=piece)
    together = replace(alone, concurrency=3, requests=3, step_tokens=30)
    sizes = ((alone, [prompt], output), (together, [20, 20, 20], 2))
    return [
        (each, [Request(n, 0, np.zeros(size, np.int32), tokens) for n, size in enumerate(prompts)])
        for each, prompts, tokens in sizes
    ]


def _lengths(rng: Any, mean: int, count: int) -> Tokens:
    lengths: Tokens = rng.integers(max(1, mean - mean // 2), _longest(mean) + 1, count)
    return lengths


def _longest(mean: int) -> int:
    return mean + mean // 2
