"""Which live config a stored record decides on. Between choosing.py and the store.

A record of exactly the launch's identity, measured here, decides by its times alone. One of a
compatible device, another toolchain or a near shape, and one that another program's file gave, is
a hint: its configs are compiled and loaded first, the chosen one and then the next best by its
times, and nothing of it is stored as if it had been measured here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from launchkit.configs import ConfigIdentity, TunedConfig, TunedRecord, choose
from launchkit.dispatch import config_counts, feasibility, permissions, stores
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.question import Question
from launchkit.dispatch.tuning import one_key
from launchkit.dispatch.tuning import options as tuning_options
from launchkit.keys import KernelId
from launchkit.store import ConfigStore, Found, Policies, Wanted
from launchkit.store.lookup import KernelPolicies, NearIdentities

logger = logging.getLogger("launchkit")

INCOMPLETE = "configs without a result"
NOT_LIVE = "no stored config is live"
INFEASIBLE = "no stored config fits"
AMBIGUOUS = "configs that differ in a hook alone"


@dataclass(frozen=True)
class StoredChoice:
    """A live config that a record decided on."""

    config: Any
    identity: ConfigIdentity
    found: Found
    inexact: tuple[str, ...]
    timings: dict[Any, list[float]]
    """Live configs that the record knows → (median, p20, p80) in milliseconds, as Triton has them."""


class StoredChoices:
    """What the store says about the launches of one Autotuner."""

    def __init__(
        self, autotuner: Any, kernel: Callable[[], KernelId], policies: KernelPolicies
    ) -> None:
        self._autotuner = autotuner
        self._kernel = kernel
        self._policies = policies
        self._identities: tuple[ConfigStore, NearIdentities] | None = None

    def wanted(self, question: Question) -> Wanted:
        """Return the identity of the record that would answer exactly.

        Raises:
            UnfingerprintableError: the kernel has none.
        """
        device, _, key = question.place
        return Wanted(self._kernel(), device, seam.toolchain(), key)

    def record(self, question: Question) -> TunedRecord | None:
        """Return what is stored for exactly this launch."""
        found = stores.exact_record(self.wanted(question)) if question.storable else None
        return found.record if isinstance(found, Found) else None

    def find(self, question: Question) -> StoredChoice | str:
        """Return the choice of the nearest record that can decide, or why none can."""
        if not question.storable:
            return AMBIGUOUS
        wanted = self.wanted(question)
        exact = stores.exact_record(wanted)
        if isinstance(exact, Found):
            missed = NOT_LIVE if exact.record.pinned else INCOMPLETE
            return _Search(self._autotuner, question).choice(exact) or missed
        process = stores.active_policies()
        policies = self._policies.over(process) if permissions.takes_hints() else Policies()
        search = _Search(self._autotuner, question)
        choice = next(filter(None, map(search.choice, self._near(wanted, policies))), None)
        if choice is not None or not search.known:
            return choice or exact.reason
        return INFEASIBLE if search.known.intersection(question.identities) else NOT_LIVE

    def note(self, record: TunedRecord) -> None:
        """Know what was just stored."""
        if self._identities is not None:
            self._identities[1].note(Wanted(*record.identity))

    def _near(self, wanted: Wanted, policies: Policies) -> Iterator[Found]:
        """Yield what may answer beside the exact record, the nearest first."""
        if not policies.shapes:
            yield from stores.near_records(wanted, policies)
            return
        # Launched with ever new shapes, a kernel must not go through the whole store each time.
        store = stores.active_store()
        if self._identities is not None and self._identities[0] is store:
            known = self._identities[1].beside(wanted.key)
            yield from stores.near_records(wanted, policies, known)
        self._identities = (store, stores.near_identities(wanted.kernel, policies.shapes))
        yield from stores.near_records(wanted, policies, self._identities[1].beside(wanted.key))


class _Search:
    """The search among records for one question: what was refused once is not tried again."""

    def __init__(self, autotuner: Any, question: Question) -> None:
        self._autotuner = autotuner
        self._question = question
        self._method = tuning_options.method_of(autotuner)
        self._refused: set[ConfigIdentity] = set()
        self.known: set[ConfigIdentity] = set()
        """Configs of the records that were looked at."""

    def choice(self, found: Found) -> StoredChoice | None:
        """Return what a record decides on: by its times if it is exact, else what can run here."""
        question, record = self._question, found.record
        self.known.update(tuned.config for tuned in record.configs)
        if not found.inexact:
            decided = _decides(record, question.identities, self._method)
            if decided is not None:
                return _choice(found, question, decided)
        hints = _hints(found, question, self._method) if permissions.takes_hints() else ()
        tuned = next((each for each in hints if self._runs(each)), None)
        return None if tuned is None else _choice(found, question, tuned)

    def _runs(self, tuned: TunedConfig) -> bool:
        if tuned.config in self._refused:
            return False
        config = self._question.live[tuned.config]
        problem = feasibility.obstacle(self._autotuner, config, self._question.arguments)
        if problem is not None:
            self._refused.add(tuned.config)
            logger.debug("%s: stored %s: %s", self._autotuner, tuned.text, problem)
        return problem is None


def _decides(
    record: TunedRecord, identities: Iterable[ConfigIdentity], method: str
) -> TunedConfig | None:
    """Return the result of the live config that a record of exactly the launch decides on, or None.

    A pinned one decides if its config is live. Another decides only when it has a result by
    ``method`` for every live config; then what it says was chosen holds, or, where that config is
    no longer in the list or was chosen by another method, the best of the results.
    """
    live = list(identities)
    if record.pinned:
        return record.winner if record.chosen in live else None
    known = record.results(method)
    if any(identity not in known for identity in live):
        return None
    if record.chosen in live and record.winner.method == method:
        return record.winner
    return choose([known[identity] for identity in live])


def _hints(found: Found, question: Question, method: str) -> Iterator[TunedConfig]:
    """Yield a record's results of live configs: the chosen one, then by time, never a failed one.

    Only what was measured by ``method`` or imported counts: other times say something else.
    """
    record, winner = found.record, found.record.winner
    if not found.inexact and not winner.foreign:
        return  # measured here, and not for every live config: the others are measured as well
    method = winner.method if winner.foreign or record.pinned else method
    live = set(question.identities)
    known = [t for t in record.configs if t.ok and t.method == method and t.config in live]
    if winner in known:
        yield winner
    timed = (tuned for tuned in known if tuned.timed and tuned is not winner)
    yield from sorted(timed, key=one_key.timing_of)


def _choice(found: Found, question: Question, tuned: TunedConfig) -> StoredChoice:
    live = question.live
    inexact = (*found.inexact, "imported") if tuned.foreign else found.inexact
    results = found.record.results(tuned.method)
    timings = {
        config: one_key.timing_of(results[identity])
        for identity, config in live.items()
        if identity in results
    }
    return StoredChoice(live[tuned.config], tuned.config, found, inexact, timings)


def count(question: Question, choice: StoredChoice) -> None:
    """Count a choice that a launch takes, and an inexact one by itself."""
    record, key = choice.found.record, question.place[2].text
    config_counts.stored_hit(record, choice.found.layer)
    if choice.inexact:
        use = config_counts.use_of(record, key, choice.inexact, choice.identity)
        config_counts.inexact_use(use)
