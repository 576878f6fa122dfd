"""Kernels that host-only mode compiles but does not execute, executed in Python while tuning."""

from __future__ import annotations

from launchkit.dispatch.tuning import calls as tuning_calls


class Executed:
    """Runs ``effect(arguments)`` at each launch of a tuning, with the launch's own tensors.

    ``arguments`` are by name, the config's values among them; ``launches`` keeps them.
    """

    def __init__(self, monkeypatch, effect):
        self.effect = effect
        self.launches = []
        real = tuning_calls.triton_run

        def triton_run(kernel):
            run = real(kernel)

            def launch(*args, **kwargs):
                compiled = run(*args, **kwargs)
                if not kwargs["warmup"]:
                    named = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
                    self.launches.append(named)
                    self.effect(named)
                return compiled

            return launch

        monkeypatch.setattr(tuning_calls, "triton_run", triton_run)


def times(milliseconds=1.0, launches=3):
    """A benchmark function that launches a few times and gives each config the same time."""

    def bench(call, quantiles):
        for _ in range(launches):
            call()
        return [milliseconds] * 3

    return bench
