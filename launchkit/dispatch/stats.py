"""``stats`` and ``count_launches``: what launched fast, what through Triton. Above launcher.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from launchkit.dispatch import config_counts, launch_counts, launcher, op_plans
from launchkit.dispatch.config_counts import InexactUse
from launchkit.dispatch.stopping import Stoppable


@dataclass(frozen=True)
class KernelStats:
    """The launches of one kernel since the process began or ``stats(reset=True)``."""

    kernel: str
    """Its declared name, or ``module.qualname`` of its function."""
    fast: int | None
    """Launches that took the shortcut, those of replays included; None: nobody counted (see
    ``count_launches``)."""
    replayed: int
    """How many of them a replay of a planned op made."""
    through_triton: Mapping[str, int]
    """Launches that took the long way, by reason; counted always."""

    @property
    def slow(self) -> int:
        """All launches that took the long way."""
        return sum(self.through_triton.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        reasons = dict(sorted(self.through_triton.items()))
        return {
            "kernel": self.kernel,
            "fast": self.fast,
            "replayed": self.replayed,
            "through_triton": reasons,
        }


@dataclass(frozen=True)
class OpStats:
    """The calls of a planned op since it was made or ``stats(reset=True)``."""

    op: str
    """``module.qualname`` of its function."""
    replays: int
    """Calls that were replayed from a plan."""
    as_it_is: Mapping[str, int]
    """Calls that ran the function, by reason; ``watched`` are those that a plan may have come of."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "op": self.op,
            "replays": self.replays,
            "as_it_is": dict(sorted(self.as_it_is.items())),
        }


@dataclass(frozen=True)
class ConfigStats:
    """How launches of the long way came by their configs, since the process began or
    ``stats(reset=True)``. A key is counted when it is chosen for, not at each launch.
    """

    hits: Mapping[str, int] = field(default_factory=dict)
    """By layer: ``this process``, ``Triton's Autotuner``, or what the store says of itself."""
    misses: Mapping[str, int] = field(default_factory=dict)
    """By reason, where no stored config answered."""
    inexact: Mapping[str, int] = field(default_factory=dict)
    """Hits that are stale but usable, and to be verified again, by what is not exact: ``device``,
    ``toolchain``, ``shape``, ``imported``."""
    tunings: int = 0
    tuning_s: float = 0.0
    """Seconds that tuning took in this process."""
    saved_s: float = 0.0
    """Seconds that it took where the stored configs come from."""
    tune_next: tuple[InexactUse, ...] = ()
    """The inexact uses one by one, the latest last: what to tune next."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "hits": dict(sorted(self.hits.items())),
            "misses": dict(sorted(self.misses.items())),
            "inexact": dict(sorted(self.inexact.items())),
            "tunings": self.tunings,
            "tuning_s": self.tuning_s,
            "saved_s": self.saved_s,
            "tune_next": [use.as_dict() for use in self.tune_next],
        }

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no config was looked up"

    def lines(self) -> list[str]:
        """Return the rows of a table; none where nothing was counted."""
        if not (self.hits or self.misses):
            return []
        lines = [f"{'':10}  {'':10}  {'configs':>10}  from"]
        lines += [f"{'':22}  {count:>10}  {layer}" for layer, count in sorted(self.hits.items())]
        lines += _reason_lines({f"miss: {reason}": n for reason, n in self.misses.items()})
        stale = {f"stale, verify again: {kind}": n for kind, n in self.inexact.items()}
        lines += _reason_lines(stale)
        return [
            *lines,
            f"{'':22}  {self.tuning_s:>10.1f}    seconds of tuning; saved: {self.saved_s:.1f}",
        ]


class LaunchStats(Mapping[str, KernelStats]):
    """``KernelStats`` by kernel name, sorted, ``ops`` and ``configs``; printed, it is a table."""

    def __init__(
        self,
        rows: Mapping[str, KernelStats],
        ops: Mapping[str, OpStats] = MappingProxyType({}),
        configs: ConfigStats | None = None,
    ) -> None:
        self._rows = dict(sorted(rows.items()))
        self.ops: Mapping[str, OpStats] = dict(sorted(ops.items()))
        """Planned ops that were called, by name. Ops of one name are counted together."""
        self.configs: ConfigStats = configs or ConfigStats()
        """Where configs came from, and what tuning took."""

    def __getitem__(self, kernel: str) -> KernelStats:
        return self._rows[kernel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: ``kernels`` and ``ops``, a list each, and ``configs`` (docs/json.md)."""
        return {
            "kernels": [row.as_dict() for row in self._rows.values()],
            "ops": [op.as_dict() for op in self.ops.values()],
            "configs": self.configs.as_dict(),
        }

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{'fast':>10}  {'replayed':>10}  {'Triton':>10}  kernel"]
        for row in self._rows.values():
            fast = "-" if row.fast is None else row.fast
            lines.append(f"{fast:>10}  {row.replayed or '':>10}  {row.slow:>10}  {row.kernel}")
            lines += _reason_lines(row.through_triton)
        if self.ops:
            lines.append(f"{'':10}  {'replays':>10}  {'as it is':>10}  op")
        for op in self.ops.values():
            total = sum(op.as_it_is.values())
            lines.append(f"{'':10}  {op.replays:>10}  {total:>10}  {op.op}")
            lines += _reason_lines(op.as_it_is)
        if len(lines) == 1:
            lines.append("no launch was counted")
        return "\n".join(lines + self.configs.lines())


def _reason_lines(counts: Mapping[str, int]) -> list[str]:
    return [f"{'':22}  {count:>10}    {reason}" for reason, count in sorted(counts.items())]


def stats(*, reset: bool = False) -> LaunchStats:
    """Return how the launches of each kernel went, for kernels that launchkit has launched.

    Launches through Triton are counted always, by reason, and fast ones of the C core as well,
    those in replays of planned ops included, whose calls are in ``ops``.
    Those of the Python core, where a counter costs, are only while ``count_launches`` is on. A launch
    through an autotuner with a ``run`` of its own is counted with that reason, and under
    ``install()`` what it launches beneath is counted as well, its benchmarks included. A
    launch that raises is not counted.

    Args:
        reset: start all counts again from here; ``op_plans`` of an op goes on counting.
    """
    found = launch_counts.snapshot()
    ops = op_plans.counts()
    configs = ConfigStats(*config_counts.snapshot())
    if reset:
        launch_counts.reset()
        config_counts.reset()
        op_plans.reset_counts()
    names = {kernel for kernel, _ in found.through_triton}
    names |= {kernel for kernel, count in found.fast.items() if count}
    return LaunchStats(
        {
            name: KernelStats(
                name,
                found.fast.get(name, 0),
                found.replayed.get(name, 0),
                {
                    reason: count
                    for (kernel, reason), count in found.through_triton.items()
                    if kernel == name
                },
            )
            for name in names
        },
        {name: OpStats(name, replays, reasons) for name, (replays, reasons) in ops.items()},
        configs,
    )


class count_launches(Stoppable):  # noqa: N801 - reads as a function, and as a context manager
    """Count the fast launches of the Python core too, from here on or within a block.

    ``stats()`` has the counts. Costs each launch of that core about a microsecond, and nothing
    where it is off; the C core counts by itself. Nests.
    """

    def __init__(self) -> None:
        self._counts = True
        if launch_counts.begin():
            launcher.relink_all()

    def stop(self) -> None:
        """Stop counting; again: does nothing. The counts stay."""
        if self._counts:
            self._counts = False
            if launch_counts.end():
                launcher.relink_all()
