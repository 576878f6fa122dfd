"""What a file of samples must hold, checked on reading. A leaf; pydantic is used here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Int = Annotated[int, Field(ge=-(2**60), le=2**60)]
_Count = Annotated[int, Field(ge=0, le=2**60)]


MOST_SAMPLES = 20_000_000
"""Eleven hours of one thread at 500 a second."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class ClockPart(_Part):
    """How the sampler's clock was set: by how many marks, and how far it may be off."""

    marks: _Count
    uncertainty_ns: _Count


class SamplerPart(_Part):
    """How py-spy sampled, and what it said at its end."""

    version: str
    rate_hz: Annotated[int, Field(ge=1, le=10**6)]
    native: bool
    blocking: bool
    samples: _Count | None
    errors: _Count | None


class SampledProcess(_Part):
    """A process that was sampled; ``logged``: it noted its ranges."""

    pid: _Int
    rank: _Count | None
    utc_ns: Annotated[int, Field(ge=0, le=2**62)]
    logged: bool


class SampledThread(_Part):
    """A thread, by its native id."""

    process: _Int
    thread: _Int
    name: str


class RangeName(_Part):
    """A range, whatever its visits."""

    name: str
    layer: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None
    op: str | None


class SamplesPart(_Part):
    """Stretches of equal samples, a column each: ``stack`` is a place in the document's.

    ``time_ns`` is the first of ``count`` samples: py-spy tells when a stack changed, not when it looked.
    """

    process: list[_Int]
    thread: list[_Int]
    time_ns: list[_Int]
    count: list[Annotated[int, Field(ge=1, le=10**9)]]
    stack: list[_Count]

    @model_validator(mode="after")
    def _even(self) -> SamplesPart:
        _check_even(self.process, self.thread, self.time_ns, self.count, self.stack)
        if sum(self.count) > MOST_SAMPLES:
            raise ValueError(f"it has more than {MOST_SAMPLES} samples")
        return self


class VisitsPart(_Part):
    """Visits of ranges, a column each: ``name`` is a place in the document's names."""

    process: list[_Int]
    thread: list[_Int]
    name: list[_Count]
    start_ns: list[_Int]
    end_ns: list[_Int]

    @model_validator(mode="after")
    def _even(self) -> VisitsPart:
        _check_even(self.process, self.thread, self.name, self.start_ns, self.end_ns)
        return self


def _check_even(*columns: list[int]) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError("its columns differ in length")


class SamplesDocument(_Part):
    """A whole file. ``clock`` is None where no mark was seen: then no sample has a known time."""

    capture: Literal["py-spy"]
    schema_: Annotated[int, Field(alias="schema")]
    clock: ClockPart | None
    sampler: SamplerPart
    processes: list[SampledProcess]
    threads: list[SampledThread]
    frames: list[str]
    stacks: list[list[_Count]]
    samples: SamplesPart
    names: list[RangeName]
    visits: VisitsPart
    dropped: dict[str, _Count]
    lost: _Count

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
