"""How a kernel asks to be tuned: what is measured, what tuning may touch. A leaf of tuning.

``@autotuned`` leaves the options on the kernel; a kernel of Triton's own decorator has the defaults.
"""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from launchkit import settings
from launchkit.dispatch import triton_seam as seam
from launchkit.errors import UsageError

logger = logging.getLogger("launchkit")

Measure: TypeAlias = Literal["eager", "graph"]
L2: TypeAlias = Literal["warm", "cold"]
Protect: TypeAlias = Literal["auto", "copies", "none"]

EAGER = "eager"
"""The method of a kernel that asks for nothing: single launches, timed by its benchmark function
as Triton's Autotuner has them timed. Triton's own empties the L2 cache before each."""


@dataclass(frozen=True)
class TuningOptions:
    """What ``@autotuned`` was asked for.

    Raises UsageError for an option that is none of its values, and for a check of outputs on
    arguments that nothing protects.
    """

    measure: Measure | None = None
    l2: L2 | None = None
    protect: Protect = "auto"
    check_outputs: bool | tuple[float, float] = False
    """True, or (relative, absolute) tolerance."""

    def __post_init__(self) -> None:
        _one_of("measure", self.measure, (None, "eager", "graph"))
        _one_of("l2", self.l2, (None, "warm", "cold"))
        _one_of("protect", self.protect, ("auto", "copies", "none"))
        _check_tolerance(self.check_outputs)
        if self.check_outputs is not False and self.protect == "none":
            raise UsageError(
                'check_outputs gives each config the same inputs, which protect="none" does not '
                'keep. Leave protect at "auto", or give "copies".',
                option="check_outputs",
            )


def _one_of(option: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        listed = ", ".join(map(repr, known))
        raise UsageError(f"{option} is {value!r}. Give one of {listed}.", option=option)


def _check_tolerance(value: Any) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, tuple) and len(value) == 2 and all(_is_tolerance(each) for each in value):
        return
    raise UsageError(
        f"check_outputs is {value!r}. Give True, False, or (relative, absolute) tolerance.",
        option="check_outputs",
    )


def _is_tolerance(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


_DEFAULT = TuningOptions()


def options_of(autotuner: Any) -> TuningOptions:
    """Return the options of a kernel."""
    options = getattr(autotuner, "tuning_options", None)
    return options if isinstance(options, TuningOptions) else _DEFAULT


def method_of(autotuner: Any) -> str:
    """Return how a kernel's configs are timed; results by other methods do not count for it.

    ``eager`` as Triton times them, ``eager+cold`` and ``eager+warm`` with the L2 cache emptied
    before each launch or left alone, ``graph`` for replays of a CUDA graph with a warm cache,
    ``graph+cold``. Where no graph can be captured, the eager one of the same cache.
    """
    if getattr(autotuner, "use_cuda_graph", False):
        return "graph"
    if has_own_benchmark(autotuner):
        return EAGER
    asked = _asked(options_of(autotuner))
    if not asked.startswith("graph") or _graph_obstacle(autotuner) is None:
        return asked
    return asked.replace("graph", EAGER, 1)


def has_own_benchmark(autotuner: Any) -> bool:
    """Tell whether a kernel brings a benchmark function, given to its decorator or assigned."""
    if getattr(autotuner, "_do_bench", None) is not None:
        return True
    # Triton keeps its own there once it has been asked for.
    assigned = vars(autotuner).get("do_bench")
    return assigned is not None and getattr(assigned, "__module__", None) != "triton.testing"


def _asked(options: TuningOptions) -> str:
    if options.measure is None and options.l2 is None:
        method = settings.current().measure or EAGER
    else:
        method = (options.measure or EAGER) + ("" if options.l2 is None else f"+{options.l2}")
    return "graph" if method == "graph+warm" else method


_lock = threading.Lock()
_obstacles: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_told: set[str] = set()


def _graph_obstacle(autotuner: Any) -> str | None:
    """Return why a kernel's launches are not timed as replays of a CUDA graph, or None."""
    if not executes_on_cuda():
        reason = "no GPU executes launches here"
        with _lock:
            told = reason in _told
            _told.add(reason)
        if not told:
            logger.info("configs are timed as eager launches: %s", reason)
        return reason
    return _obstacles.get(autotuner)


def executes_on_cuda() -> bool:
    """Tell whether launches run on a GPU that torch can time."""
    return seam.executes() and torch.cuda.is_available()


def refuse_graph(autotuner: Any, kernel: str, reason: str) -> None:
    """Time a kernel's configs eagerly from here on: its launch could not be captured."""
    _obstacles[autotuner] = reason
    logger.warning(
        "%s cannot be captured into a CUDA graph, so its configs are timed as eager launches: %s. "
        'Give it measure="eager" if that is how it is launched.',
        kernel,
        reason,
    )
