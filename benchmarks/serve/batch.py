"""A step of ``launchkit bench serve`` as tensors: filled on the host, sent in one copy.

All variants are given the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from launchkit.benchmarks.serve.scheduler import Row, Step
from launchkit.kernels.ssd.metadata import ChunkMetadata, build_chunk_metadata

_ALIGNMENT = 4
"""Numbers, of 16 bytes together: no batch differs in what a kernel is compiled for."""

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """One step's tensors, int32. Rows that decode come first, a token each."""

    rows: int
    decodes: int
    tokens: int
    ids: torch.Tensor
    """(tokens,)."""
    seq_lens: torch.Tensor
    """(rows,) tokens of each request, those of this step included."""
    query_start: torch.Tensor
    """(rows+1,) where each row's tokens start."""
    slots: torch.Tensor
    """(rows,) each row's place in per-request tensors."""
    last: torch.Tensor
    """(rows,) each row's last token."""
    computed: torch.Tensor
    """(slots,) tokens computed before, by slot."""
    columns: torch.Tensor
    """(slots,) column that holds the state, by slot; -1 where there is none."""
    metadata: ChunkMetadata | None
    """Of the rows that do not decode; None: all do."""
    has_initial: torch.Tensor | None
    """Of these, (S,) bool: whether something was computed before; None: for none of them."""
    moves: bool
    """Whether a request with a state enters another block. Without speculation the host knows."""


class StepTensors:
    """The tensors of a step at addresses that stay, and the block tables of all KV-cache groups.

    slots: requests at a time. step_tokens: most tokens of a step. columns, block_size: of a block
    table, and tokens of a block. groups: KV-cache groups; which block a request has is drawn from
    ``seed``. Block 0 is nobody's.
    """

    def __init__(
        self, slots: int, step_tokens: int, columns: int, block_size: int, groups: int,
        chunk_size: int, device: str, seed: int,
    ) -> None:  # fmt: skip
        self.block_size = block_size
        self._chunk_size, self._device = chunk_size, device
        sizes = {
            "ids": step_tokens, "seq_lens": slots, "query_start": slots + 1, "slots": slots,
            "last": slots, "computed": slots, "columns": slots, "tables": groups * slots * columns,
        }  # fmt: skip
        starts = np.cumsum([0, *(size + -size % _ALIGNMENT for size in sizes.values())])
        length = int(starts[-1])
        self._sent = torch.zeros(length, dtype=torch.int32, pin_memory=device == "cuda")
        self._received = torch.zeros(length, dtype=torch.int32, device=device)
        places = {
            name: slice(int(start), int(start) + size)
            for (name, size), start in zip(sizes.items(), starts[:-1], strict=True)
        }
        self._host = {name: self._sent.numpy()[place] for name, place in places.items()}
        self._tensors = {name: self._received[place] for name, place in places.items()}
        shape = (groups, slots, columns)
        self.tables = list(self._tensors["tables"].view(shape))
        """By group, (slots, columns): row r is that of the batch's row r."""
        self._row_tables = self._host["tables"].reshape(shape)
        rng = np.random.default_rng(seed)
        owned = [1 + rng.permutation(slots * columns).astype(np.int32) for _ in range(groups)]
        self._blocks = np.stack(owned).reshape(shape)

    def fill(self, step: Step, ids_of: Callable[[Row], Numbers | int]) -> Batch:
        """Send a step's numbers to the device and return its tensors.

        ``ids_of`` gives the token ids of a row. The host does not wait; the tensors are those of
        the step before, which must have ended.
        """
        rows, decodes = step.rows, step.decodes
        bounds = np.cumsum([0, *(row.tokens for row in rows)])
        self._fill_rows(rows, bounds, ids_of)
        self._received.copy_(self._sent, non_blocking=True)
        count, tokens, views = len(rows), int(bounds[-1]), self._tensors
        pieces = rows[decodes:]
        return Batch(
            rows=count, decodes=decodes, tokens=tokens,
            ids=views["ids"][:tokens], seq_lens=views["seq_lens"][:count],
            query_start=views["query_start"][: count + 1], slots=views["slots"][:count],
            last=views["last"][:count], computed=views["computed"], columns=views["columns"],
            metadata=self._metadata(pieces, bounds[decodes:] - decodes),
            has_initial=self._has_initial(pieces), moves=any(map(self._enters_block, rows)),
        )  # fmt: skip

    def _fill_rows(
        self, rows: list[Row], bounds: npt.NDArray[Any], ids_of: Callable[[Row], Numbers | int]
    ) -> None:
        host, count = self._host, len(rows)
        slots = np.array([row.slot for row in rows])
        computed = np.array([row.computed for row in rows])
        for row, start, end in zip(rows, bounds[:-1], bounds[1:], strict=True):
            host["ids"][start:end] = ids_of(row)
        host["seq_lens"][:count] = computed + np.diff(bounds)
        host["query_start"][: count + 1] = bounds
        host["slots"][:count] = slots
        host["last"][:count] = bounds[1:] - 1
        host["computed"][slots] = computed
        # -1 for a request without computed tokens.
        host["columns"][slots] = (computed - 1) // self.block_size
        self._row_tables[:, :count] = self._blocks[:, slots]

    def _enters_block(self, row: Row) -> bool:
        last = row.computed + row.tokens - 1
        return 0 < row.computed <= last // self.block_size * self.block_size

    def _metadata(self, pieces: list[Row], bounds: npt.NDArray[Any]) -> ChunkMetadata | None:
        if not pieces:
            return None
        computed = [row.computed for row in pieces]
        return build_chunk_metadata(bounds, self._chunk_size, computed, device=self._device)

    def _has_initial(self, pieces: list[Row]) -> torch.Tensor | None:
        if not any(row.computed for row in pieces):
            return None
        found = torch.tensor([row.computed > 0 for row in pieces])
        if self._device != "cuda":
            return found
        return found.pin_memory().to(self._device, non_blocking=True)
