"""What the schemas of profiling's files are made of: pydantic's only users here. A leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Int: TypeAlias = Annotated[int, Field(ge=-(2**60), le=2**60)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**60)]
UtcNs: TypeAlias = Annotated[int, Field(ge=0, le=2**62)]
"""ns since 1970; 0 where it is not known."""
Layer: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Part(BaseModel):
    """Base of every part of a file: strict in its types, silent on what later versions add."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def are_even(*columns: Sequence[object]) -> bool:
    """Tell whether columns have a row for each other's."""
    return len({len(column) for column in columns}) <= 1
