"""LAUNCHKIT_VERIFY=1 for frozen handles. Between verifying.py and frozen.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.frozen_plan import FrozenPlan, named_params
from launchkit.dispatch.verifying import (
    PassedLaunch,
    compare,
    compare_compiled,
    passed_launch,
    signature_of,
)
from launchkit.errors import VerifyError

if TYPE_CHECKING:
    from launchkit.dispatch.frozen import FrozenLaunch

_WHAT = "frozen launch"


def verify_frozen(
    handle: FrozenLaunch,
    plan: FrozenPlan,
    values: Mapping[str, Any],
    launched: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:
    """Compare what a call of a handle would launch with what Triton would; nothing is launched.

    ``values``: every argument by name as it is now; ``launched``: the same with the memory that
    frozen tensors had; ``given``: those that vary. A grid function is called for either.

    Raises:
        VerifyError: they differ.
    """
    compiled = seam.compiled_variant(plan.jit, (), {**values, **plan.options})
    same = getattr(compiled, "hash", None) == plan.compiled.hash
    compare_compiled(handle.name, _WHAT, plan.compiled, compiled, same)
    _check_memory(handle.name, plan, given)
    bound = seam.bound_arguments(plan.jit, (), {**values, **plan.options})
    grid = handle.grid(bound) if callable(handle.grid) else handle.grid
    passed = handle.preview(values, given)
    expand = len(passed) > 1
    # Of one hash, but maybe loaded a second time: the handle keeps its own.
    expected = passed_launch(plan.compiled, grid, _params(plan, bound, expand))
    if expand:
        planned = _of_words(passed, expected)
    else:
        planned = passed_launch(plan.compiled, passed[0], _params(plan, launched, expand))
        if plan.launch is not None:
            planned = replace(planned, function=plan.launch.function)
    compare(handle.name, _WHAT, planned, expected)


def _params(
    plan: FrozenPlan, values: Mapping[str, Any], expand: bool
) -> Iterator[tuple[str, str, Any]]:
    """Yield name, type and value of each parameter; ``expand``: of what a descriptor becomes."""
    kinds = list(signature_of(plan.compiled))
    if not expand:
        return ((name, kind, values[name]) for name, kind in kinds)
    return (param[:3] for param in named_params(plan.compiled, kinds, values, {}))


def _of_words(passed: tuple[Any, ...], expected: PassedLaunch) -> PassedLaunch:
    """Return what the C core passes; of each word as many bytes as its parameter has."""
    function, grid, threads, shared_bytes, words = passed
    known = [*expected.params, *(("", None) for _ in words[len(expected.params) :])]
    params = tuple(
        (name, word if theirs is None else word[: len(theirs)])
        for (name, theirs), word in zip(known, words, strict=False)
    )
    return PassedLaunch(function, grid, threads, shared_bytes, params)


def _check_memory(name: str, plan: FrozenPlan, given: Mapping[str, Any]) -> None:
    moved = plan.moved(given)
    if moved is not None:
        raise VerifyError(
            f"{moved}, which the launch of {name} was frozen with, has got other memory, and the "
            "launch takes what it had. Freeze another handle, or let it vary.",
            kernel=name,
            argument=moved,
        )
