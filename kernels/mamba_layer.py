"""The prefill ops of one Mamba2 layer, each in an NVTX range that carries the layer's number."""

from __future__ import annotations

from launchkit import annotate
from launchkit.kernels.ssd.final_states import final_state_writeback
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen

SSD_SCAN = "ssd_scan"
"""Name of the range around the scan. Final states that the scan writes itself are in it."""

FINAL_STATE_WRITEBACK = "final_state_writeback"
"""Name of the range around a write-back of its own."""


class MambaLayer:
    """One layer's ops with their ranges: make it once per layer, call it as the ops themselves.

    >>> layer = MambaLayer(7)
    >>> layer.ssd_scan(x, dt, A, B, C, ...)  # doctest: +SKIP

    The ranges are ``launchkit.annotate``'s: in a profiler that reads NVTX, and in
    ``launchkit.profile_launches``, which counts launches and host µs by range and layer. With
    neither, a range does nothing; handing on the arguments remains, about 1 µs.

    Raises UsageError for a layer that is not an int64.
    """

    def __init__(self, layer: int) -> None:
        self.layer = layer
        self.ssd_scan = annotate(SSD_SCAN, layer, op="ssd")(mamba_chunk_scan_combined_varlen)
        """``mamba_chunk_scan_combined_varlen``; with ``final_states_out`` nothing is left to
        write back."""
        self.final_state_writeback = annotate(FINAL_STATE_WRITEBACK, layer, op="ssd")(
            final_state_writeback
        )
        """``ssd.final_states.final_state_writeback``, after a scan that returned the states of
        all chunks."""

    def __repr__(self) -> str:
        return f"MambaLayer({self.layer!r})"
