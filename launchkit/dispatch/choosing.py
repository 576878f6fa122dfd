"""A launch's config where no plan exists: memory, the store, tuning. Below autotuned_path.py.

One ``ConfigChooser`` per Autotuner. It remembers the choice for each key, so that a config
whose launches cannot be shortened (one with a pre_hook, say) is still chosen only once.

Who waits for whom: a launch whose config is known here, or stored, waits for nobody. One that has
to measure enters the key's flight (store/flights.py), where other threads, processes and ranks that
want the same key wait, then takes the one lock of this process under which configs are measured,
since two benchmarks at a time would disturb each other, and looks again. Both are left when the
record is stored, so that who has waited finds it there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from launchkit import clock
from launchkit.configs import ConfigIdentity, TunedConfig, TunedRecord, identify, merge_records
from launchkit.dispatch import (
    config_counts,
    fingerprint,
    permissions,
    stored_choice,
    stores,
    watching,
)
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.layers import (
    autotune_key,
    autotuner_choice,
    autotuner_knows,
    kernel_name,
)
from launchkit.dispatch.plan import ConfigPin
from launchkit.dispatch.question import Arguments, Place, Question
from launchkit.dispatch.stored_choice import StoredChoices
from launchkit.dispatch.tuning import one_key
from launchkit.dispatch.tuning import options as tuning_options
from launchkit.errors import CaptureError, NotTunedError, UnfingerprintableError
from launchkit.keys import DeviceId, KernelId, LaunchKey
from launchkit.store import Explanation, explain
from launchkit.store.flights import flight
from launchkit.store.lookup import KernelPolicies

MAX_CHOICES = 65536
"""Keys whose config is remembered per kernel; a forgotten one is read from the store again."""

_BYPASS = "a key or config value without a stable text"

# Re-entrant for launches in hooks.
_tuning_lock = threading.RLock()


@dataclass(frozen=True)
class _Choices:
    """The configs remembered for one state of a kernel's config list.

    A changed list gets new ones: a tuning that still runs for the old list cannot reach them.
    """

    configs: Any
    by_place: dict[Place, Any]

    def remember(self, place: Place, config: Any) -> None:
        if len(self.by_place) >= MAX_CHOICES:
            for old in list(self.by_place)[: MAX_CHOICES // 4]:
                self.by_place.pop(old, None)
        self.by_place[place] = config


class ConfigChooser:
    """The choices of one Autotuner; any thread may ask, see above for who waits."""

    def __init__(self, autotuner: Any, jit: Any, name: str | None) -> None:
        self._autotuner = autotuner
        self._jit = jit
        self._declared_name = name
        self._name = name or kernel_name(jit)
        self._kernel_id: KernelId | UnfingerprintableError | None = None
        policies = getattr(autotuner, "policies", None) or KernelPolicies()
        self._stored = StoredChoices(autotuner, self._identity, policies)
        self._choices = _Choices(autotuner.configs[:], {})
        self._announced: dict[tuple[Any, ...], Any] = {}
        self._from_triton: dict[Place, tuple[Any, ...]] = {}

    def choose(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ConfigPin:
        """Return the live config for a launch and its list, tuning if nothing else knows it.

        ``kwargs`` hold ``grid`` and ``warmup`` as Triton's own run passes them on.

        Raises:
            UnfingerprintableError: a key or config value cannot be stored; use Triton's Autotuner.
            CaptureError: the choice needs a benchmark while a CUDA graph is captured.
            NotTunedError: it needs one, and LAUNCHKIT_REQUIRE_TUNED is set.
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

    def _choose(self, choices: _Choices, arguments: Arguments) -> Any:
        place = self._place(*arguments)
        config = choices.by_place.get(place)
        if config is None:
            config = self._find(choices, self._question(choices.configs, place, arguments))
            choices.remember(place, config)
        else:
            config_counts.hit(config_counts.MEMORY)
        return config

    def _place(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Place:
        bound = fingerprint.bind(self._jit, args, kwargs)
        key = fingerprint.launch_key(self._jit, tuple(self._autotuner.keys), bound)
        device = seam.current_device()
        return (seam.device_identity(device), device, key)

    def explain(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Explanation:
        """Return what the store has for a launch, and in what it differs."""
        question = self._question(
            self._autotuner.configs[:], self._place(args, kwargs), (args, kwargs)
        )
        identities = [identify(config.all_kwargs()) for config in question.configs]
        return explain(stores.active_store(), self._stored.wanted(question), configs=identities)

    def refuse_tuning(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise where Triton's own Autotuner would benchmark and must not.

        Raises:
            CaptureError: a CUDA graph is being captured.
            NotTunedError: LAUNCHKIT_REQUIRE_TUNED is set.
        """
        required = permissions.must_be_tuned()
        if len(self._autotuner.configs) == 1 or not (required or seam.is_capturing()):
            return
        if autotuner_knows(self._autotuner, autotune_key(self._autotuner, args, kwargs)):
            return
        if not required:
            raise CaptureError(self._name)
        config_counts.missed(_BYPASS)
        raise NotTunedError(self._name, "", _BYPASS, "No config can be stored for such a key.")

    def _find(self, choices: _Choices, question: Question) -> Any:
        config, reason = self._known(question)
        if config is not None:
            return config
        if permissions.must_be_tuned():
            raise self._not_tuned(question, reason)
        if seam.is_capturing():
            raise CaptureError(self._name)
        # Only measuring waits: a launch whose config is stored must not queue behind a tuning.
        with self._flight(question), _tuning_lock:
            config = choices.by_place.get(question.place)
            if config is None:
                config, reason = self._known(question)
            return self._tune(question, reason) if config is None else config

    def _flight(self, question: Question) -> AbstractContextManager[Any]:
        if not question.storable:
            return nullcontext()
        return flight(stores.active_store(), self._stored.wanted(question).identity)

    def _not_tuned(self, question: Question, reason: str) -> NotTunedError:
        config_counts.missed(reason)
        text = "A file cannot tell them apart."
        if question.storable:
            found = stores.explanation(self._stored.wanted(question), question.identities)
            text = "The store cannot be read." if found is None else found.text
        return NotTunedError(self._name, question.place[2].text, reason, text)

    def _question(self, live: Any, place: Place, arguments: Arguments) -> Question:
        configs = one_key.prune(self._autotuner, live, arguments)
        # Neither a choice of one nor a run that executes nothing is worth an identity.
        decided = len(configs) == 1 or not seam.executes()
        identities = [] if decided else [identify(config.all_kwargs()) for config in configs]
        triton_key = autotune_key(self._autotuner, *arguments)
        return Question(place, arguments, triton_key, configs, identities)

    def _known(self, question: Question) -> tuple[Any | None, str]:
        """Return the config if it takes no measurement to know it, else None and why."""
        if question.decided:
            self._announce(question, question.configs[0], None, None)
            return question.configs[0], ""
        config = self._tuned_by_triton(question)
        if config is not None:
            self._from_triton[question.place] = question.triton_key
            config_counts.hit(config_counts.TRITON)
            return config, ""
        found = self._stored.find(question)
        if isinstance(found, str):
            return None, found
        stored_choice.count(question, found)
        self._announce(question, found.config, found.timings, None)
        return found.config, ""

    def _tuned_by_triton(self, question: Question) -> Any | None:
        """Return what Triton's own tuning chose in this process, before launchkit came."""
        config = autotuner_choice(self._autotuner, question.triton_key)
        if config is None or config is self._announced.get(question.triton_key):
            return None
        return next((live for live in question.configs if live == config), None)

    def _tune(self, question: Question, reason: str) -> Any:
        known = self._stored.record(question)

        def keep(results: Sequence[TunedConfig], best: TunedConfig, seconds: float) -> None:
            self._keep(question, results, best, known, seconds)

        start_ns = clock.now_ns()
        try:
            with watching.tuning(self._autotuner, *question.arguments):
                tuned = one_key.tune(self._autotuner, self._task(question), known, keep)
        finally:
            config_counts.tuned(reason, (clock.now_ns() - start_ns) / 1e9)
        self._announce(question, tuned.config, tuned.timings, tuned.seconds)
        one_key.finish(self._autotuner, tuned.config, question.arguments)
        return tuned.config

    def _task(self, question: Question) -> one_key.Task:
        key, configs, identities = question.place[2], question.configs, question.identities
        return one_key.Task(self._name, key, configs, identities, question.arguments)

    def _announce(
        self, question: Question, config: Any, timings: Any, seconds: float | None
    ) -> None:
        key = question.triton_key
        if len(self._announced) >= MAX_CHOICES:
            self._forget()
        self._announced[key] = config
        one_key.announce_choice(self._autotuner, self._jit, key, config, timings, seconds)

    def _forget(self) -> None:
        """Forget the oldest choices, on the Autotuner as well: Triton's dictionary has no bound."""
        for key in list(self._announced)[: MAX_CHOICES // 4]:
            config = self._announced.pop(key, None)
            if config is not None and self._autotuner.cache.get(key) is config:
                self._autotuner.cache.pop(key, None)

    # -- for ranks that agree on their configs

    @property
    def method(self) -> str:
        """How the kernel's configs are measured."""
        return tuning_options.method_of(self._autotuner)

    def identities(self) -> tuple[KernelId, list[ConfigIdentity]]:
        """Return what the kernel and the configs of its list are called in stores.

        Raises UnfingerprintableError where one has no name there.
        """
        configs = [identify(config.all_kwargs()) for config in self._autotuner.configs]
        return self._identity(), configs

    def chosen(self) -> dict[tuple[DeviceId, LaunchKey], ConfigIdentity]:
        """Return what is chosen in this process, by device and key.

        Raises UnfingerprintableError as ``identities``.
        """
        return {
            (device, key): identify(config.all_kwargs())
            for (device, _, key), config in list(self._choices.by_place.items())
        }

    def forget(self, device: DeviceId, key: LaunchKey) -> None:
        """Let the next launch with this key ask the store again; plans are not touched."""
        by_place = self._choices.by_place
        for place in list(by_place):
            if (place[0], place[2]) == (device, key):
                by_place.pop(place, None)
                if (known := self._from_triton.pop(place, None)) is not None:
                    self._announced[known] = autotuner_choice(self._autotuner, known)

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

    def _keep(
        self,
        question: Question,
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
        record = record if known is None else merge_records(known, record)
        stores.store_record(record)
        self._stored.note(record)
