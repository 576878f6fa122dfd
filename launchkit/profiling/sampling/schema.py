"""What a file of samples must hold, checked on reading. Above schema_parts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from launchkit.profiling.schema_parts import Count, Int, Layer, Part, UtcNs, are_even

MOST_SAMPLES = 20_000_000
"""Eleven hours of one thread at 500 a second."""


class ClockPart(Part):
    """How the sampler's clock was set: by how many marks, and how far it may be off."""

    marks: Count
    uncertainty_ns: Count


class SamplerPart(Part):
    """How py-spy sampled, and what it said at its end."""

    version: str
    rate_hz: Annotated[int, Field(ge=1, le=10**6)]
    native: bool
    blocking: bool
    samples: Count | None
    errors: Count | None


class SampledProcess(Part):
    """A process that was sampled; ``logged``: it noted its ranges."""

    pid: Int
    rank: Count | None
    utc_ns: UtcNs
    logged: bool


class SampledThread(Part):
    """A thread, by its native id."""

    process: Int
    thread: Int
    name: str


class RangeName(Part):
    """A range, whatever its visits."""

    name: str
    layer: Layer | None
    op: str | None


class SamplesPart(Part):
    """Stretches of equal samples, a column each: ``stack`` is a place in the document's.

    ``time_ns`` is the first of ``count`` samples: py-spy tells when a stack changed, not when it
    looked.
    """

    process: list[Int]
    thread: list[Int]
    time_ns: list[Int]
    count: list[Annotated[int, Field(ge=1, le=10**9)]]
    stack: list[Count]

    @model_validator(mode="after")
    def _even(self) -> SamplesPart:
        _check_even(self.process, self.thread, self.time_ns, self.count, self.stack)
        if sum(self.count) > MOST_SAMPLES:
            raise ValueError(f"it has more than {MOST_SAMPLES} samples")
        return self


class VisitsPart(Part):
    """Visits of ranges, a column each: ``name`` is a place in the document's names."""

    process: list[Int]
    thread: list[Int]
    name: list[Count]
    start_ns: list[Int]
    end_ns: list[Int]

    @model_validator(mode="after")
    def _even(self) -> VisitsPart:
        _check_even(self.process, self.thread, self.name, self.start_ns, self.end_ns)
        return self


def _check_even(*columns: list[int]) -> None:
    if not are_even(*columns):
        raise ValueError("its columns differ in length")


class SamplesDocument(Part):
    """A whole file. ``clock`` is None where no mark was seen: then no sample has a known time."""

    capture: Literal["py-spy"]
    schema_: Annotated[int, Field(alias="schema")]
    clock: ClockPart | None
    sampler: SamplerPart
    processes: list[SampledProcess]
    threads: list[SampledThread]
    frames: list[str]
    stacks: list[list[Count]]
    samples: SamplesPart
    names: list[RangeName]
    visits: VisitsPart
    dropped: dict[str, Count]
    lost: Count

    @model_validator(mode="after")
    def _whole(self) -> SamplesDocument:
        pairs = (
            ((at for stack in self.stacks for at in stack), self.frames),
            (self.samples.stack, self.stacks),
            (self.visits.name, self.names),
        )
        if any(max(places, default=-1) >= len(table) for places, table in pairs):
            raise ValueError("it refers to a frame, stack or name that it does not have")
        return self
