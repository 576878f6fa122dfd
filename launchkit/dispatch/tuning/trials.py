"""The trials of one key: configs launched, timed, compared. Between calls.py and one_key.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launchkit.configs import ConfigIdentity, TunedConfig, config_text
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.tuning import buffers, failures, methods
from launchkit.dispatch.tuning.calls import ConfigCall
from launchkit.dispatch.tuning.options import TuningOptions
from launchkit.dispatch.tuning.outputs import OutputCheck
from launchkit.dispatch.tuning.protection import Protection, poison
from launchkit.errors import LaunchkitError, ProtectionError, TuningStoppedError


@dataclass(frozen=True)
class Measured:
    """One live config and what its measurement said."""

    config: Any
    timing: Any
    """What the benchmark returned (milliseconds), as Triton keeps it; infinities for a failure."""
    tuned: TunedConfig
    error: Exception | None = None
    """What the launch raised that Triton does not count as «does not fit»."""


class Trials:
    """Tries configs of one kernel on the arguments of one launch.

    Raises what a benchmark, a hook or the grid raises; what a config's launch raises is a result.
    """

    def __init__(
        self,
        autotuner: Any,
        kernel: str,
        method: str,
        options: TuningOptions,
        protection: Protection,
    ) -> None:
        self._autotuner, self._kernel, self._method = autotuner, kernel, method
        self._protection = protection
        check = options.check_outputs
        tolerance = check if isinstance(check, tuple) else None
        self._check = OutputCheck(tolerance) if check is not False else None

    def run(self, place: int, config: Any, identity: ConfigIdentity) -> Measured:
        """Measure one config, which stands at ``place`` in the list.

        Raises:
            CaptureFailedError: a launch cannot be captured, and the method needs it.
            BrokenContextError: nothing can be launched any more.
        """
        call = self._call(config)

        def trial() -> Measured:
            timing, reps = methods.measure(self._autotuner, self._method, call)
            times_us = (
                [t * 1e3 for t in timing] if isinstance(timing, (list, tuple)) else timing * 1e3
            )
            tuned = TunedConfig.measured(
                identity, times_us, reps=reps or call.launches or None, method=self._method
            )
            if tuned.ok:
                self._compare(call, place, 1)
            return Measured(config, timing, tuned)

        return self._guarded(trial, call, config, identity)

    def compare_known(self, place: int, config: Any, identity: ConfigIdentity, weight: int) -> None:
        """Let a config that was measured before speak for ``weight`` that agreed, if asked to check."""
        if self._check is None:
            return
        call = self._call(config)

        def trial() -> Measured:
            call()
            self._compare(call, place, weight)
            return _failed(config, identity, "", self._method)

        self._guarded(trial, call, config, identity)

    def without_outliers(self, measured: Mapping[int, Measured]) -> dict[int, Measured]:
        """Return the results, those excluded whose outputs differ from most configs'."""
        results = dict(measured)
        for place, text in [] if self._check is None else self._check.outliers():
            if place in results:
                each = results[place]
                reason = f"OutputMismatch: {text}"
                results[place] = _failed(each.config, each.tuned.config, reason, self._method)
        return results

    def _call(self, config: Any) -> ConfigCall:
        outputs = self._check is not None
        return ConfigCall(self._autotuner, config, self._protection, outputs=outputs)

    def _compare(self, call: ConfigCall, place: int, weight: int) -> None:
        check = self._check
        if check is None:
            return
        self._protection.restore()
        names = call.named if call.does is None else call.does.written
        if call.does is not None:
            poison(call.named, call.does)
        outputs = buffers.named_tensors(call.named, names)

        def look() -> None:
            try:
                check.add(place, outputs, weight)
            except (RuntimeError, MemoryError) as error:
                if not failures.is_out_of_memory(error):
                    raise
                size = sum(t.nbytes for tensors in outputs.values() for t in tensors)
                raise ProtectionError(self._kernel, size, "its GPU") from error

        call.compare(look)

    def _guarded(
        self, trial: Callable[[], Measured], call: ConfigCall, config: Any, identity: ConfigIdentity
    ) -> Measured:
        """Run a trial; what its launch raises becomes a failed config."""
        try:
            result = trial()
        except failures.CaptureFailedError as error:
            self._stop_if_broken(identity, failures.reason_of(error))
            self._restore()
            raise
        except Exception as error:
            reason = failures.reason_of(error)
            if not isinstance(error, seam.CONFIG_ERRORS):
                self._stop_if_broken(identity, reason)
                if not _is_the_configs(error, call):
                    raise
            result = _failed(config, identity, reason, self._method)
            if not isinstance(error, seam.CONFIG_ERRORS):
                result = replace(result, error=error)
        self._restore()
        return result

    def _restore(self) -> None:
        self._protection.restore()

    def _stop_if_broken(self, identity: ConfigIdentity, reason: str) -> None:
        said = failures.broken_context()
        if said is None:
            return
        stopped = TuningStoppedError(self._kernel, config_text(identity), said)
        tuned = TunedConfig.failed(
            identity, f"{reason} (the GPU could not go on)", method=self._method
        )
        raise failures.BrokenContextError(stopped, tuned)


def _is_the_configs(error: Exception, call: ConfigCall) -> bool:
    """Tell whether it was a config's launch that raised, rather than a hook or the benchmark."""
    if isinstance(error, LaunchkitError) or failures.is_out_of_memory(error):
        return False
    return error is call.error


def _failed(config: Any, identity: ConfigIdentity, reason: str, method: str) -> Measured:
    tuned = TunedConfig.failed(identity, reason, method=method)
    return Measured(config, [math.inf] * 3, tuned)
