"""One step of a hybrid model's Mamba2 layers: host time as ordinary launches and as op plans."""

from __future__ import annotations

import argparse
import inspect
from functools import partial
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from launchkit import LaunchProfile, annotate, profile_launches
from launchkit.benchmarks.mode import keep_freed_memory, measuring
from launchkit.benchmarks.pinned_configs import pinned
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.mamba_layer import FINAL_STATE_WRITEBACK, SSD_SCAN, MambaLayer, MambaStep
from launchkit.kernels.ssd.final_states import final_state_writeback
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.state_copy.layout import StateTensor, block_tables, state_table
from launchkit.kernels.state_indices import AlignedStateIndices

BLOCK_SIZE, COLUMNS = 512, 4  # tokens of a cache block, blocks of a request
COMPUTED = (1100, 1024, 900, 512, 0)  # tokens of each request before this step ...
SCHEDULED = (1, 1, 1, 200, 300)  # ... and in it: three requests decode, two are prompts
ROWS, TOKENS = len(COMPUTED), sum(SCHEDULED)
WAYS = [(how, writer) for how in ("ordinary", "op plan") for writer in ("write-back", "scan")]


class UnplannedLayer(MambaLayer):
    """A layer with the same ranges, whose ops run line by line and launch one by one."""

    def __init__(self, layer: int) -> None:
        super().__init__(layer)
        in_scan, after = annotate(SSD_SCAN, layer), annotate(FINAL_STATE_WRITEBACK, layer)
        self.ssd_scan = in_scan(inspect.unwrap(mamba_chunk_scan_combined_varlen))
        self.final_state_writeback = after(inspect.unwrap(final_state_writeback))


class Step:
    """One batch with the tensors that an engine would hold, and the step over them."""

    def __init__(self, model: str, layers: int, device: str) -> None:
        m = MAMBA_SHAPES[model]
        # Without a GPU nothing reads values, and drawing them would take seconds.
        make = torch.empty if device == "cpu" else torch.randn
        filled = partial(make, dtype=torch.bfloat16, device=device)
        ints = partial(torch.tensor, dtype=torch.int32, device=device)
        # The cache: COLUMNS blocks a request; block 0 belongs to none.
        blocks, width = 1 + ROWS * COLUMNS, m.nheads * m.headdim + 2 * m.ngroups * m.dstate
        state, dtype = (blocks, m.nheads, m.headdim, m.dstate), getattr(torch, m.state_dtype)
        self.caches = [filled(*state, dtype=dtype) for _ in range(layers)]
        states = [StateTensor(filled(blocks, 3, width), is_conv=True) for _ in range(layers)]
        states += [StateTensor(tensor, is_conv=False) for tensor in self.caches]
        table = torch.arange(1, blocks, dtype=torch.int32, device=device).view(ROWS, COLUMNS)
        self.copied = block_tables([table]), state_table(states)
        self.indices = AlignedStateIndices([table], BLOCK_SIZE)
        # What the scheduler knows of the batch, and what its bookkeeping writes, by request.
        ends = [sum(SCHEDULED[:row]) for row in range(ROWS + 1)]
        self.chunks = build_chunk_metadata(ends, m.chunk_size, COMPUTED, device=device)
        self.rows, self.starts = ints(range(ROWS)), ints(ends)
        self.computed, self.lengths = ints(COMPUTED), ints(COMPUTED) + ints(SCHEDULED)
        self.columns_before = (self.computed - 1).div(BLOCK_SIZE, rounding_mode="floor").int()
        self.columns, self.sources, self.bias = (self.columns_before.clone() for _ in range(3))
        self.accepted, self.accepted_after = (torch.ones_like(self.columns) for _ in range(2))
        # What the layers' projections and convolutions would have left: x, dt, A, B, C.
        heads, group = (TOKENS, m.nheads, m.headdim), (TOKENS, m.ngroups, m.dstate)
        scanned = filled(*heads), filled(*heads[:2]), -filled(m.nheads).abs()
        self.inputs = *scanned, filled(*group), filled(*group)
        self.out, self.has_state, self.ops = filled(*heads), self.computed > 0, MambaStep()
        kinds = {"ordinary": UnplannedLayer, "op plan": MambaLayer}
        self.layers = {how: [kind(n) for n in range(layers)] for how, kind in kinds.items()}

    def run(self, how: str, writer: str) -> None:
        """Look up state blocks, move states into blocks that begin, run layers, keep states."""
        (slots,) = self.ops.state_indices(self.indices, self.lengths, ROWS)
        self.ops.preprocess_align(
            self.rows, self.columns, self.computed, self.starts, self.accepted, self.sources,
            self.bias, ROWS, BLOCK_SIZE,
        )  # fmt: skip
        self.ops.precopy_align(self.columns, self.sources, self.bias, *self.copied, ROWS, self.rows)
        for layer, cache in zip(self.layers[how], self.caches, strict=True):
            with annotate("mamba_layer", layer=layer.layer):
                self._layer(layer, cache, slots[:, 0], writer)
        self.ops.postprocess_align(
            self.accepted, self.columns, None, self.lengths, None, *self.copied,
            self.accepted_after, ROWS, BLOCK_SIZE, self.rows,
        )  # fmt: skip

    def _layer(self, layer: MambaLayer, cache: torch.Tensor, slots: torch.Tensor, by: str) -> None:
        c, by_scan = self.chunks, {"final_states_out": cache, "final_state_indices": slots}
        ending = by_scan if by == "scan" else {"return_intermediate_states": True}
        states = layer.ssd_scan(
            *self.inputs, c.chunk_size, c.cu_seqlens, c.cu_chunk_seqlens, c.last_chunk_indices,
            c.seq_idx, self.out, dt_softplus=True, state_dtype=cache.dtype,
            initial_state_cache=cache, initial_state_indices=slots,
            has_initial_state=self.has_state, **ending,
        )  # fmt: skip
        if states is not None:
            layer.final_state_writeback(states, c.last_chunk_indices, cache, slots)


def profiled(step: Step, rounds: int) -> LaunchProfile:
    """Return a profile of all ways. They take turns, so that a slow moment hits all alike."""
    for way in WAYS * 2:  # the first run compiles, the second one is watched for a plan
        step.run(*way)
    with profile_launches() as profile:
        for way in WAYS * rounds:
            step.columns.copy_(step.columns_before)
            with annotate(" / ".join(way)):
                step.run(*way)
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # a full launch queue would make the host wait
    return profile


def report(profile: LaunchProfile) -> Table:
    """Return a row per way; a layer's time is that of its range, launches and Python alike."""
    table = Table("launches", "states by", "a layer", "µs a Mamba layer", "ratio", "µs a step")
    first_us = 0.0
    for way in WAYS:
        rows = [row for row in profile.ranges if row.path[0] == " / ".join(way)]
        layers = [row for row in rows if row.path[1:] == ("mamba_layer",)]
        us = median(row.wall_p50_us or 0.0 for row in layers)
        step_us = next(row.wall_p50_us or 0.0 for row in rows if len(row.path) == 1)
        launches, first_us = layers[0].launches // layers[0].calls, first_us or us
        figures = f"{us:16.1f}", f"{us / first_us:5.2f}", f"{step_us:9.0f}"
        table.add_row(*way, f"{launches:7}", *figures)
    return table


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", choices=MAMBA_SHAPES, default="Nemotron-3-Nano")
    options.add_argument("--layers", type=int, choices=range(1, 65), default=4, metavar="N")
    given = options.parse_args()
    with measuring() as cuda, pinned():  # one config a kernel, since tuning takes minutes
        if not cuda:
            keep_freed_memory()  # as torch does on a GPU
        where = torch.cuda.get_device_name() if cuda else "host-only: no driver is called"
        step = Step(given.model, given.layers, "cuda" if cuda else "cpu")
        print(f"{given.model}, {given.layers} layers, {ROWS} requests, {TOKENS} tokens ({where})")
        Console(width=100).print(report(profiled(step, rounds=30)))


if __name__ == "__main__":
    main()
