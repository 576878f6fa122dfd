"""The engine loop of ``launchkit bench serve``: one variant serves one drawing of requests.

A step is scheduled, sent to the GPU, computed, and its tokens are read, which waits for the GPU:
the one time a step that an engine does. Every time is that of a step's start or end.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from launchkit import clock
from launchkit.benchmarks.serve.batch import Numbers, StepTensors
from launchkit.benchmarks.serve.model import HybridStack, LayerOps, ServingModel
from launchkit.benchmarks.serve.requests import Request, Workload
from launchkit.benchmarks.serve.scheduler import Row, Scheduler, Step
from launchkit.benchmarks.serve.states import GROUPS, States, make_states

BLOCK_SIZE = 528
"""Tokens of a cache block, as layers of attention beside make it in such models."""


@dataclass
class Served:
    """What one run of one variant gave, and when."""

    tokens: list[list[int]]
    """By request: the ids of its answer."""
    arrived_ns: list[int]
    """By request: the start of the first step after it arrived."""
    token_ns: list[list[int]]
    """By request: the end of the step that gave each token."""
    states: list[int] = field(default_factory=list)
    """By layer: a sum over the bits of all states at the end."""
    prefill_steps_ns: list[int] = field(default_factory=list)
    """How long steps with tokens of prompts took."""
    decode_steps_ns: list[int] = field(default_factory=list)
    """How long the others took."""
    wall_ns: int = 0


@dataclass(frozen=True)
class Engine:
    """A model, its states, and a step's tensors: for any number of runs, one after another."""

    stack: HybridStack
    states: States
    steps: StepTensors

    @torch.no_grad()
    def serve(
        self,
        workload: Workload,
        requests: Sequence[Request],
        ops: LayerOps,
    ) -> Served:
        """Serve the requests with one variant's ops, from empty states; return what came out."""
        self.states.clear()
        served = Served([[] for _ in requests], [0] * len(requests), [[] for _ in requests])
        gc.collect()
        self._wait()
        scheduler = iter(Scheduler(workload, requests))
        while True:
            start_ns = clock.now_ns()
            step = next(scheduler, None)
            if step is None:
                break
            found = self._compute(step, served, ops)
            _note(step, found, served, start_ns, clock.now_ns())
        self._wait()
        served.states = self.states.digest() if self.states.executes else []
        return served

    def _compute(self, step: Step, served: Served, ops: LayerOps) -> list[int]:
        def ids_of(row: Row) -> Numbers | int:
            if row.decodes:
                return served.tokens[row.request.number][-1]
            return row.request.prompt[row.computed : row.computed + row.tokens]

        batch = self.steps.fill(step, ids_of)
        found: list[int] = self.stack.step(batch, ops).tolist()
        return found

    def _wait(self) -> None:
        if self.states.caches[0].is_cuda:
            torch.cuda.synchronize()


def _note(step: Step, found: Sequence[int], served: Served, start_ns: int, end_ns: int) -> None:
    for request in step.arrived:
        served.arrived_ns[request.number] = start_ns
    for row, token in zip(step.rows, found, strict=True):
        if row.gives_token:
            served.tokens[row.request.number].append(token)
            served.token_ns[row.request.number].append(end_ns)
    kind = served.decode_steps_ns if step.decodes == len(step.rows) else served.prefill_steps_ns
    kind.append(end_ns - start_ns)
    served.wall_ns += end_ns - start_ns


def make_engine(
    model: ServingModel,
    workload: Workload,
    device: str,
    executes: bool,
    block_size: int = BLOCK_SIZE,
    seed: int = 0,
) -> Engine:
    """Return an engine for any workload whose concurrency and lengths are up to this one's.

    ``executes``: whether kernels run on the device, and do not only seem to.
    """
    workload.check()
    steps = StepTensors(
        # Every group's part of what is looked up starts at a multiple of 16 bytes, as engines have
        # it, which allow for round numbers of requests: else their layers need plans of their own.
        slots=-(-workload.concurrency // 4) * 4,
        step_tokens=workload.step_tokens,
        columns=-(-workload.most_tokens // block_size),
        block_size=block_size,
        groups=GROUPS,
        chunk_size=model.shape.chunk_size,
        device=device,
        seed=seed,
    )
    stack = HybridStack(model, device, seed)
    return Engine(stack, make_states(model, steps, executes), steps)
