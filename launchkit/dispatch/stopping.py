"""What goes on until it is stopped, or for the time of a block. A leaf of dispatch."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Stoppable(abc.ABC):
    """It begins when it is made; ``stop`` ends it, and so does leaving a block that it opened."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End it; again: does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
