"""The served benchmark in Triton's interpreter: its variants against each other and plain torch."""

from __future__ import annotations

import pytest
import torch
import triton
from ssd_cases import same_bits

from launchkit.benchmarks.pinned_configs import (
    LAUNCHKIT_KERNELS,
    PINNED_CONFIGS,
    ScanKernels,
    pinned,
)
from launchkit.benchmarks.serve.decode import decode_launch, decode_update_kernel
from launchkit.benchmarks.serve.engine import make_engine
from launchkit.benchmarks.serve.model import LayerOps, MambaWeights, ScanTensors, ServingModel
from launchkit.benchmarks.serve.pairs import difference
from launchkit.benchmarks.serve.requests import Workload, draw_requests
from launchkit.benchmarks.serve.variants import Baseline, Launchkit
from launchkit.benchmarks.shapes import MambaShape

SHAPE = MambaShape("tiny", 2, 2, 8, 16, 1, 16, "float32", "made up")
MODEL = ServingModel(SHAPE, layers=2, hidden=24, vocabulary=97, dtype=torch.float32)
WORKLOAD = Workload(concurrency=2, requests=3, input_tokens=9, output_tokens=3, step_tokens=12)
"""Prompts that come in pieces, two at once, and states that move from block to block."""
BLOCK_SIZE = 4


def recurrence(tokens, state):
    """Scan tokens one by one in float64 from a state (H, P, N); return the outputs and the end."""
    w, outs = tokens.weights, []
    heads = tokens.x.shape[1] // tokens.B.shape[1]
    for x, dt, B, C in zip(*(t.double() for t in tokens[:4]), strict=True):
        d = torch.nn.functional.softplus(dt + w.dt_bias.double())
        B, C = (t.repeat_interleave(heads, 0) for t in (B, C))
        state = torch.exp(d * w.A.double())[:, None, None] * state
        state = state + (d[:, None] * x)[:, :, None] * B[:, None, :]
        outs.append((state * C[:, None, :]).sum(-1) + w.D.double()[:, None] * x)
    return torch.stack(outs), state


def by_triton():
    """The scan's kernels under Triton's Autotuner with one config: some measure of two also one."""
    return ScanKernels(*(
        triton.autotune([PINNED_CONFIGS[name][0]], list(kernel.keys))(kernel.fn)
        for name, kernel in LAUNCHKIT_KERNELS._asdict().items()
    ))  # fmt: skip


class PlainTorch(LayerOps):
    """States by request slot, in no blocks."""

    def __init__(self):
        self.states, self.pieces, self.moves = {}, 0, 0

    def begin(self, batch):
        self.slots, self.starts = batch.slots.tolist(), batch.query_start.tolist()
        computed = batch.computed.tolist()
        self.fresh = {slot for slot in self.slots if computed[slot] == 0}
        self.pieces += sum(computed[s] > 0 for s in self.slots[batch.decodes :])
        lengths = zip(self.slots, batch.seq_lens.tolist(), strict=True)
        moves = sum(
            computed[s] > 0 and (computed[s] - 1) // BLOCK_SIZE != (n - 1) // BLOCK_SIZE
            for s, n in lengths
        )
        assert batch.moves == (moves > 0)
        self.moves += moves

    def decode(self, layer, batch, tokens):
        self._advance(layer, range(batch.decodes), 0, tokens)

    def prefill(self, layer, batch, tokens):
        self._advance(layer, range(batch.decodes, batch.rows), batch.decodes, tokens)

    def _advance(self, layer, rows, first, tokens):
        for row in rows:
            slot = self.slots[row]
            state = torch.zeros(2, 8, 16, dtype=torch.float64)
            if slot not in self.fresh:
                state = self.states[layer, slot]
            part = tokens.rows(self.starts[row] - first, self.starts[row + 1] - first)
            out, self.states[layer, slot] = recurrence(part, state)
            part.out.copy_(out)


@pytest.fixture(scope="module")
def served():
    with pinned():
        engine = make_engine(MODEL, WORKLOAD, "cpu", executes=True, block_size=BLOCK_SIZE)
        requests, plain = draw_requests(WORKLOAD, MODEL.vocabulary, seed=5), PlainTorch()
        found = {
            "baseline": engine.serve(WORKLOAD, requests, Baseline(engine.states, by_triton())),
            "launchkit": engine.serve(WORKLOAD, requests, Launchkit(engine.states)),
        }
        states = [cache.clone() for cache in engine.states.caches]
        found["plain"] = engine.serve(WORKLOAD, requests, plain)
        yield found, plain, states


def test_both_variants_give_the_same_tokens_and_states(served):
    found, _, states = served
    assert difference(0, found) is None
    assert all(cache.abs().sum() > 0 for cache in states)
    assert all(found["launchkit"].states)


def test_tokens_are_those_of_a_recurrence_in_float64(served):
    found, plain, _ = served
    assert found["launchkit"].tokens == found["plain"].tokens
    assert len({token for answer in found["plain"].tokens for token in answer}) > 3
    # What makes it a test of pieces of prompts, and of states that change their block.
    assert plain.pieces >= 1
    assert plain.moves >= 3


def test_a_decoding_token_advances_its_slot_and_no_other():
    rng = torch.Generator().manual_seed(2)

    def normal(*sizes):
        return torch.randn(sizes, generator=rng)

    H, P, N, G, rows = 4, 5, 12, 2, 3
    weights = MambaWeights(normal(0), -normal(H).abs(), normal(H), normal(H), normal(0))
    x, B, C = normal(rows, H, P), normal(rows, G, N), normal(rows, G, N)
    dt = normal(rows, 11)[:, 3 : 3 + H]
    dt[1, 2] = 25.0  # where softplus is its argument
    cache, slots = normal(9, H, P, N), torch.tensor([[7, 0], [2, 0], [4, 0]], dtype=torch.int32)
    before, out = cache.clone(), torch.full((rows + 2, H, P), torch.nan)
    grid, arguments, options = decode_launch(
        cache, x, dt, weights.A, B, C, weights.D, weights.dt_bias, slots[:, 0], out[1:-1]
    )
    decode_update_kernel[grid](*arguments, **options)
    for row, slot in enumerate((7, 2, 4)):
        one = slice(row, row + 1)
        tokens = ScanTensors(x[one], dt[one], B[one], C[one], out, weights)
        expected, state = recurrence(tokens, before[slot].double())
        torch.testing.assert_close(out[1 + row].double(), expected[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(cache[slot].double(), state, atol=1e-5, rtol=1e-5)
    others = [slot for slot in range(9) if slot not in (7, 2, 4)]
    assert same_bits(cache[others], before[others])
    assert out[[0, -1]].isnan().all()
