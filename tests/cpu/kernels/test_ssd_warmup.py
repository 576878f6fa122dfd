"""Warm-up of the scan: what it compiles, and that it leaves live tensors alone."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
import triton
from ssd_cases import KERNELS

import launchkit
from launchkit.errors import UsageError
from launchkit.kernels import initial_states
from launchkit.kernels.ssd import indexed_passing
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.ssd.warmup import warm_chunk_scan

H, P, G, N, Q = 3, 16, 1, 16, 16


SLOT_KERNELS = [
    (initial_states, "_gather_initial_states_kernel"),
    (indexed_passing, "_indexed_state_passing_kernel"),
]
CACHED = {"initial_state_indices": torch.zeros(0, dtype=torch.int32)}
TABLE = torch.arange(16 * 48, dtype=torch.int32).view(16, 48) % 5
# How block tables are viewed: dense, or columns, at any place, of strides of any class.
VIEWS = {
    "dense": TABLE[0],
    "dense at an odd place": TABLE[0, 3:],
    "a column": TABLE[:, 1],
    "a column of an odd stride": TABLE.flatten()[: 15 * 47].view(15, 47)[:, 2],
}


def compiled_variants():
    """How many variants Triton holds of all five kernels."""
    return sum(len(entry[0]) for kernel in KERNELS for entry in kernel.fn.device_caches.values())


class Layer:
    """One layer's tensors; x and dt of a token are views of a row, by default of odd length."""

    def __init__(self, tokens=0, seed=0, row=H * P + H):
        rng = torch.Generator().manual_seed(seed)
        self.projected = torch.rand(tokens + 32, row, generator=rng).half()
        self.convolved = torch.rand(tokens + 32, 2 * G * N, generator=rng).half()
        self.gate = torch.rand(tokens + 32, H, P, generator=rng).half()
        self.A = -torch.rand(H, generator=rng)
        self.D = torch.rand(H, generator=rng)
        self.bias = torch.rand(H, generator=rng)
        self.cache = torch.rand(5, H, P, N, generator=rng)

    def rows(self, start, stop):
        """Return x, B, C, dt, z and out of some tokens."""
        x, dt = self.projected[start:stop, : H * P + H].split((H * P, H), dim=1)
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
            **{"tokens": 40, "final_states_out": self.cache,
               "final_state_indices": torch.zeros(0, dtype=torch.int32), **options},
        )  # fmt: skip

    def scan(self, lengths, start=0, initial=False, ending="cache", column=False, **options):
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
            **{"final_states_out": final[0], "final_state_indices": final[1], **options},
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


@pytest.mark.parametrize("missing", ["final_states_out", "final_state_indices"])
def test_one_final_argument_without_the_other_is_refused_as_by_the_op(host, missing):
    layer, said = Layer(tokens=64), []
    for call in (layer.warm, functools.partial(layer.scan, (7, 30))):
        with pytest.raises(UsageError, match=f"{missing} is missing") as caught:
            call(**{missing: None})
        assert caught.value.fields["argument"] == missing
        said.append(str(caught.value).split(": ", 1)[1])
    assert said[0] == said[1]
    assert host.launches() == []


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
def test_slots_are_warmed_in_the_dtype_that_they_come_in(host, index_dtype):
    layer = Layer(tokens=64)
    layer.warm(final_state_indices=torch.zeros(0, dtype=index_dtype))
    warmed = compiled_variants()
    layer.scan((7, 30), final_state_indices=torch.arange(2, dtype=index_dtype))
    assert compiled_variants() == warmed


def test_a_single_token_is_refused_as_its_strides_are_not_those_of_other_calls(host):
    layer = Layer()
    x, B, C, dt, _, out = layer.rows(0, 1)
    with pytest.raises(UsageError, match="x has 1 tokens"):
        warm_chunk_scan(x, dt, layer.A, B, C, Q, out)


def starts_in_slots(layer, lengths, view, has, ending="cache", start=0):
    """Run the op as a server would, from slots of the cache that it writes to."""
    count = len(lengths)
    layer.scan(
        lengths, start=start, ending=ending, state_dtype=torch.float32,
        initial_state_cache=layer.cache, initial_state_indices=view[:count],
        has_initial_state=has[:count] if has is not None else None,
        **({"final_state_indices": view[:count]} if ending == "cache" else {}),
    )  # fmt: skip


def call_every_way(layer):
    """Return the compilations in calls of every class that starts in slots can come with."""
    masks = (None, torch.ones(4).bool(), torch.ones(9).bool()[1::2])
    with launchkit.watch_compiles(log=False) as seen:
        for view, has in itertools.product(VIEWS.values(), masks):
            for lengths, start in (((7,), 1), ((33,), 4), ((7, 0, 30), 3)):
                starts_in_slots(layer, lengths, view, has, start=start)
        for lengths, ending in itertools.product(((7,), (7, 30)), ("final", "every")):
            starts_in_slots(layer, lengths, TABLE[:, 1], None, ending)
    return seen.events


def test_after_a_warm_up_no_start_in_a_slot_compiles(host):
    layer = Layer(tokens=64, row=64)
    layer.warm(state_dtype=torch.float32, initial_state_cache=layer.cache, **CACHED)
    assert call_every_way(layer) == []


def test_a_warm_up_without_that_cache_does_not_serve(host):
    """The proof above can fail: both ways to start in a slot have kernels of their own."""
    layer = Layer(tokens=64, row=64)
    for module, name in SLOT_KERNELS:
        getattr(module, name).device_caches.clear()
    layer.warm(state_dtype=torch.float32)
    named = {event.kernel.rsplit(".", 1)[1] for event in call_every_way(layer)}
    assert named == {name for _, name in SLOT_KERNELS}


def test_a_warm_up_with_dense_slots_alone_fails_where_kernels_specialize_on_them(host, monkeypatch):
    """As they would by Triton's defaults: the compile detector sees what the warm-up missed."""
    for module, name in SLOT_KERNELS:
        monkeypatch.setattr(module, name, triton.jit(getattr(module, name).fn))
    layer = Layer(tokens=64, row=64)
    layer.warm(state_dtype=torch.float32, initial_state_cache=layer.cache, **CACHED)
    events = call_every_way(layer)
    changed = {change.argument for event in events for change in event.changes}
    assert {"stride_indices", "indices_ptr"} <= changed
    assert {"stride_initial_index", "initial_index_ptr"} <= changed


def test_the_warm_up_of_starts_in_slots_leaves_the_cache_alone(host):
    layer = Layer(tokens=64, row=64)
    host.clear()
    layer.warm(state_dtype=torch.float32, initial_state_cache=layer.cache, **CACHED)
    start, end = layer.cache.data_ptr(), layer.cache.data_ptr() + layer.cache.nbytes
    names = {launch.kernel for launch in host.launches()}
    assert {name for _, name in SLOT_KERNELS} <= names
    for launch in host.launches():
        for param in launch.params:
            assert len(param) != 8 or not start <= int.from_bytes(param, "little") < end


@pytest.mark.parametrize("given", ["initial_state_cache", "initial_state_indices"])
def test_a_warm_up_with_half_of_what_a_start_in_a_slot_needs_is_refused(host, given):
    layer = Layer()
    options = {"initial_state_cache": layer.cache, **CACHED}
    with pytest.raises(UsageError, match=f"{given} is given without"):
        layer.warm(**{given: options[given]})
    assert host.launches() == []
