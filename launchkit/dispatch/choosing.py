"""Which config a launch takes when no plan exists: memory, then the store, then tuning.

One ``ConfigChooser`` per Autotuner. It remembers the choice for each key, so that a config
whose launches cannot be shortened (one with a pre_hook, say) is still chosen only once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from launchkit import clock
from launchkit.configs import (
    ConfigIdentity,
    TunedConfig,
    TunedRecord,
    identify,
    merge_records,
)
from launchkit.dispatch import fingerprint, tuning, watching
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.layers import (
    autotune_key,
    autotuner_choice,
    autotuner_knows,
    kernel_name,
)
from launchkit.dispatch.plan import ConfigPin
from launchkit.dispatch.stores import store_record, stored_record
from launchkit.errors import CaptureError, UnfingerprintableError
from launchkit.keys import DeviceId, KernelId, LaunchKey

MAX_CHOICES = 65536
"""Keys whose config is remembered per kernel; a forgotten one is read from the store again."""

# Benchmarks that run at the same time disturb each other; re-entrant for launches in hooks.
_tuning_lock = threading.RLock()


_Place: TypeAlias = tuple[DeviceId, int, LaunchKey]
"""What a choice is remembered for: device, its ordinal, and key."""


@dataclass(frozen=True)
class _Choices:
    """The configs remembered for one state of a kernel's config list.

    A changed list gets new ones: a tuning that still runs for the old list cannot reach them.
    """

    configs: Any
    by_place: dict[_Place, Any]

    def remember(self, place: _Place, config: Any) -> None:
        if len(self.by_place) >= MAX_CHOICES:
            for old in list(self.by_place)[: MAX_CHOICES // 4]:
                self.by_place.pop(old, None)
        self.by_place[place] = config


@dataclass(frozen=True)
class _Question:
    """One launch whose config is not known yet: its key, arguments and candidates."""

    place: _Place
    arguments: tuning.Arguments
    triton_key: tuple[Any, ...]
    configs: list[Any]
    """What pruning left, in live order."""
    identities: list[ConfigIdentity]
    """Of the configs; empty where the first config is the answer."""

    @property
    def storable(self) -> bool:
        """False for configs that differ in a hook alone: a file cannot tell them apart."""
        return len(set(self.identities)) == len(self.identities)


class ConfigChooser:
    """The choices of one Autotuner.

    Thread-safe: a key is tuned by one thread while others that need it wait.
    """

    def __init__(self, autotuner: Any, jit: Any, name: str | None) -> None:
        self._autotuner = autotuner
        self._jit = jit
        self._declared_name = name
        self._name = name or kernel_name(jit)
        self._kernel_id: KernelId | UnfingerprintableError | None = None
        self._choices = _Choices(autotuner.configs[:], {})
        self._announced: dict[tuple[Any, ...], Any] = {}

    def choose(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ConfigPin:
        """Return the live config for a launch and its list, tuning if nothing else knows it.

        ``kwargs`` hold ``grid`` and ``warmup`` as Triton's own run passes them on.

        Raises:
            UnfingerprintableError: a key or config value cannot be stored; use Triton's Autotuner.
            CaptureError: the choice needs a benchmark while a CUDA graph is captured.
            TuningFailedError: no config could be run.
        """
        live = self._autotuner.configs
        if len(live) == 1:
            choice = ConfigPin(live[0], live[:])
        else:
            choices = self._choices
            if live != choices.configs:
                choices = self._choices = _Choices(live[:], {})
            choice = ConfigPin(self._choose(choices, (args, kwargs)), choices.configs)
        self._autotuner.best_config = choice.config
        return choice

    def _choose(self, choices: _Choices, arguments: tuning.Arguments) -> Any:
        bound = fingerprint.bind(self._jit, *arguments)
        key = fingerprint.launch_key(self._jit, tuple(self._autotuner.keys), bound)
        device = seam.current_device()
        place = (seam.device_identity(device), device, key)
        config = choices.by_place.get(place)
        if config is None:
            config = self._find(choices, self._question(choices.configs, place, arguments))
            choices.remember(place, config)
        return config

    def refuse_capture(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise CaptureError where Triton's own Autotuner would benchmark during a capture."""
        if len(self._autotuner.configs) > 1 and seam.is_capturing():
            key = autotune_key(self._autotuner, args, kwargs)
            if not autotuner_knows(self._autotuner, key):
                raise CaptureError(self._name)

    def _find(self, choices: _Choices, question: _Question) -> Any:
        config = self._known(question)
        if config is not None:
            return config
        if seam.is_capturing():
            raise CaptureError(self._name)
        # Only measuring waits: a launch whose config is stored must not queue behind a tuning.
        with _tuning_lock:
            config = choices.by_place.get(question.place)
            if config is None:
                config = self._known(question)
            return self._tune(question) if config is None else config

    def _question(self, live: Any, place: _Place, arguments: tuning.Arguments) -> _Question:
        configs = tuning.prune(self._autotuner, live, arguments)
        # Neither a choice of one nor a run that executes nothing is worth an identity.
        decided = len(configs) == 1 or not seam.executes()
        identities = [] if decided else [identify(config.all_kwargs()) for config in configs]
        triton_key = autotune_key(self._autotuner, *arguments)
        return _Question(place, arguments, triton_key, configs, identities)

    def _known(self, question: _Question) -> Any | None:
        """Return the config if it takes no measurement to know it."""
        configs = question.configs
        if not question.identities:
            self._announce(question, configs[0], None, None)
            return configs[0]
        config = self._tuned_by_triton(question)
        if config is not None:
            return config
        known = self._stored(question)
        if known is None:
            return None
        method = tuning.method_of(self._autotuner)
        config = tuning.pick(known, self._task(question), method)
        if config is None:
            return None
        old = known.results(known.winner.method if known.pinned or known.winner.foreign else method)
        identified = zip(configs, question.identities, strict=True)
        timings = {c: tuning.timing_of(old[i]) for c, i in identified if i in old}
        self._announce(question, config, timings, None)
        return config

    def _tuned_by_triton(self, question: _Question) -> Any | None:
        """Return what Triton's own tuning chose in this process, before launchkit came."""
        config = autotuner_choice(self._autotuner, question.triton_key)
        if config is None or config is self._announced.get(question.triton_key):
            return None
        return next((live for live in question.configs if live == config), None)

    def _tune(self, question: _Question) -> Any:
        known = self._stored(question)

        def keep(results: Sequence[TunedConfig], best: TunedConfig, seconds: float) -> None:
            self._keep(question, results, best, known, seconds)

        with watching.tuning(self._autotuner, *question.arguments):
            tuned = tuning.tune(self._autotuner, self._task(question), known, keep)
        self._announce(question, tuned.config, tuned.timings, tuned.seconds)
        tuning.finish(self._autotuner, tuned.config, question.arguments)
        return tuned.config

    def _task(self, question: _Question) -> tuning.Task:
        key, configs, identities = question.place[2], question.configs, question.identities
        return tuning.Task(self._name, key, configs, identities, question.arguments)

    def _announce(
        self, question: _Question, config: Any, timings: Any, seconds: float | None
    ) -> None:
        key = question.triton_key
        self._announced[key] = config
        tuning.announce_choice(self._autotuner, self._jit, key, config, timings, seconds)

    # -- the store; nothing that goes wrong there may fail a launch

    def _identity(self) -> KernelId:
        # A failure is remembered too: hashing a kernel takes milliseconds.
        if self._kernel_id is None:
            try:
                self._kernel_id = fingerprint.kernel_id(self._jit, self._declared_name)
            except UnfingerprintableError as error:
                self._kernel_id = error
        if isinstance(self._kernel_id, UnfingerprintableError):
            raise self._kernel_id
        return self._kernel_id

    def _stored(self, question: _Question) -> TunedRecord | None:
        if not question.storable:
            return None
        device, _, key = question.place
        return stored_record(self._identity(), device, seam.toolchain(), key)

    def _keep(
        self,
        question: _Question,
        results: Sequence[TunedConfig],
        best: TunedConfig,
        known: TunedRecord | None,
        seconds: float,
    ) -> None:
        if not question.storable:
            return
        device, _, key = question.place
        record = TunedRecord(
            kernel=self._identity(),
            device=device,
            toolchain=seam.toolchain(),
            key=key,
            configs=tuple(results),
            chosen=best.config,
            tuned_at=clock.utc_text(),
            seconds=seconds + (0.0 if known is None else known.seconds or 0.0),
        )
        store_record(record if known is None else merge_records(known, record))
