"""The scheduler of ``launchkit bench serve``: which tokens of which requests a step computes.

Continuous batching: every running request has a token in each step, and what is left of a step's
tokens goes to prompts, in pieces where they do not fit. What is decided depends on the requests
alone, never on the time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launchkit.benchmarks.serve.requests import Request, Workload


@dataclass
class _Running:
    request: Request
    slot: int
    computed: int = 0
    produced: int = 0

    @property
    def prompt_left(self) -> int:
        return max(0, len(self.request.prompt) - self.computed)


@dataclass(frozen=True)
class Row:
    """A request's share of a step."""

    request: Request
    slot: int
    """Its place in per-request tensors, its own while it runs."""
    computed: int
    """Tokens that were computed before this step."""
    tokens: int
    """Tokens of this step, from ``computed`` on."""

    @property
    def decodes(self) -> bool:
        """Whether the step computes the one token that the step before it gave."""
        return self.computed >= len(self.request.prompt)

    @property
    def gives_token(self) -> bool:
        """Whether a token of the answer comes out: not while more of the prompt is left."""
        return self.computed + self.tokens >= len(self.request.prompt)


@dataclass(frozen=True)
class Step:
    """What is computed together."""

    number: int
    arrived: list[Request]
    """Since the step before."""
    rows: list[Row]
    """At least one; those that decode come first."""

    @property
    def decodes(self) -> int:
        """Rows that decode."""
        return sum(row.decodes for row in self.rows)


class Scheduler:
    """Serves the requests of a workload: iterate over its steps, each computed before the next.

    >>> for step in Scheduler(workload, requests):  # doctest: +SKIP
    ...     compute(step)
    """

    def __init__(self, workload: Workload, requests: Sequence[Request]) -> None:
        workload.check()
        self._workload = workload
        self._coming, self._waiting = deque(requests), deque[Request]()
        self._running: list[_Running] = []
        self._free = list(range(workload.concurrency))
        self._now = 0

    def __iter__(self) -> Iterator[Step]:
        while self._coming or self._waiting or self._running:
            step = self._next()
            yield step
            self._computed(step)

    def _next(self) -> Step:
        if not self._running and not self._waiting:
            self._now = max(self._now, self._coming[0].arrival_step)
        arrived = list(self._arrivals())
        self._waiting.extend(arrived)
        decodes = [each for each in self._running if each.prompt_left == 0]
        rows = [Row(each.request, each.slot, each.computed, 1) for each in decodes]
        rows += self._pieces(self._workload.step_tokens - len(rows))
        self._now += 1
        return Step(self._now - 1, arrived, rows)

    def _arrivals(self) -> Iterator[Request]:
        closed = self._workload.rate is None
        there = len(self._running) + len(self._waiting)
        while self._coming and self._coming[0].arrival_step <= self._now:
            if closed and there >= self._workload.concurrency:
                return
            there += 1
            yield self._coming.popleft()

    def _pieces(self, budget: int) -> Iterator[Row]:
        """Yield pieces of prompts, those that were begun first, then those that find a slot."""
        begun = deque(each for each in self._running if each.prompt_left)
        while budget and (begun or (self._waiting and self._free)):
            each = begun.popleft() if begun else self._admit()
            tokens = min(budget, each.prompt_left)
            budget -= tokens
            yield Row(each.request, each.slot, each.computed, tokens)

    def _admit(self) -> _Running:
        admitted = _Running(self._waiting.popleft(), heapq.heappop(self._free))
        self._running.append(admitted)
        return admitted

    def _computed(self, step: Step) -> None:
        rows = {row.slot: row for row in step.rows}
        for each in self._running:
            row = rows.get(each.slot)
            if row is not None:
                each.computed += row.tokens
                each.produced += row.gives_token
        for each in self._running:
            if each.produced == each.request.output_tokens:
                heapq.heappush(self._free, each.slot)
        self._running = [e for e in self._running if e.produced < e.request.output_tokens]
