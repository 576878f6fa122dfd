"""The scan's op plan launches, over random calls, exactly what the scan itself launches."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from sample_ops import launched, same_launches
from ssd_cases import pin_first_configs

from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen as scan

pytestmark = pytest.mark.usefixtures("c_core", "host")

H, P, G, N, Q = 4, 16, 2, 16, 16
SETS = 60
KINDS = {
    "cache": {"cache": torch.float32, "D": "head", "bias": True},
    "cache and initial states": {"cache": torch.float32, "initial": True, "D": "head"},
    "half cache, gate": {"cache": torch.float16, "gate": True, "softplus": True},
    "final states returned": {"bias": True, "softplus": True},
    "all states returned": {"every": True, "D": "channel"},
    "views at odd places": {"cache": torch.float32, "odd": True},
    "one sequence starts in a slot": {"cache": torch.float32, "starts": 1},
    "several start in slots": {"cache": torch.float32, "starts": 3},
    "final states returned, of slots": {"starts": 2, "gate": True},
}
GATHERS = ("several start in slots", "final states returned, of slots")


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    pin_first_configs(monkeypatch)
    scan.op_plans.clear()
    yield
    scan.op_plans.clear()


def rows(rng, tokens, *shape, odd=False):
    """Return (tokens, *shape) in bf16: dense, or a view of wider rows, aligned or not."""
    width = torch.Size(shape).numel()
    left = rng.choice((0, 16)) if not odd else 1
    wide = torch.empty(tokens, width + left + (rng.choice((0, 16)) if not odd else 2))
    return wide.bfloat16()[:, left : left + width].unflatten(1, shape)


def arguments(rng, cache=None, initial=False, D=None, bias=False, gate=False, softplus=False,
              every=False, odd=False, starts=0):  # fmt: skip
    lengths = [rng.randrange(1, 50) for _ in range(starts or rng.randrange(1, 5))]
    tokens, sequences = sum(lengths), len(lengths)
    m = build_chunk_metadata([0, *itertools.accumulate(lengths)], Q)
    given = {
        "x": rows(rng, tokens, H, P, odd=odd),
        "dt": rows(rng, tokens, H),
        "A": torch.empty(H),
        "B": rows(rng, tokens, G, N),
        "C": rows(rng, tokens, G, N),
        "chunk_size": Q,
        "cu_seqlens": m.cu_seqlens,
        "cu_chunk_seqlens": m.cu_chunk_seqlens,
        "last_chunk_indices": m.last_chunk_indices,
        "seq_idx": m.seq_idx,
        "out": torch.empty(tokens, H, P).bfloat16(),
        "dt_softplus": softplus,
        "return_intermediate_states": every,
        "state_dtype": rng.choice((torch.float32, None)),
    }
    if D:
        given["D"] = torch.empty(*((H,) if D == "head" else (H, P)))
    if bias:
        given["dt_bias"] = torch.empty(H)
    if gate:
        given["z"] = rows(rng, tokens, H, P)
    if initial:
        given["initial_states"] = torch.empty(sequences, H, P, N)
    if cache is not None:
        slots = rng.randrange(5, 9)
        given["final_states_out"] = torch.empty(slots, 2, H, P, N, dtype=cache)[:, 1]
        given["final_state_indices"] = torch.arange(sequences, dtype=torch.int32)
    if starts:
        add_starts(rng, given, starts)
    return given


def add_starts(rng, given, sequences):
    """Let every sequence start in a slot of the final cache, or of one of its own."""
    own = torch.empty(6, 2, H, P, N)[:, 1]
    given["initial_state_cache"] = given.get("final_states_out", own)
    table = torch.zeros(
        sequences, rng.randrange(1, 4), dtype=rng.choice((torch.int32, torch.int64))
    )
    given["initial_state_indices"] = table[:, -1]
    given["state_dtype"] = torch.float32
    if rng.randrange(2):
        given["has_initial_state"] = torch.ones(sequences, dtype=torch.bool)


def likewise(given):
    """Return other tensors, of the same kinds."""

    def other(value):
        if not isinstance(value, torch.Tensor):
            return value
        offset = value.storage_offset()
        whole = torch.empty(value.untyped_storage().nbytes() // value.element_size())
        return whole.to(value.dtype).as_strided(value.shape, value.stride(), offset)

    made = {name: other(value) for name, value in given.items()}
    if given.get("initial_state_cache") is given.get("final_states_out"):
        made["initial_state_cache"] = made.get("final_states_out")
    return made


def split(rng, given):
    """Pass the first few by position, the rest by name and in any order."""
    names = list(given)[:11]
    cut = rng.randrange(12)
    named = [*names[cut:], *list(given)[11:]]
    rng.shuffle(named)
    return [given[name] for name in names[:cut]], {name: given[name] for name in named}


def sizes_of_allocations(monkeypatch, call):
    """Return the bytes of each tensor that a call allocates, by its address."""
    found, empty, held = {}, torch.empty, []

    def noted(*args, **kwargs):
        tensor = empty(*args, **kwargs)
        found[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        held.append(tensor)
        return tensor

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", noted)
        outcome = launched(call)
    return found, outcome


@pytest.mark.parametrize("kind", KINDS)
def test_replay_passes_every_byte_that_the_op_passes(kind, monkeypatch):
    rng = random.Random(kind)
    for _ in range(SETS):
        given = arguments(rng, **KINDS[kind])
        before = scan.op_plans.replays
        for _ in range(8):
            if scan.op_plans.replays == before:
                scan(**likewise(given))
        before = scan.op_plans.replays
        given = likewise(given)
        args, kwargs = split(rng, given)
        result, seen = launched(lambda args=args, kwargs=kwargs: scan(*args, **kwargs))
        assert scan.op_plans.replays == before + 1, scan.op_plans
        sizes, (expected, theirs) = sizes_of_allocations(
            monkeypatch, lambda given=given: scan.__wrapped__(**given)
        )
        assert len(seen) == 5 + (kind in GATHERS)
        assert_apart(same_launches(seen, theirs), sizes, given)
        assert (result is None) == (expected is None)
        if expected is not None:
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


def assert_apart(moved, sizes, given):
    """What a replay allocates is as large as in the op, and overlaps nothing."""
    assert set(moved) <= set(sizes)
    places = sorted((place, place + sizes[before]) for before, place in moved.items())
    for (_, end), (start, _) in itertools.pairwise(places):
        assert end <= start
    for tensor in given.values():
        if isinstance(tensor, torch.Tensor):
            whole = tensor.untyped_storage()
            first, last = whole.data_ptr(), whole.data_ptr() + whole.nbytes()
            assert all(end <= first or last <= start for start, end in places)


def test_refused_call_is_refused_after_a_plan_of_its_kind():
    from launchkit.errors import UsageError

    given = arguments(random.Random(1), cache=torch.float32, initial=True)
    for _ in range(4):
        scan(**given)
    x = given["x"].contiguous()
    for _ in range(4):
        scan(**{**given, "x": x, "out": torch.empty_like(x)})
    with pytest.raises(UsageError, match="out shares memory with x"):
        scan(**{**given, "x": x, "out": x})
    cache = given["final_states_out"]
    sequences = given["initial_states"].shape[0]
    with pytest.raises(UsageError, match="shares memory with initial_states"):
        scan(**{**given, "initial_states": cache[:sequences]})


def test_views_that_lay_side_by_side_are_refused_where_they_meet():
    """Of the same shapes, strides and crossing ranges: only how far apart they start differs."""
    from launchkit.errors import UsageError

    given = arguments(random.Random(3))
    tokens = given["x"].shape[0]
    buffer = torch.zeros(tokens, 4 * H * P, dtype=given["x"].dtype)

    def views(first):
        x, out = buffer[:, : H * P], buffer[:, first : first + H * P]
        return {"x": x.unflatten(1, (H, P)), "out": out.unflatten(1, (H, P))}

    before = scan.op_plans.replays
    for _ in range(4):
        scan(**{**given, **views(2 * H * P)})
    assert scan.op_plans.replays > before
    with pytest.raises(UsageError, match="out shares memory with x"):
        scan(**{**given, **views(H * P // 2)})


def test_empty_batch_is_launched_as_it_is():
    m = build_chunk_metadata([0], Q)
    given = arguments(random.Random(2))
    empty = {
        name: value[:0] if name in ("x", "dt", "B", "C", "out") else value
        for name, value in given.items()
    }
    empty |= {
        "cu_seqlens": m.cu_seqlens, "cu_chunk_seqlens": m.cu_chunk_seqlens,
        "last_chunk_indices": m.last_chunk_indices, "seq_idx": m.seq_idx,
    }  # fmt: skip
    for _ in range(4):
        assert scan(**empty).shape == (0, H, P, N)
    assert len(scan.op_plans) == 0
