"""Copies from pinned memory that the device may not have made yet. A leaf.

A copy that does not make the host wait reads pinned memory when the device gets to it. Who
writes that memory again has to know that it did.
"""

from __future__ import annotations

import torch

from launchkit.kernels.placement import device_guard


class CopiesInFlight:
    """Remembers the last copies from one owner's pinned buffers."""

    def __init__(self) -> None:
        self._event: torch.cuda.Event | None = None
        self._pending = False

    def mark(self, twin: torch.Tensor) -> None:
        """Say that copies to ``twin``'s device were just put on its current stream."""
        if not twin.is_cuda:
            return
        with device_guard(twin):
            if self._event is None:
                self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        self._pending = True

    def wait(self) -> None:
        """Return when the marked copies have been made: at once if they are, or if there are none."""
        if self._pending and self._event is not None:
            self._event.synchronize()
            self._pending = False
