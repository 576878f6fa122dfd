"""What became of the entries of a manifest: what warming and tuning report alike. Below both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from launchkit.dispatch.manifest.document import Unreplayable


@dataclass(frozen=True)
class ManifestEntry:
    """What became of one entry; subclasses say which ``status`` there are."""

    kernel: str
    launch: str
    """The kernel and its arguments, for people."""
    status: str
    reason: str | None
    """Why it is not as it was meant to be."""
    seconds: float


EntryT = TypeVar("EntryT", bound=ManifestEntry)


@dataclass(frozen=True)
class ManifestReport(Generic[EntryT]):
    """What became of all of them, and of what the manifest could not hold."""

    entries: tuple[EntryT, ...]
    unreplayable: tuple[Unreplayable, ...]
    """Kinds of launches that the manifest lists as impossible to replay, with reasons."""
    dropped: int
    """Kinds of launches that the manifest had no room for."""

    @property
    def counts(self) -> dict[str, int]:
        """Entries by status."""
        return dict(Counter(entry.status for entry in self.entries))

    def without(self, statuses: Collection[str]) -> bool:
        """Tell whether no entry has one of these, and nothing was missing from the manifest."""
        return not self.with_status(statuses) and not self.unreplayable and not self.dropped

    def with_status(self, statuses: Collection[str]) -> list[EntryT]:
        """Return the entries that have one of these."""
        return [entry for entry in self.entries if entry.status in statuses]

    def _told(self, faults: Collection[str]) -> Iterator[str]:
        """Yield each fault; what is below a reason's first line, once for a kernel."""
        told = set()
        for each in self.with_status(faults):
            reason = str(each.reason)
            first = reason.partition("\n")[0]
            kind = each.kernel, each.status, first
            yield f"{each.status}: {each.launch}: {first if kind in told else reason}"
            told.add(kind)

    def tables(self) -> dict[str, Any]:
        """Return what every report has, as plain data for JSON (docs/json.md)."""
        return {
            "counts": self.counts,
            "entries": [asdict(entry) for entry in self.entries],
            "unreplayable": [dict(each) for each in self.unreplayable],
            "dropped": self.dropped,
        }

    def summary(self, work: str, tail: str, faults: Collection[str]) -> str:
        """Return counts and every fault as text: ``work`` is "warm" or "tune"."""
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items())
        lines = [f"{counts or f'nothing to {work}'}{tail}"]
        lines += self._told(faults)
        past = {"warm": "warmed", "tune": "tuned"}[work]
        lines += [f"cannot be {past}: {each['kernel']}: {each['reason']}"
                  for each in self.unreplayable]  # fmt: skip
        if self.dropped:
            lines.append(f"{self.dropped} kinds of launches are not in the manifest: it was full")
        return "\n".join(lines)
