"""``planned``: an op of several launches, prepared once a kind and replayed. Above launcher.py."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, TypeVar

from launchkit import settings
from launchkit.dispatch import launcher
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native import extension, premises
from launchkit.dispatch.native.c_core import MAX_PARAMS
from launchkit.dispatch.op_making import NoPlanError, make_plan
from launchkit.dispatch.op_recording import Watched, is_watchable
from launchkit.errors import UsageError, VerifyError

_OpT = TypeVar("_OpT", bound=Callable[..., Any])

MAX_OP_PLANS = 512
"""Plans kept per op; beyond it the oldest quarter goes."""

_LONGEST_WAIT = 64
_REPLAYS = "replays"
_all_plans: weakref.WeakSet[Any] = weakref.WeakSet()


def planned(op: _OpT) -> _OpT:
    """Decorate a function that launches several kernels: calls like an earlier one are replayed.

    A replay checks the arguments, allocates, and launches, in one native call without a line of
    the function. It is taken only for arguments that equal those of a watched call in everything
    but tensors' contents and addresses; docs/op_plans.md says what else is guarded.

    What the function does must follow from its arguments' types, sizes, strides, dtypes, devices,
    16-byte alignment, overlaps and plain values, and be launches through launchkit alone, into
    arguments or what ``torch.empty`` and its like gave it. A call in which anything else was seen
    gets no plan. ``planned(op).op_plans`` tells what became of the calls.

    Raises:
        UsageError: it is no function, suspends itself, or takes ``*args`` or ``**kwargs``.
    """
    _check(op)
    native = extension.active()
    plans = OpPlans(op, native)
    made: Any = op
    if native is not None and plans.core is not None:
        made = native.make_op(functools.partial, plans.core)
        functools.update_wrapper(made, op)
    made.op_plans = plans
    return made  # type: ignore[no-any-return]


def _check(op: Any) -> None:
    suspends = (
        inspect.iscoroutinefunction(op)
        or inspect.isgeneratorfunction(op)
        or inspect.isasyncgenfunction(op)
    )
    if not inspect.isfunction(op) or suspends:
        raise UsageError(
            f"{op!r} is not a function that returns when it is done. Decorate a plain function.",
            op=getattr(op, "__qualname__", repr(op)),
        )
    kinds = {parameter.kind for parameter in inspect.signature(op).parameters.values()}
    if kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        raise UsageError(
            f"{op.__qualname__} takes *args or **kwargs. Name its parameters.", op=op.__qualname__
        )


@dataclass
class _Refusal:
    """Why a kind of call has no plan, and how many came since."""

    reason: str
    final: bool
    calls: int = 0

    def is_due(self) -> bool:
        """Count a call, and tell whether it is to be watched again."""
        self.calls += 1
        often = self.calls & (self.calls - 1) == 0 or self.calls % _LONGEST_WAIT == 0
        return often and not self.final


class OpPlans:
    """What became of the calls of a planned op: ``op.op_plans``."""

    def __init__(self, op: Callable[..., Any], native: Any) -> None:
        self._op = op
        self.name = f"{op.__module__}.{op.__qualname__}"
        self._native = native
        self._refusals: dict[bytes, _Refusal] = {}
        # What was counted before stats(reset=True).
        self._before: Counter[str] = Counter()
        _all_plans.add(self)
        self.core: Any = None
        parameters = list(inspect.signature(op).parameters.values())
        if native is not None and len(parameters) <= MAX_PARAMS and extension.makes_op_plans():
            positional = sum(each.kind is not Parameter.KEYWORD_ONLY for each in parameters)
            specs = tuple(
                (
                    each.name,
                    premises.ABSENT if each.default is Parameter.empty else each.default,
                    each.kind is not Parameter.POSITIONAL_ONLY,
                )
                for each in parameters
            )
            self.core = native.OpCore(op, self, specs, positional, MAX_OP_PLANS)

    # -- for people

    @property
    def replays(self) -> int:
        """How many calls were replayed."""
        return 0 if self.core is None else int(self.core.replays)

    @property
    def reasons(self) -> dict[str, int]:
        """How many calls ran the op as it is, by reason."""
        return {} if self.core is None else dict(self.core.reasons)

    def counted(self) -> tuple[int, Counter[str]]:
        """Return replays and calls as it is by reason, since ``stats(reset=True)``."""
        since = Counter(self.reasons) - self._before
        return self.replays - self._before[_REPLAYS], since

    def start_counting(self) -> None:
        """Let ``counted`` begin here."""
        self._before = Counter({**self.reasons, _REPLAYS: self.replays})

    def __len__(self) -> int:
        return 0 if self.core is None else len(self.core.plans())

    @property
    def plans(self) -> list[OpPlanFacts]:
        """The plans that are kept, oldest first."""
        kept = [] if self.core is None else self.core.plans()
        return [OpPlanFacts.of(plan) for plan in kept]

    def clear(self) -> None:
        """Forget every plan, and why there is none; counts stay."""
        self._refusals.clear()
        if self.core is not None:
            self.core.clear()

    def __repr__(self) -> str:
        return (
            f"<op plans of {self._op.__qualname__}: {len(self)} plans, {self.replays} replays, "
            f"as it is: {self.reasons}>"
        )

    # -- for the C core, which calls these by name

    def arm(self) -> None:
        """Bring the core up to what holds now, if there can be op plans."""
        self._refusals.clear()
        reason = self._obstacle()
        source = None if reason else seam.device_source()
        if source is not None and source.tensors_on_cuda and source.stream is not None:
            reason = "the driver's streams are not torch's"
        watches = None if reason else premises.of_core(None, None, choose_only=True)
        if reason or source is None or watches is None:
            self.core.clear()
            self.core.count(reason or "the driver cannot be watched")
            return
        found = self._native.WatchSet(*watches)
        self.core.arm(
            found, source.device, source.stream, source.dlpack_type, source.tensors_on_cuda
        )

    def _obstacle(self) -> str | None:
        if settings.current().disable:
            return "LAUNCHKIT_DISABLE=1"
        if seam.interpreting():
            return "kernels are interpreted"
        try:
            seam.require_driver()
        except UsageError:
            return "there is no GPU driver"
        return extension.obstacle()

    def run(
        self,
        key: bytes,
        tensors: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call the op, and watch it where a plan may come of that."""
        refusal = self._refusals.get(key)
        verify = settings.current().verify
        if launcher.launch_slot_is_set():
            reason: str | None = "launches are being recorded"
        elif not is_watchable():
            reason = "a profiler watches this thread"
        elif refusal is not None and not verify and not refusal.is_due():
            reason = refusal.reason
        else:
            return self._watch(key, tensors, args, kwargs, verify)
        self.core.count(reason)
        return self._op(*args, **kwargs)

    def _watch(
        self,
        key: bytes,
        tensors: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        verify: bool,
    ) -> Any:
        known = self.core.find(key) if verify else None
        held = known is not None and known.hold()
        watched = Watched(self._native)
        result = watched.call(self._op, args, kwargs)
        try:
            plan = make_plan(self._native, key, watched, tensors, result, direct=not verify)
        except NoPlanError as refusal:
            if held and refusal.final:
                self._raise_difference(known, refusal.reason)
            self._refuse(key, refusal)
            return result
        if held and _described(known) != _described(plan):
            self._raise_difference(known, plan)
        self._refusals.pop(key, None)
        self.core.count("watched")
        self.core.keep(plan)
        return result

    def _refuse(self, key: bytes, refusal: NoPlanError) -> None:
        self.core.count(refusal.reason)
        if len(self._refusals) >= 4 * MAX_OP_PLANS:
            self._refusals.clear()
        known = self._refusals.get(key)
        calls = 0 if known is None else known.calls
        self._refusals[key] = _Refusal(refusal.reason, refusal.final, calls)

    def _raise_difference(self, planned_: Any, found: Any) -> None:
        name = self._op.__qualname__
        expected = found if isinstance(found, str) else _described(found)
        raise VerifyError(
            f"the op plan of {name} differs from what the op does now, for arguments that are "
            "equal to it. Make it follow from its arguments alone, or take planned off it.",
            kernel=name,
            planned=str(_described(planned_)),
            expected=str(expected),
        )


def counts() -> dict[str, tuple[int, Counter[str]]]:
    """Return replays and calls as it is by reason, of each op that was called, by name.

    Of ops that are gone nothing is known any more.
    """
    found: dict[str, tuple[int, Counter[str]]] = {}
    for plans in list(_all_plans):
        replays, reasons = plans.counted()
        if replays or reasons:
            before = found.get(plans.name, (0, Counter()))
            found[plans.name] = before[0] + replays, before[1] + reasons
    return found


def reset_counts() -> None:
    """Let ``counts`` begin here."""
    for plans in list(_all_plans):
        plans.start_counting()


def forget_all() -> None:
    """Forget the plans of every op: other configs hold from here on."""
    for plans in list(_all_plans):
        plans.clear()


def _described(plan: Any) -> Any:
    return plan.launches(), plan.returned, plan.workspace_bytes


@dataclass(frozen=True)
class OpPlanFacts:
    """One plan of an op: what a replay does."""

    kernels: tuple[str, ...]
    """Names of the kernels, in the order of their launches."""
    workspace_bytes: int
    """What a replay allocates for tensors that the op does not return."""
    results: int
    """How many tensors it allocates because the op returns them."""

    @classmethod
    def of(cls, plan: Any) -> OpPlanFacts:
        """Return the facts of a plan of the C core."""
        return cls(
            kernels=tuple(launch[0].name for launch in plan.launches()),
            workspace_bytes=plan.workspace_bytes,
            results=len(plan.returned[2]),
        )
