"""What stored checkpoints promise, in the interpreter and on a GPU alike.

Test modules import these tests and define the fixture ``place``, as for ``ssd_promises``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from ssd_cases import everything, make_cache, make_problem, same_bits, scan

from launchkit.kernels.ssd.checkpoints import store_prefill_checkpoint, write_checkpointed_states

HEADS, HEADDIM, DSTATE, CHUNKS, SLOTS = 2, 5, 17, 5, 7
DIM, WINDOW, SPEC = 37, 3, 2
STARTS = (0, 9, 9, 20, 31)
OFFSETS = (6, 0, 11, -3)
CHUNK_OF = (1, -1, 4, -1)
TARGETS = (5, 2, 1, 3)


@dataclass
class Meta:
    """A batch's checkpoints, as an engine has them."""

    state_indices: torch.Tensor
    offsets: torch.Tensor


def integers(values, place, dtype=torch.int32, stride=1):
    wide = torch.full((len(values) * stride,), 2**30, dtype=dtype, device=place.device)
    wide[::stride] = torch.tensor(values, dtype=dtype)
    return wide[::stride]


class Case:
    """A batch of four sequences, two with a checkpoint, and its caches in padded pages."""

    def __init__(self, place, offsets=OFFSETS, turned=False, dtype=torch.float32,
                 cache_dtype=torch.float16, stride=1, seed=0):  # fmt: skip
        rng = torch.Generator().manual_seed(seed)

        def randn(*sizes, of=dtype):
            return torch.randn(*sizes, generator=rng).to(device=place.device, dtype=of)

        self.offsets = offsets
        self.meta = Meta(*(integers(v, place, stride=stride) for v in (TARGETS, offsets)))
        self.chunk_idx = integers(CHUNK_OF, place, stride=stride)
        self.starts = integers(STARTS, place, stride=stride)
        self.x = randn(STARTS[-1], DIM).t() if turned else randn(DIM, STARTS[-1])
        self.initial_conv = randn(len(offsets), DIM, WINDOW + SPEC)
        sizes = (SLOTS, WINDOW + SPEC, DIM) if turned else (SLOTS, DIM, WINDOW + SPEC)
        self.conv = randn(*sizes)
        self.conv = self.conv.transpose(1, 2) if turned else self.conv
        self.states = randn(CHUNKS, HEADS, HEADDIM, DSTATE, of=torch.float32)
        self.raw, self.ssm = make_cache(SLOTS, HEADS, HEADDIM, DSTATE, cache_dtype, place.device)
        self.ssm.copy_(randn(SLOTS, HEADS, HEADDIM, DSTATE))

    def store(self, **options):
        store_prefill_checkpoint(
            self.meta, self.chunk_idx, self.x, self.conv, self.states, self.ssm, self.starts,
            **{"state_len": WINDOW, **options},
        )  # fmt: skip

    def expected(self, initial=False):
        """Return conv and SSM caches after the checkpoints, by walking the sequences."""
        conv, ssm = self.conv.clone(), self.ssm.clone()
        for seq, offset in enumerate(self.offsets):
            if offset <= 0:
                continue
            slot = TARGETS[seq]
            for window in range(WINDOW):
                position = offset - WINDOW + window
                if position >= 0:
                    value = self.x[:, STARTS[seq] + position]
                elif initial:
                    value = self.initial_conv[seq, :, WINDOW + position]
                else:
                    value = torch.zeros_like(self.x[:, 0])
                conv[slot, :, window] = value
            ssm[slot] = self.states[CHUNK_OF[seq]].to(ssm.dtype)
        return conv, ssm


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
def test_checkpoints_hold_the_state_and_the_inputs_before_them(place, turned, stride):
    case = Case(place, turned=turned, stride=stride)
    conv, ssm = case.expected()
    raw = case.raw.clone()
    case.store()
    assert torch.equal(case.conv, conv)
    assert torch.equal(case.ssm, ssm)
    for slot in (5, 1):
        case.ssm[slot] = raw.view(ssm.dtype).as_strided(ssm.shape, case.ssm.stride())[slot]
    assert torch.equal(case.raw, raw)


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_states_are_stored_in_the_dtype_of_the_cache(place, cache_dtype):
    case = Case(place, cache_dtype=cache_dtype)
    _, ssm = case.expected()
    case.store()
    step = torch.finfo(cache_dtype).eps * place.interpreted
    torch.testing.assert_close(case.ssm, ssm, rtol=step, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_conv_inputs_keep_their_bits(place, dtype):
    case = Case(place, dtype=dtype)
    conv, _ = case.expected()
    case.store()
    assert same_bits(case.conv, conv)


@pytest.mark.parametrize("initial", [False, True], ids=["zeros", "initial"])
def test_a_checkpoint_near_the_start_looks_back_beyond_the_batch(place, initial):
    case = Case(place, offsets=(1, 0, 2, -1))
    conv, _ = case.expected(initial)
    case.store(initial_conv_states=case.initial_conv if initial else None)
    assert torch.equal(case.conv, conv)


def test_no_checkpoint_writes_nothing(place):
    case = Case(place, offsets=(0, -1, 0, -(2**31)))
    raw, conv = case.raw.clone(), case.conv.clone()
    case.chunk_idx.fill_(-1)
    case.store()
    assert torch.equal(case.raw, raw)
    assert torch.equal(case.conv, conv)


def test_a_negative_slot_is_skipped(place):
    case = Case(place)
    raw, conv = case.raw.clone(), case.conv.clone()
    case.meta.state_indices.fill_(-1)
    case.store()
    assert torch.equal(case.raw, raw)
    assert torch.equal(case.conv, conv)


@pytest.mark.parametrize("offset", [1, 16, 23])
def test_a_scan_resumed_from_a_checkpoint_ends_as_the_whole_one(place, offset):
    """Granted that chunks are cut the same: at the checkpoint, and then from it on."""
    problem = make_problem((30,), device=place.device, dtype=place.dtype, seed=7,
                           **everything(initial=None))  # fmt: skip
    marked = replace(problem, computed=(0,), checkpoints=(offset,))
    sizes = (*problem.x.shape[1:], problem.B.shape[2])
    _, cache = make_cache(4, *sizes, torch.float32, place.device)
    cache.zero_()
    out, states = scan(marked, return_intermediate_states=True, state_dtype=torch.float32)
    m = marked.metadata
    meta = Meta(integers((2,), place), integers((offset,), place))
    inputs = torch.randn(5, 30, generator=torch.Generator().manual_seed(0)).to(place.device)
    conv = torch.zeros(4, 5, WINDOW, device=place.device)
    write_checkpointed_states(
        meta, m.checkpoint_chunk_indices, inputs, conv, states, cache, m.cu_seqlens,
        m.last_chunk_indices, integers((1,), place), state_len=WINDOW,
    )  # fmt: skip
    rest = problem.tokens(offset, 30, (offset,))
    resumed, _ = scan(
        rest, initial_state_cache=cache, initial_state_indices=integers((2,), place),
        final_states_out=cache, final_state_indices=integers((3,), place),
        state_dtype=torch.float32,
    )  # fmt: skip
    assert same_bits(resumed, out[offset:])
    assert same_bits(cache[3], cache[1])
    window = inputs[:, max(offset - WINDOW, 0) : offset]
    assert torch.equal(conv[2, :, WINDOW - window.shape[1] :], window)


def test_a_final_state_stays_where_a_checkpoint_has_its_slot(place):
    case = Case(place)
    conv, ssm = case.expected()
    last = integers((1, 1, 3, 4), place)
    # Sequence 3 ends in the slot of sequence 0's checkpoint, sequence 0 in that of sequence 2's.
    finals = integers((1, -1, 4, 5), place)
    write_checkpointed_states(
        case.meta, case.chunk_idx, case.x, case.conv, case.states, case.ssm, case.starts, last,
        finals, state_len=WINDOW,
    )  # fmt: skip
    for slot, chunk in ((1, 1), (4, 3), (5, 4)):
        ssm[slot] = case.states[chunk].to(ssm.dtype)
    assert torch.equal(case.ssm, ssm)
    assert torch.equal(case.conv, conv)
