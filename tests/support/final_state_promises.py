"""What the final-state write-back promises, run in the interpreter and on a GPU alike."""

from __future__ import annotations

import torch
from ssd_cases import GUARD_BYTE, make_cache

from launchkit.kernels.ssd.final_states import final_state_writeback

HEADS, HEADDIM, DSTATE = 3, 5, 17
EMPTY = {
    "none": (0, 2, 3),
    "first": (-1, 1, 3),
    "middle": (1, 1, 3),
    "middle, marked": (1, -1, 3),
    "two in the middle, marked": (1, -1, -1, 3),
    "last, marked": (1, 3, -1),
    "around": (-1, -1, 1, 1, 3, 3),
}


def make_states(last, dtype, device, seed=0):
    """Return (states, last_chunk_indices, initial_states), of another dtype than the states."""
    rng = torch.Generator(device).manual_seed(seed)
    sizes = (HEADS, HEADDIM, DSTATE)
    states = torch.randn(4, *sizes, generator=rng, device=device).to(dtype)
    initial = torch.randn(len(last), *sizes, generator=rng, device=device)
    return states, torch.tensor(last, dtype=torch.int32, device=device), initial


def expected_final(states, last, initial):
    """Return each sequence's final state by walking the batch, in float64."""
    final, before = [], -1
    for seq, chunk in enumerate(last):
        if chunk > before:
            final.append(states[chunk].double())
            before = chunk
        elif initial is None:
            final.append(torch.zeros_like(states[0], dtype=torch.float64))
        else:
            final.append(initial[seq].double())
    return torch.stack(final)


def check_rows(last, with_initial, dtype, cache_dtype, device):
    """Every named row holds its sequence's final state, and no other byte has changed."""
    states, indices, initial = make_states(last, dtype, device)
    initial = initial if with_initial else None
    raw, cache = make_cache(len(last) + 3, HEADS, HEADDIM, DSTATE, cache_dtype, device)
    slots = torch.randperm(len(last) + 3, device=device)[: len(last)]
    final_state_writeback(states, indices, cache, slots, initial)
    wanted = expected_final(states, last, initial)
    eps = torch.finfo(cache_dtype).eps
    torch.testing.assert_close(cache[slots].double(), wanted, rtol=eps, atol=1e-30)
    cache[slots] = torch.zeros((), dtype=cache_dtype, device=device)
    written = len(last) * HEADS * HEADDIM * DSTATE * torch.finfo(cache_dtype).bits // 8
    assert raw.count_nonzero().item() == raw.numel() - written
    assert (raw[raw != 0] == GUARD_BYTE).all()


def check_negative_slots(device):
    states, indices, initial = make_states((0, 2, 3), torch.float32, device)
    raw, cache = make_cache(3, HEADS, HEADDIM, DSTATE, torch.float32, device)
    slots = torch.tensor([-1, 1, -7], dtype=torch.int32, device=device)
    final_state_writeback(states, indices, cache[1:], slots, initial)
    assert torch.equal(cache[2], states[2])
    cache[2] = 0
    assert (raw[raw != 0] == GUARD_BYTE).all()
