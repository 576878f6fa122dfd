"""Tuning of one kernel for one launch: prune, protect inputs, measure, choose.

Measures as Triton's Autotuner does (the same benchmark function, hooks, errors and order), but
keeps no state on the Autotuner, so that two threads may tune different keys.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from launchkit import clock
from launchkit.configs import ConfigIdentity, TunedConfig, TunedRecord, choose, identify
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.layers import triton_run
from launchkit.dispatch.question import Arguments
from launchkit.errors import TuningFailedError, UsageError
from launchkit.keys import LaunchKey

EAGER = "eager"
"""How configs are timed: single launches, by the kernel's benchmark function."""


@dataclass(frozen=True)
class Measured:
    """One live config and what its measurement said."""

    config: Any
    timing: Any
    """What the benchmark returned (milliseconds), as Triton keeps it; infinities for a failure."""
    tuned: TunedConfig


def prune(autotuner: Any, configs: Any, arguments: Arguments) -> list[Any]:
    """Return those of ``configs`` that Triton would measure for a launch, in its order.

    Raises:
        UsageError: pruning left none.
    """
    # Triton's prune reads self.nargs and self.configs; a copy keeps other threads away.
    mine = copy.copy(autotuner)
    mine.configs = configs
    mine.nargs = dict(zip(autotuner.arg_names, arguments[0], strict=False))
    kept = list(dict.fromkeys(mine.prune_configs(dict(arguments[1]))))
    if not kept:  # Triton before 3.6 does not say so itself
        raise UsageError(
            "No valid autotuner configs after pruning. `early_config_prune` should return at least "
            "one config."
        )
    return kept


@dataclass(frozen=True)
class Task:
    """One key to tune: what pruning left, in live order, and the identity of each config."""

    name: str
    key: LaunchKey
    configs: Sequence[Any]
    identities: Sequence[ConfigIdentity]
    arguments: Arguments


@dataclass(frozen=True)
class Tuned:
    """What tuning one key said: a result for each config of the task, in its order."""

    results: tuple[TunedConfig, ...]
    best: TunedConfig
    config: Any
    """The live config of ``best``."""
    timings: dict[Any, Any]
    """Milliseconds per live config, as Triton keeps them."""
    seconds: float
    """How long measuring took."""


Keep: TypeAlias = Callable[[Sequence[TunedConfig], TunedConfig, float], None]
"""Takes what is to be stored: results, the best of them, and the seconds that they took."""


def method_of(autotuner: Any) -> str:
    """Return how a kernel's configs are timed; results by other methods do not count for it."""
    return EAGER


def tune(autotuner: Any, task: Task, known: TunedRecord | None, keep: Keep) -> Tuned:
    """Measure those configs that have no result yet, and choose among all.

    Raises:
        TuningFailedError: no config could be measured.
    """
    start_ns = clock.now_ns()
    old = {} if known is None else known.results(method_of(autotuner))
    identified = list(zip(task.configs, task.identities, strict=True))
    # Where each is known to have failed there is nothing to launch: they get another chance.
    missing = [config for config, identity in identified if identity not in old]
    fresh = {
        id(config): _measure_one(autotuner, config, task.arguments)
        for config in missing or task.configs
    }
    results = [fresh[id(c)].tuned if id(c) in fresh else old[i] for c, i in identified]
    best = choose(results)
    if best is None:
        raise TuningFailedError(task.name, {t.text: t.error or "no time" for t in results})
    timings = {
        config: fresh[id(config)].timing if id(config) in fresh else timing_of(tuned)
        for config, tuned in zip(task.configs, results, strict=True)
    }
    seconds = (clock.now_ns() - start_ns) / 1e9
    keep(results, best, seconds)
    config = task.configs[next(i for i, tuned in enumerate(results) if tuned is best)]
    return Tuned(tuple(results), best, config, timings, seconds)


def timing_of(tuned: TunedConfig) -> list[float]:
    """Return a stored result as Triton keeps one: (median, p20, p80) in milliseconds."""
    median_us = math.inf if tuned.median_us is None else tuned.median_us
    return [us / 1e3 for us in (median_us, tuned.p20_us or median_us, tuned.p80_us or median_us)]


def finish(autotuner: Any, config: Any, arguments: Arguments) -> None:
    """Reset what the kernel accumulates into, as Triton does between tuning and launch."""
    guard = _InputGuard(autotuner)
    guard.reset(_named(autotuner, config, arguments))


def _named(autotuner: Any, config: Any, arguments: Arguments) -> dict[str, Any]:
    args, kwargs = arguments
    positional = dict(zip(autotuner.arg_names, args, strict=False))
    return {**positional, **kwargs, **config.all_kwargs()}


def _measure_one(autotuner: Any, config: Any, arguments: Arguments) -> Measured:
    call, count = _kernel_call(autotuner, config, arguments)
    identity = identify(config.all_kwargs())
    try:
        timing = autotuner.do_bench(call, quantiles=(0.5, 0.2, 0.8))
    except seam.CONFIG_ERRORS as error:
        reason = f"{type(error).__name__}: {error}"
        return Measured(
            config,
            [math.inf] * 3,
            TunedConfig.failed(identity, reason, method=method_of(autotuner)),
        )
    times_us = [t * 1e3 for t in timing] if isinstance(timing, (list, tuple)) else timing * 1e3
    tuned = TunedConfig.measured(
        identity, times_us, reps=count() or None, method=method_of(autotuner)
    )
    return Measured(config, timing, tuned)


def _kernel_call(
    autotuner: Any, config: Any, arguments: Arguments
) -> tuple[Callable[[], None], Callable[[], int]]:
    args, kwargs = arguments
    clash = kwargs.keys() & config.kwargs.keys()
    if clash:
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(sorted(clash))}. "
            "Make sure that you don't re-define auto-tuned symbols."
        )
    current = {**kwargs, **config.all_kwargs()}
    named = _named(autotuner, config, arguments)
    guard = _InputGuard(autotuner)
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if config.pre_hook:
            config.pre_hook(named)
        guard.enter(named)
        try:
            triton_run(autotuner.fn)(*args, **current)
        except Exception as error:
            guard.leave(named, error)
            raise
        guard.leave(named, None)

    return call, lambda: calls


class _InputGuard:
    """reset_to_zero and restore_value of one measurement, with its copies kept to itself."""

    def __init__(self, autotuner: Any) -> None:
        self._autotuner = autotuner
        self._own_enter = not getattr(autotuner, "user_defined_pre_hook", False)
        self._own_leave = not getattr(autotuner, "user_defined_post_hook", False)
        self._copies: dict[str, Any] = {}

    def enter(self, named: dict[str, Any]) -> None:
        if not self._own_enter:
            self._autotuner.pre_hook(named)
            return
        # Copied before it is zeroed: an argument may be in both lists.
        self._copies = {
            name: named[name].clone()
            for name in self._autotuner.restore_value
            if named.get(name) is not None
        }
        self._zero(named, self._autotuner.reset_to_zero)

    def leave(self, named: dict[str, Any], error: Exception | None) -> None:
        if not self._own_leave:
            self._autotuner.post_hook(named, exception=error)
            return
        for name, saved in self._copies.items():
            named[name].copy_(saved)
        self._copies = {}

    def reset(self, named: dict[str, Any]) -> None:
        if not self._own_enter:
            self._autotuner.pre_hook(named, reset_only=True)
            return
        kept = set(self._autotuner.restore_value)
        self._zero(named, [name for name in self._autotuner.reset_to_zero if name not in kept])

    def _zero(self, named: dict[str, Any], names: Sequence[str]) -> None:
        for name in names:
            if named.get(name) is not None:
                named[name].zero_()


def announce_choice(
    autotuner: Any,
    jit: Any,
    key: tuple[Any, ...],
    config: Any,
    timings: Mapping[Any, Any] | None,
    seconds: float | None,
) -> None:
    """Leave on the Autotuner what Triton's own tuning leaves there, and tell its listener.

    ``timings``: milliseconds per config, as Triton keeps them; None where there was no choice.
    ``seconds``: how long measuring took; None when the timings come from a store.
    """
    autotuner.cache[key] = config
    autotuner.best_config = config
    if timings is None:
        return
    autotuner.configs_timings = dict(timings)
    if seconds is not None:
        autotuner.bench_time = seconds
        _print_choice(autotuner, key, config, seconds)
    listener = getattr(seam.tuning_knobs(), "listener", None)
    if listener is not None:
        listener(
            fn=jit,
            key=key,
            best_config=config,
            configs_timings=autotuner.configs_timings,
            duration=seconds,
            cache_hit=seconds is None,
        )


def _print_choice(autotuner: Any, key: tuple[Any, ...], config: Any, seconds: float) -> None:
    if seam.tuning_knobs().print:
        text = (
            f"Triton autotuning for function {autotuner.base_fn.__name__},\nwith key as {key},\n"
            f"finished after {seconds:.2f}s,\nbest config selected: {config};"
        )
        print(text)  # noqa: T201 - what Triton's own tuning prints with its knob on
