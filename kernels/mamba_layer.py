"""The ops of Mamba2 layers in NVTX ranges: a layer's with its number, and those of a whole step."""

from __future__ import annotations

from launchkit import annotate
from launchkit.errors import UsageError
from launchkit.kernels.initial_states import gather_initial_states
from launchkit.kernels.ssd.checkpoints import write_checkpointed_states
from launchkit.kernels.ssd.final_states import final_state_writeback
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.state_copy.batched import do_mamba_copy_block
from launchkit.kernels.state_copy.launches import postprocess_align, precopy_align, preprocess_align
from launchkit.kernels.state_indices import AlignedStateIndices, mamba_get_block_table_tensor

SSD_SCAN = "ssd_scan"
"""Name of the range around the scan. Final states that the scan writes itself are in it."""

FINAL_STATE_WRITEBACK = "final_state_writeback"
"""Name of the range around a write-back of its own."""

INITIAL_STATES = "initial_states"
"""Name of the range around a gather of its own; one that the scan makes is in the scan's."""

CHECKPOINTS = "checkpoints"
"""Name of the range around the states that are stored after a scan with checkpoints."""

STATE_INDICES = "state_indices"
"""Name of the range around a lookup of state blocks."""

STATE_COPY = "state_copy"
"""Name of the range around copies between blocks, and what decides on them."""


class MambaLayer:
    """One layer's ops with their ranges: make it once per layer, call it as the ops themselves.

    >>> layer = MambaLayer(7)
    >>> layer.ssd_scan(x, dt, A, B, C, ...)  # doctest: +SKIP

    The ranges are ``launchkit.annotate``'s: in a profiler that reads NVTX, and in
    ``launchkit.profile_launches``, which counts launches and host µs by range and layer. With
    neither, a range does nothing; handing on the arguments remains.

    Raises UsageError for a layer that is not an int64.
    """

    def __init__(self, layer: int) -> None:
        if layer is None:
            raise UsageError("MambaLayer needs the layer's number. Pass an int.", layer=layer)
        self.layer = layer
        self.ssd_scan = annotate(SSD_SCAN, layer, op="ssd")(mamba_chunk_scan_combined_varlen)
        """``mamba_chunk_scan_combined_varlen``; with ``final_states_out`` nothing is left to
        write back."""
        self.final_state_writeback = annotate(FINAL_STATE_WRITEBACK, layer, op="ssd")(
            final_state_writeback
        )
        """``ssd.final_states.final_state_writeback``, after a scan that returned the states of
        all chunks."""
        self.gather_initial_states = annotate(INITIAL_STATES, layer, op="ssd")(
            gather_initial_states
        )
        """``initial_states.gather_initial_states``, for ops that take a copy."""
        self.write_checkpointed_states = annotate(CHECKPOINTS, layer, op="ssd")(
            write_checkpointed_states
        )
        """``ssd.checkpoints.write_checkpointed_states``: checkpoints, then final states."""

    def __repr__(self) -> str:
        return f"MambaLayer({self.layer!r})"


class MambaStep:
    """The ops that serve all layers of a step at once, with their ranges, as ``MambaLayer``'s."""

    def __init__(self) -> None:
        indices, copies = annotate(STATE_INDICES, op="mamba"), annotate(STATE_COPY, op="mamba")
        self.state_indices = indices(AlignedStateIndices.compute_aligned_state_indices)
        """``AlignedStateIndices.compute_aligned_state_indices``, that object first: one launch
        for all KV-cache groups."""
        self.block_table_tensor = indices(mamba_get_block_table_tensor)
        """``state_indices.mamba_get_block_table_tensor``: a launch for one group."""
        self.preprocess_align = copies(preprocess_align)
        """``state_copy.launches.preprocess_align``."""
        self.precopy_align = copies(precopy_align)
        """``state_copy.launches.precopy_align``."""
        self.postprocess_align = copies(postprocess_align)
        """``state_copy.launches.postprocess_align``."""
        self.copy_blocks = copies(do_mamba_copy_block)
        """``state_copy.batched.do_mamba_copy_block``: what the host has collected."""

    def __repr__(self) -> str:
        return "MambaStep()"
