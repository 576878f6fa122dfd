"""Tuning of one kernel for one key: prune, measure, choose. Between choosing.py and trials.py.

Measures as Triton's Autotuner does (the same benchmark function, hooks and order) unless the
kernel asks for another way, but keeps no state on the Autotuner, so that two threads may tune
different keys.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from launchkit import clock
from launchkit.configs import ConfigIdentity, TunedConfig, TunedRecord, choose
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.layers import named_arguments
from launchkit.dispatch.question import Arguments
from launchkit.dispatch.tuning.calls import InputGuard
from launchkit.dispatch.tuning.failures import BrokenContextError, CaptureFailedError
from launchkit.dispatch.tuning.options import method_of, options_of, refuse_graph
from launchkit.dispatch.tuning.progress import steps
from launchkit.dispatch.tuning.protection import Protection
from launchkit.dispatch.tuning.trials import Measured, Trials
from launchkit.errors import TuningFailedError, UsageError
from launchkit.keys import LaunchKey


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


def tune(autotuner: Any, task: Task, known: TunedRecord | None, keep: Keep) -> Tuned:
    """Measure those configs of a task that have no result yet, and choose among all.

    ``known``: what is stored for the key; ``keep`` is given what is to be stored, once, also where a
    config ends the tuning for good.

    The arguments are as before when it returns or raises, but for what ``reset_to_zero`` names
    and what the kernel only writes.

    Raises:
        TuningFailedError: no config could be measured.
        TuningStoppedError: a config broke the CUDA context; what was measured before is kept.
        ProtectionError: an argument that would change could not be copied.
    """
    while True:
        try:
            return _Tuning(autotuner, task, known, keep).run()
        except CaptureFailedError as error:
            refuse_graph(autotuner, task.name, str(error))


class _Tuning:
    """One tuning of one key by one method."""

    def __init__(self, autotuner: Any, task: Task, known: TunedRecord | None, keep: Keep) -> None:
        self._autotuner, self._task, self._keep = autotuner, task, keep
        self._start_ns = clock.now_ns()
        self._method = method_of(autotuner)
        self._old = {} if known is None else known.results(self._method)
        self._fresh: dict[int, Measured] = {}
        """Results by the place of their config in the task."""

    def run(self) -> Tuned:
        self._measure()
        task, fresh = self._task, self._fresh
        results = [
            fresh[place].tuned if place in fresh else self._old[identity]
            for place, identity in enumerate(task.identities)
        ]
        best = choose(results)
        if best is None:
            raise _failure(task, results, list(fresh.values()))
        timings = {
            config: fresh[place].timing if place in fresh else timing_of(results[place])
            for place, config in enumerate(task.configs)
        }
        config = task.configs[next(i for i, tuned in enumerate(results) if tuned is best)]
        seconds = self._seconds()
        self._keep(results, best, seconds)
        return Tuned(tuple(results), best, config, timings, seconds)

    def _measure(self) -> None:
        task, options = self._task, options_of(self._autotuner)
        places = range(len(task.configs))
        missing = [place for place in places if task.identities[place] not in self._old]
        # Where each is known to have failed there is nothing to launch: all get another chance.
        missing = missing or list(places)
        with (
            steps(task.name, task.key.text, len(missing)) as shown,
            Protection(task.name, options.protect, task.arguments) as protection,
        ):
            trials = Trials(self._autotuner, task.name, self._method, options, protection)
            self._let_the_known_speak(trials)
            for place in missing:
                try:
                    measured = trials.run(place, task.configs[place], task.identities[place])
                except BrokenContextError as error:
                    self._keep_before_stopping(error.tuned)
                    raise error.stopped from error.__cause__
                self._fresh[place] = measured
                shown.done(measured.tuned)
            self._fresh = trials.without_outliers(self._fresh)

    def _let_the_known_speak(self, trials: Trials) -> None:
        """Compare new configs' outputs with that of the best one whose result is stored."""
        task = self._task
        known = [self._old[identity] for identity in task.identities if identity in self._old]
        best = choose(known)
        if best is not None:
            place = task.identities.index(best.config)
            agreed = sum(tuned.ok for tuned in known)
            trials.compare_known(place, task.configs[place], best.config, agreed)

    def _keep_before_stopping(self, failed: TunedConfig) -> None:
        """Keep what is known, so that the next process does not run into the same config."""
        results = {**self._old}
        results.update((each.tuned.config, each.tuned) for each in self._fresh.values())
        results[failed.config] = failed
        live = [results[i] for i in dict.fromkeys(self._task.identities) if i in results]
        best = choose(live)
        if best is not None:
            self._keep(live, best, self._seconds())

    def _seconds(self) -> float:
        return (clock.now_ns() - self._start_ns) / 1e9


def _failure(task: Task, results: Sequence[TunedConfig], fresh: Sequence[Measured]) -> Exception:
    """Return what to raise where no config could be measured."""
    errors = [each.error for each in fresh]
    first = errors[0] if errors else None
    alike = {None if e is None else (type(e), str(e)) for e in errors}
    if first is not None and len(alike) == 1 and len(errors) == len(results):
        return first  # the same for every config: the launch is wrong, not the configs
    failed = TuningFailedError(task.name, {t.text: t.error or "no time" for t in results})
    failed.__cause__ = first
    return failed


def timing_of(tuned: TunedConfig) -> list[float]:
    """Return a stored result as Triton keeps one: (median, p20, p80) in milliseconds."""
    median_us = math.inf if tuned.median_us is None else tuned.median_us
    return [us / 1e3 for us in (median_us, tuned.p20_us or median_us, tuned.p80_us or median_us)]


def finish(autotuner: Any, config: Any, arguments: Arguments) -> None:
    """Reset what the kernel accumulates into, as Triton does between tuning and launch."""
    InputGuard(autotuner).reset(named_arguments(autotuner, config, *arguments))


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
