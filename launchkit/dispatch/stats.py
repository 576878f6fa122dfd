"""``stats`` and ``count_launches``: what launched fast, and what went through Triton and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from launchkit.dispatch import counting, launcher

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class KernelStats:
    """The launches of one kernel since the process began or ``stats(reset=True)``."""

    kernel: str
    """Its declared name, or ``module.qualname`` of its function."""
    fast: int | None
    """Launches that took the shortcut; None: nobody counted (see ``count_launches``)."""
    through_triton: Mapping[str, int]
    """Launches that took the long way, by reason; counted always."""

    @property
    def slow(self) -> int:
        """All launches that took the long way."""
        return sum(self.through_triton.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        reasons = dict(sorted(self.through_triton.items()))
        return {"kernel": self.kernel, "fast": self.fast, "through_triton": reasons}


class LaunchStats(Mapping[str, KernelStats]):
    """``KernelStats`` by kernel name, sorted; printed, it is a table."""

    def __init__(self, rows: Mapping[str, KernelStats]) -> None:
        self._rows = dict(sorted(rows.items()))

    def __getitem__(self, kernel: str) -> KernelStats:
        return self._rows[kernel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: ``{"kernels": [{kernel, fast, through_triton}, ...]}``."""
        return {"kernels": [row.as_dict() for row in self._rows.values()]}

    def __str__(self) -> str:
        lines = [f"{'fast':>10}  {'Triton':>10}  kernel"]
        for row in self._rows.values():
            fast = "-" if row.fast is None else row.fast
            lines.append(f"{fast:>10}  {row.slow:>10}  {row.kernel}")
            lines += [
                f"{'':10}  {count:>10}    {reason}"
                for reason, count in sorted(row.through_triton.items())
            ]
        return "\n".join(lines)


def stats(*, reset: bool = False) -> LaunchStats:
    """Return how the launches of each kernel went, for kernels that launchkit has launched.

    Launches through Triton are counted always, by reason, and fast ones of the C core as well.
    Those of the Python core, where a counter costs, are only while ``count_launches`` is on. A launch
    through an autotuner with a ``run`` of its own is counted with that reason, and under
    ``install()`` what it launches beneath is counted as well, its benchmarks included. A
    launch that raises is not counted.

    Args:
        reset: start all counts again from here.
    """
    slow, fast = counting.snapshot()
    if reset:
        counting.reset()
    names = {kernel for kernel, _ in slow} | {kernel for kernel, count in fast.items() if count}
    return LaunchStats(
        {
            name: KernelStats(
                name,
                fast.get(name, 0),
                {reason: count for (kernel, reason), count in slow.items() if kernel == name},
            )
            for name in names
        }
    )


class count_launches:  # noqa: N801 - reads as a function, and as a context manager
    """Count the fast launches of the Python core too, from here on or within a block.

    ``stats()`` has the counts. Costs each launch of that core about a microsecond, and nothing
    where it is off; the C core counts by itself. Nests.
    """

    def __init__(self) -> None:
        self._counts = True
        if counting.begin():
            launcher.relink_all()

    def stop(self) -> None:
        """Stop counting; again: does nothing. The counts stay."""
        if self._counts:
            self._counts = False
            if counting.end():
                launcher.relink_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
