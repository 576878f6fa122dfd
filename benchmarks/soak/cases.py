"""What ``launchkit bench soak`` repeats: each kind of launch, hit and miss, and a replayed op."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton

import launchkit
from launchkit.benchmarks.differential import kernels
from launchkit.benchmarks.mode import installed

Loop = Callable[[int], None]
"""Makes n rounds."""


@dataclass(frozen=True)
class Replayed:
    """A loop whose rounds are replays of an op."""

    loop: Loop
    replays: Callable[[], int]
    """How many rounds were."""

    def __call__(self, rounds: int) -> None:
        """Make the rounds."""
        self.loop(rounds)


@dataclass(frozen=True)
class SoakCase:
    """One kind of launch, and its share of all launches."""

    name: str
    share: int
    """In parts per hundred."""
    make: Callable[[], Loop | Replayed]
    launches_per_round: int = 1
    during: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """What is in force while the rounds are made."""


class _Number(int):
    """An int of a class of its own: no plan is made for it."""


def _tuned() -> Any:
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    return launchkit.autotuned(configs=configs, key=["n"])(kernels.fresh(kernels.blocked))


def _positional() -> Loop:
    kernel, x, y = _tuned(), torch.empty(64), torch.empty(64)

    def loop(rounds: int) -> None:
        for _ in range(rounds):
            kernel[(1,)](x, y, 64, 1)

    return loop


def _keywords() -> Loop:
    kernel, x, y = _tuned(), torch.empty(64), torch.empty(64)

    def loop(rounds: int) -> None:
        for _ in range(rounds):
            launchkit.launch_autotuned(kernel, (1, 2), x_ptr=x, y_ptr=y, n=10**12, stride=1)

    return loop


def _callable_grid() -> Loop:
    kernel, x = _tuned(), torch.empty(64)
    named = {"x_ptr": x, "y_ptr": x, "n": 4096, "stride": 3}

    def loop(rounds: int) -> None:
        for _ in range(rounds):
            launchkit.launch_autotuned(
                kernel, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), **named
            )

    return loop


def _declared_grid() -> Loop:
    kernel, x = _tuned(), torch.empty(64)
    grid = launchkit.grid(launchkit.cdiv("n", "BLOCK"))

    def loop(rounds: int) -> None:
        for turn in range(rounds):
            kernel[grid](x, x, 2 + turn % 5, stride=1)

    return loop


def _frozen() -> Loop:
    kernel, x, y = _tuned(), torch.empty(64), torch.empty(64)
    handle = launchkit.freeze(kernel, (4,), x, y, 7, stride=1, varying=("x_ptr", "n"))

    def loop(rounds: int) -> None:
        for turn in range(rounds):
            handle(y, 2 * turn + 3)
            handle(x, n=1001)

    return loop


def _plain() -> Loop:
    jit, x = kernels.fresh(kernels.scalars), torch.empty(64)

    def loop(rounds: int) -> None:
        for turn in range(rounds):
            launchkit.launch(jit, [1, 1], None, x, turn, True, 0.5 + turn, MODE="shift")

    return loop


def _installed() -> Loop:
    jit, x = kernels.fresh(kernels.blocked), torch.empty(64)

    def loop(rounds: int) -> None:
        for _ in range(rounds):
            jit[(1,)](x, x, 64, 1, BLOCK=16, num_warps=2)

    return loop


def _misses() -> Loop:
    jit, x = kernels.fresh(kernels.integers), torch.empty(64)

    def loop(rounds: int) -> None:
        for turn in range(rounds):
            launchkit.launch(jit, (1,), x, _Number(2 + turn), 7, 3)

    return loop


def _errors() -> Loop:
    jit, x = kernels.fresh(kernels.integers), torch.empty(64)
    mistakes: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {}), ((x, 1, 2, 3, 4), {}), ((x, object(), 2, 3), {}), ((x, 1, 2, 3), {"no_such": 1}),
    ]  # fmt: skip

    def loop(rounds: int) -> None:
        for args, named in itertools.islice(itertools.cycle(mistakes), rounds):
            with contextlib.suppress(TypeError, KeyError):
                launchkit.launch(jit, (1,), *args, **named)

    return loop


def _replaced_plans() -> Loop:
    kernel, x = _tuned(), torch.empty(64)

    def loop(rounds: int) -> None:
        for turn in range(rounds):
            # Other configs: what was chosen and every plan is dropped and made anew.
            kernel.configs = [triton.Config({"BLOCK": 16 << turn % 2})]
            kernel[(1,)](x, x, 64, 1)
            kernel[(1,)](x, x, 64, 1)

    return loop


def _replayed_op() -> Replayed:
    kernel, x, y = _tuned(), torch.empty(64), torch.empty(64)

    def copy_twice(source: torch.Tensor, target: torch.Tensor) -> None:
        between = torch.empty_like(source)
        kernel[(4,)](source, between, 64, 1)
        kernel[(4,)](between, target, 64, 1)

    op: Any = launchkit.planned(copy_twice)

    def loop(rounds: int) -> None:
        for _ in range(rounds):
            op(x, y)

    return Replayed(loop, lambda: int(op.op_plans.replays))


CASES = {
    case.name: case
    for case in (
        SoakCase("positional", 15, _positional),
        SoakCase("keywords", 17, _keywords),
        SoakCase("callable_grid", 12, _callable_grid),
        SoakCase("declared_grid", 8, _declared_grid),
        SoakCase("plain", 9, _plain),
        SoakCase("frozen", 12, _frozen, launches_per_round=2),
        SoakCase("installed", 9, _installed, during=partial(installed, f"{kernels.__name__}.*")),
        SoakCase("replayed_op", 11, _replayed_op, launches_per_round=2),
        SoakCase("misses", 2, _misses),
        SoakCase("errors", 4, _errors),
        SoakCase("replaced_plans", 1, _replaced_plans, launches_per_round=2),
    )
}
