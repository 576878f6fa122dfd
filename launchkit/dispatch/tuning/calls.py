"""One config's launch while it is measured: hooks, protection, compilation. Below trials.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launchkit.dispatch.layers import named_arguments, triton_run
from launchkit.dispatch.tuning.accesses import Accesses, accesses_of
from launchkit.dispatch.tuning.protection import Protection


class ConfigCall:
    """Launches one config; what a benchmark function calls.

    ``error`` is what the last launch raised: from Triton, not from hooks, the grid or the benchmark.

    Raises ValueError for a config that gives what the launch gives too, as Triton does.
    """

    def __init__(
        self, autotuner: Any, config: Any, protection: Protection, *, outputs: bool
    ) -> None:
        args, kwargs = protection.arguments
        clash = kwargs.keys() & config.kwargs.keys()
        if clash:
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(sorted(clash))}. "
                "Make sure that you don't re-define auto-tuned symbols."
            )
        self._config = config
        self._run = triton_run(autotuner.fn)
        self._args: tuple[Any, ...] = args
        self._given_grid = kwargs["grid"]
        grid = self._grid if callable(self._given_grid) else self._given_grid
        self._kwargs: Mapping[str, Any] = {**kwargs, **config.all_kwargs(), "grid": grid}
        self._grid_error: Exception | None = None
        self._guard = InputGuard(autotuner)
        self._protection = protection
        self._outputs = outputs
        self.named = named_arguments(autotuner, config, args, kwargs)
        self.does: Accesses | None = None
        """What the kernel reads and writes; None where that is not known, or not asked."""
        self.launches = 0
        self.error: Exception | None = None

    def __call__(self) -> None:
        """Launch once."""
        self._launch(None)

    def compare(self, look: Callable[[], None]) -> None:
        """Launch once, and call ``look`` before hooks take back what was written."""
        self._launch(look)

    def _launch(self, look: Callable[[], None] | None) -> None:
        self.error = None
        if self._config.pre_hook:
            self._config.pre_hook(self.named)
        if self.launches == 0:
            self._prepare()
        self.launches += 1
        self._guard.enter(self.named)
        try:
            self._triton(self._kwargs)
            if look is not None:
                look()
        except Exception as error:
            self._guard.leave(self.named, error)
            raise
        self._guard.leave(self.named, None)

    def _triton(self, kwargs: Mapping[str, Any]) -> Any:
        try:
            return self._run(*self._args, **kwargs)
        except Exception as error:
            self.error = None if error is self._grid_error else error
            raise

    def _grid(self, bound: Any) -> Any:
        try:
            return self._given_grid(bound)
        except Exception as error:
            self._grid_error = error
            raise

    def _prepare(self) -> None:
        """Protect what the kernel will write, which what Triton compiles for it tells."""
        if not (self._protection.asks or self._outputs):
            return
        try:
            compiled = self._triton({**self._kwargs, "warmup": True})
        except Exception:
            # A hook of the user's own may make the arguments fit; else the launch fails as well.
            if self._guard.is_tritons:
                raise
            compiled = None
        self.does = accesses_of(compiled)
        self._protection.before(
            self.named, self.does, self._guard.restored, all_written=self._outputs
        )


class InputGuard:
    """reset_to_zero and restore_value of one measurement, with its copies kept to itself."""

    def __init__(self, autotuner: Any) -> None:
        self._autotuner = autotuner
        self._own_enter = not getattr(autotuner, "user_defined_pre_hook", False)
        self._own_leave = not getattr(autotuner, "user_defined_post_hook", False)
        self._copies: dict[str, Any] = {}

    @property
    def is_tritons(self) -> bool:
        """Whether no hook of the user's own runs before each launch."""
        return self._own_enter

    @property
    def restored(self) -> list[str]:
        """The names whose values are restored after each launch, or zeroed before the next."""
        if not (self._own_enter and self._own_leave):
            return []
        return [*self._autotuner.restore_value, *self._autotuner.reset_to_zero]

    def enter(self, named: dict[str, Any]) -> None:
        """Do what is due before a launch."""
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
        """Do what is due after a launch, or after the error that it ended with."""
        if not self._own_leave:
            self._autotuner.post_hook(named, exception=error)
            return
        for name, saved in self._copies.items():
            named[name].copy_(saved)
        self._copies = {}

    def reset(self, named: dict[str, Any]) -> None:
        """Zero what the kernel accumulates into, as Triton does between tuning and launch."""
        if not self._own_enter:
            self._autotuner.pre_hook(named, reset_only=True)
            return
        kept = set(self._autotuner.restore_value)
        self._zero(named, [name for name in self._autotuner.reset_to_zero if name not in kept])

    def _zero(self, named: dict[str, Any], names: Sequence[str]) -> None:
        for name in names:
            if named.get(name) is not None:
                named[name].zero_()
