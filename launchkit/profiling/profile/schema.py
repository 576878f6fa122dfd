"""What a profile file must hold, checked on reading. Above schema_parts."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from launchkit.profiling.schema_parts import Count, Int, Layer, Part, UtcNs, are_even

_Ns = Annotated[float, Field(ge=-(2.0**62), le=2.0**62)]


def _spoken(text: str) -> str:
    text.encode()  # lone surrogates are no text: UnicodeEncodeError is a ValueError
    return text


_Text = Annotated[str, AfterValidator(_spoken)]
_Name = Annotated[_Text, Field(min_length=1, max_length=100_000)]


class ProcessPart(Part):
    """The process, and when its recording began and ended on the clock of the times."""

    pid: Count
    rank: Count | None = None
    start_ns: Int
    end_ns: Int
    utc_ns: UtcNs


class ThreadPart(Part):
    """A thread, and what it launched."""

    name: _Text
    native_id: Int
    launches: Count
    failed: Count
    total_ns: _Ns


class RangePart(Part):
    """A range inside ``parent`` (its place in the list), and its visits."""

    parent: Count
    name: _Name
    layer: Layer | None = None
    op: _Name | None = None
    calls: Count
    ns: Int
    within_ns: Int
    started_ns: list[Int]
    length_ns: list[Int]
    within_each_ns: list[Int]
    recorder_ns: list[Int] = Field(default_factory=list)
    """The recorder's share in each, which its length is without; the first files have none."""
    thread: list[Count]

    @model_validator(mode="after")
    def _even(self) -> RangePart:
        columns = [self.started_ns, self.length_ns, self.within_each_ns, self.thread]
        columns += [self.recorder_ns] if self.recorder_ns else []
        if not are_even(*columns) or len(self.thread) > self.calls:
            raise ValueError("its columns differ in length, or there are more visits than calls")
        return self


class PhasePart(Part):
    """A phase of launches: how many, their ns, and those of the first ones singly."""

    launches: Count
    ns: _Ns
    each_ns: list[Int]


class LaunchesPart(Part):
    """The launches of a kernel, or replays of an op, made directly in ``range``; 0: in none."""

    range: Count
    kernel: _Name | None = None
    op: _Name | None = None
    launches: Count
    failed: Count
    ns: _Ns
    phases: dict[str, PhasePart]
    started_ns: list[Int]
    each_ns: list[Int]
    thread: list[Count]
    phase_at: list[Annotated[int, Field(ge=-1)]]

    @model_validator(mode="after")
    def _even(self) -> LaunchesPart:
        columns = (self.started_ns, self.each_ns, self.thread, self.phase_at)
        if not are_even(*columns) or len(self.thread) > self.launches:
            raise ValueError(
                "its columns differ in length, or there are more of them than launches"
            )
        kept = min((len(phase.each_ns) for phase in self.phases.values()), default=0)
        if max(self.phase_at, default=-1) >= kept:
            raise ValueError("a launch's phases are not in the file")
        if self.kernel is None and self.op is None:
            raise ValueError("it names neither a kernel nor an op")
        return self


class ProfileDocument(Part):
    """A whole profile file. ``ranges`` begins behind the root, which is number 0."""

    mode: _Text
    sample_every: Annotated[int, Field(ge=1, le=2**31)]
    seen: Count
    lost: Count
    host_only_launches: Count
    calibration: dict[str, Annotated[float, Field(ge=-1e12, le=1e12)]]
    process: ProcessPart
    threads: list[ThreadPart]
    ranges: list[RangePart]
    launches: list[LaunchesPart]

    @model_validator(mode="after")
    def _linked(self) -> ProfileDocument:
        threads, ranges = len(self.threads), len(self.ranges) + 1
        if any(each.parent > place for place, each in enumerate(self.ranges)):
            raise ValueError("a range stands before the one around it")
        if any(each.range >= ranges for each in self.launches):
            raise ValueError("launches are in a range that the file does not have")
        columns = [each.thread for each in self.ranges] + [each.thread for each in self.launches]
        if any(max(column, default=0) >= threads for column in columns if column):
            raise ValueError("a launch or range is of a thread that the file does not have")
        return self
