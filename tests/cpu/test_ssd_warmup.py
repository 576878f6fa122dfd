"""Warm-up of the scan: what it compiles, and that it leaves live tensors alone."""

from __future__ import annotations

import itertools

import pytest
import torch

from launchkit.errors import UsageError
from launchkit.kernels.ssd import bmm, chunk_cumsum, chunk_scan, chunk_state, state_passing
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.ssd.warmup import warm_chunk_scan

H, P, G, N, Q = 3, 16, 1, 16, 16
KERNELS = (
    chunk_cumsum._chunk_cumsum_fwd_kernel,
    chunk_state._chunk_state_fwd_kernel,
    state_passing._state_passing_fwd_kernel,
    bmm._bmm_chunk_fwd_kernel,
    chunk_scan._chunk_scan_fwd_kernel,
)


def compiled_variants():
    """How many variants Triton holds of all five kernels."""
    return sum(len(entry[0]) for kernel in KERNELS for entry in kernel.fn.device_caches.values())


class Layer:
    """One layer's tensors; x and dt of a token are views of a row of odd length."""

    def __init__(self, tokens=0, seed=0):
        rng = torch.Generator().manual_seed(seed)
        self.projected = torch.rand(tokens + 32, H * P + H, generator=rng).half()
        self.convolved = torch.rand(tokens + 32, 2 * G * N, generator=rng).half()
        self.gate = torch.rand(tokens + 32, H, P, generator=rng).half()
        self.A = -torch.rand(H, generator=rng)
        self.D = torch.rand(H, generator=rng)
        self.bias = torch.rand(H, generator=rng)
        self.cache = torch.rand(5, H, P, N, generator=rng)

    def rows(self, start, stop):
        """Return x, B, C, dt, z and out of some tokens."""
        x, dt = self.projected[start:stop].split((H * P, H), dim=1)
        B, C = self.convolved[start:stop].split((G * N, G * N), dim=1)
        out = torch.empty(max(stop, 0), H, P).half()[start:]
        return (
            x.unflatten(1, (H, P)), B.unflatten(1, (G, N)), C.unflatten(1, (G, N)),
            dt, self.gate[start:stop], out,
        )  # fmt: skip

    def warm(self, **options):
        x, B, C, dt, z, out = self.rows(0, 2)
        return warm_chunk_scan(
            x, dt, self.A, B, C, Q, out, self.D, z, self.bias, None, True,
            final_states_out=self.cache, final_state_indices=torch.zeros(0, dtype=torch.int32),
            **{"tokens": 40, **options},
        )  # fmt: skip

    def scan(self, lengths, start=0, initial=False, ending="cache", column=False):
        """Run the op as a server would, on some tokens of the batch."""
        tokens = sum(lengths)
        x, B, C, dt, z, out = self.rows(start, start + tokens)
        m = build_chunk_metadata([0, *itertools.accumulate(lengths)], Q)
        states = torch.rand(len(lengths), H, P, N) if initial else None
        table = torch.arange(5 * 4, dtype=torch.int32).view(5, 4) % 5
        slots = table[: len(lengths), 1] if column else table[0, : len(lengths)]
        final = (self.cache, slots) if ending == "cache" else (None, None)
        return mamba_chunk_scan_combined_varlen(
            x, dt, self.A, B, C, Q, m.cu_seqlens, m.cu_chunk_seqlens, m.last_chunk_indices,
            m.seq_idx, out, self.D, z, self.bias, states, True,
            return_intermediate_states=ending == "every",
            final_states_out=final[0], final_state_indices=final[1],
        )  # fmt: skip


CALLS = [
    {"lengths": lengths, "start": start, "initial": initial, "ending": ending, "column": column}
    for lengths, start in (((1,), 0), ((16,), 1), ((7, 0, 30), 4), ((1, 1, 1), 8), ((33,), 3))
    for initial in (False, True)
    for ending, column in (("cache", False), ("cache", True), ("final", False), ("every", False))
]


def test_after_a_warm_up_no_call_of_that_layout_compiles(host):
    layer = Layer(tokens=64)
    layer.warm()
    warmed = compiled_variants()
    for call in CALLS:
        layer.scan(**call)
        assert compiled_variants() == warmed, call


def test_a_warm_up_of_another_layout_does_not_serve(host):
    """The proof above can fail: rows at other offsets are other variants."""
    layer = Layer(tokens=64)
    x, B, C, dt, z, out = (t.contiguous() for t in layer.rows(0, 8))
    warm_chunk_scan(x, dt.clone(), layer.A, B, C, Q, out, layer.D, z, layer.bias, tokens=40)
    warmed = compiled_variants()
    layer.scan((16,), start=1)
    assert compiled_variants() > warmed


def test_every_branch_and_alignment_is_called_once(host):
    layer = Layer()
    host.clear()
    calls = layer.warm()
    assert len(host.launches()) == 5 * calls
    # x and dt are views of rows of 102 bytes, so each may lie on 16 bytes or not, and x may come
    # as one token whose first stride is a multiple of 16; with and without initial states; final
    # states in the cache, returned, or those of all chunks.
    assert calls == 4 * 2 * 2 * 3


def test_live_tensors_are_neither_read_nor_written(host):
    layer = Layer(tokens=8)
    before = [t.clone() for t in (layer.projected, layer.convolved, layer.cache)]
    host.clear()
    layer.warm()
    live = [layer.projected, layer.convolved, layer.cache]
    spans = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in live]
    for launch in host.launches():
        for param in launch.params:
            address = int.from_bytes(param, "little")
            assert len(param) != 8 or not any(low <= address < high for low, high in spans)
    assert all(torch.equal(old, new) for old, new in zip(before, live, strict=True))


def test_a_warm_up_without_tokens_is_refused(host):
    with pytest.raises(UsageError, match="tokens is 0"):
        Layer().warm(tokens=0)


def test_a_single_token_is_refused_as_its_strides_are_not_those_of_other_calls(host):
    layer = Layer()
    x, B, C, dt, _, out = layer.rows(0, 1)
    with pytest.raises(UsageError, match="x has 1 tokens"):
        warm_chunk_scan(x, dt, layer.A, B, C, Q, out)
