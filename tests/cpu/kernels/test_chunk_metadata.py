"""Chunk metadata against a walk over every token, and the refusal of what does not fit."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from launchkit.errors import UsageError
from launchkit.kernels.ssd.metadata import build_chunk_metadata


def walk(lengths, chunk_size, computed=None, checkpoints=None):
    """Return (chunk bounds, seq_idx, last, checkpoint chunks), token by token."""
    bounds, sequences, last, at = [0], [], [], []
    token = 0
    for seq, length in enumerate(lengths):
        ends_at = checkpoints[seq] if checkpoints else 0
        checkpoint = -1
        for number in range(1, length + 1):
            token += 1
            position = token if computed is None else computed[seq] + number
            if position % chunk_size == 0 or number in (ends_at, length):
                bounds.append(token)
                sequences.append(seq)
            if number == ends_at:
                checkpoint = len(sequences) - 1
        last.append(len(sequences) - 1)
        at.append(checkpoint)
    return bounds, sequences, last, at


def cumulative(lengths):
    return [sum(lengths[:count]) for count in range(len(lengths) + 1)]


def assert_same(metadata, expected, lengths):
    bounds, sequences, last, at = expected
    assert metadata.cu_seqlens.tolist() == cumulative(lengths)
    assert metadata.cu_chunk_seqlens.tolist() == bounds
    assert metadata.seq_idx.tolist() == sequences
    assert metadata.last_chunk_indices.tolist() == last
    assert metadata.num_chunks == len(sequences)
    if metadata.checkpoint_chunk_indices is not None:
        assert metadata.checkpoint_chunk_indices.tolist() == at


@given(
    lengths=st.lists(st.integers(0, 40), max_size=7),
    log_chunk=st.integers(0, 5),
    absolute=st.booleans(),
    marked=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_chunks_are_those_of_a_walk_over_every_token(lengths, log_chunk, absolute, marked, seed):
    rng = random.Random(seed)
    computed = [rng.randint(0, 100) for _ in lengths] if absolute else None
    checkpoints = [rng.randint(-2, length) for length in lengths] if marked else None
    metadata = build_chunk_metadata(cumulative(lengths), 2**log_chunk, computed, checkpoints)
    assert_same(metadata, walk(lengths, 2**log_chunk, computed, checkpoints), lengths)
    assert (metadata.checkpoint_chunk_indices is None) == (checkpoints is None)


@pytest.mark.parametrize(
    ("lengths", "packed", "absolute"),
    [
        ((13, 0, 20), [1, 1, 5], [1, 1, 4]),
        ((0, 13), [-1, 1], [-1, 1]),
        ((0, 0), [-1, -1], [-1, -1]),
        ((8, 0), [0, 0], [0, 0]),
        ((0, 3, 0, 0, 6, 0), [-1, 0, 0, 0, 2, 2], [-1, 0, 0, 0, 1, 1]),
    ],
    ids=str,
)
def test_an_empty_sequence_repeats_the_last_chunk_of_the_one_before(lengths, packed, absolute):
    bounds = cumulative(lengths)
    assert build_chunk_metadata(bounds, 8).last_chunk_indices.tolist() == packed
    metadata = build_chunk_metadata(bounds, 8, [0] * len(lengths))
    assert metadata.last_chunk_indices.tolist() == absolute


def test_packed_and_absolute_positions_cut_at_different_tokens():
    packed = build_chunk_metadata([0, 13, 33], 8)
    assert packed.cu_chunk_seqlens.tolist() == [0, 8, 13, 16, 24, 32, 33]
    absolute = build_chunk_metadata([0, 13, 33], 8, [3, 8])
    assert absolute.cu_chunk_seqlens.tolist() == [0, 5, 13, 21, 29, 33]
    assert absolute.seq_idx.tolist() == [0, 0, 1, 1, 1]


def test_a_prefill_split_anywhere_has_the_chunks_of_one_that_was_not():
    whole = build_chunk_metadata([0, 100], 16, [0]).cu_chunk_seqlens.tolist()
    for split in range(1, 100):
        head = build_chunk_metadata([0, split], 16, [0]).cu_chunk_seqlens.tolist()
        tail = build_chunk_metadata([0, 100 - split], 16, [split]).cu_chunk_seqlens.tolist()
        joined = {*head, *(split + bound for bound in tail)}
        assert joined == {*whole, split}


def test_a_checkpoint_ends_a_chunk_once():
    inside = build_chunk_metadata([0, 40], 16, [0], [20])
    assert inside.cu_chunk_seqlens.tolist() == [0, 16, 20, 32, 40]
    assert inside.checkpoint_chunk_indices.tolist() == [1]
    on_the_grid = build_chunk_metadata([0, 40], 16, [0], [32])
    assert on_the_grid.cu_chunk_seqlens.tolist() == [0, 16, 32, 40]
    assert on_the_grid.checkpoint_chunk_indices.tolist() == [1]
    at_the_end = build_chunk_metadata([0, 40], 16, [0], [40])
    assert at_the_end.cu_chunk_seqlens.tolist() == [0, 16, 32, 40]
    assert at_the_end.checkpoint_chunk_indices.tolist() == [2]


def test_a_sequence_without_a_checkpoint_is_marked():
    metadata = build_chunk_metadata([0, 5, 10, 10], 4, [0, 0, 7], [0, -3, 0])
    assert metadata.checkpoint_chunk_indices.tolist() == [-1, -1, -1]


def test_no_sequence_has_no_chunk():
    metadata = build_chunk_metadata([0], 8, [], [])
    assert metadata.num_chunks == 0
    assert metadata.cu_chunk_seqlens.tolist() == [0]
    assert metadata.last_chunk_indices.shape == (0,)
    assert metadata.checkpoint_chunk_indices.shape == (0,)


@pytest.mark.parametrize(
    "convert",
    [
        tuple,
        np.array,
        lambda values: np.array(values, dtype=np.uint16),
        lambda values: torch.tensor(values, dtype=torch.int32),
        lambda values: torch.tensor([values, values]).T[:, 1],
    ],
    ids=["tuple", "numpy", "unsigned", "tensor", "view"],
)
def test_lists_arrays_and_tensors_give_the_same(convert):
    lengths, computed, checkpoints = [9, 0, 30], [5, 2, 0], [3, 0, 16]
    metadata = build_chunk_metadata(
        convert(cumulative(lengths)), 8, convert(computed), convert(checkpoints)
    )
    assert_same(metadata, walk(lengths, 8, computed, checkpoints), lengths)


def test_the_result_shares_no_memory_with_the_arguments():
    bounds = torch.tensor([0, 9, 20], dtype=torch.int32)
    metadata = build_chunk_metadata(bounds, 8)
    bounds.fill_(7)
    assert metadata.cu_seqlens.tolist() == [0, 9, 20]


@pytest.mark.parametrize("lengths", [[1], [3, 9, 20], [0, 1, 0, 5, 77]], ids=str)
def test_every_tensor_is_int32_and_aligned_to_sixteen_bytes(lengths):
    metadata = build_chunk_metadata(cumulative(lengths), 8, None, [0] * len(lengths))
    tensors = (
        metadata.cu_seqlens,
        metadata.cu_chunk_seqlens,
        metadata.seq_idx,
        metadata.last_chunk_indices,
        metadata.checkpoint_chunk_indices,
    )
    start = tensors[0].data_ptr()
    for tensor in tensors:
        assert tensor.dtype == torch.int32
        assert tensor.is_contiguous()
        assert (tensor.data_ptr() - start) % 16 == 0


def test_device_is_where_the_result_goes():
    metadata = build_chunk_metadata([0, 9], 8, [0], [4], device="meta")
    assert metadata.cu_chunk_seqlens.device.type == "meta"
    assert metadata.cu_chunk_seqlens.shape == (4,)
    assert metadata.checkpoint_chunk_indices.device.type == "meta"


def test_positions_far_along_a_sequence_are_exact():
    metadata = build_chunk_metadata([0, 20], 16, [2**40 + 3])
    assert metadata.cu_chunk_seqlens.tolist() == [0, 13, 20]


GOOD = {"cu_seqlens": [0, 5, 9], "chunk_size": 8}
BAD = {
    "chunk size 0": ({"chunk_size": 0}, "chunk_size is 0"),
    "negative chunk size": ({"chunk_size": -8}, "chunk_size is -8"),
    "chunk size 48": ({"chunk_size": 48}, "chunk_size is 48"),
    "chunk size over what the scan takes": ({"chunk_size": 2048}, "chunk_size is 2048"),
    "chunk size of float": ({"chunk_size": 8.0}, r"chunk_size is 8\.0"),
    "chunk size of bool": ({"chunk_size": True}, "chunk_size is True"),
    "no offsets": ({"cu_seqlens": []}, "cu_seqlens is empty"),
    "offsets from 1": ({"cu_seqlens": [1, 5]}, "cu_seqlens starts with 1"),
    "lengths for offsets": ({"cu_seqlens": [0, 5, 4]}, "cu_seqlens falls from 5 to 4"),
    "too many tokens": ({"cu_seqlens": [0, 2**31]}, "cu_seqlens ends with 2147483648"),
    "offsets of floats": ({"cu_seqlens": [0.0, 5.0]}, "cu_seqlens is of float64"),
    "offsets of bf16": (
        {"cu_seqlens": torch.zeros(2, dtype=torch.bfloat16)},
        r"cu_seqlens is torch\.bfloat16",
    ),
    "offsets of booleans": ({"cu_seqlens": torch.zeros(2) > 0}, r"cu_seqlens is torch\.bool"),
    "offsets of strings": ({"cu_seqlens": ["0", "5"]}, "cu_seqlens is of <U1"),
    "offsets of pairs": ({"cu_seqlens": [[0, 5], [0, 9]]}, "cu_seqlens is of int64 in 2"),
    "ragged offsets": ({"cu_seqlens": [[0], [0, 9]]}, "cu_seqlens is of"),
    "one number": ({"cu_seqlens": 5}, "cu_seqlens is of int64 in 0"),
    "nothing": ({"cu_seqlens": None}, "cu_seqlens is of object"),
    "offsets elsewhere": (
        {"cu_seqlens": torch.zeros(2, dtype=torch.int32, device="meta")},
        "cu_seqlens is on meta",
    ),
    "offsets beyond int64": ({"cu_seqlens": [0, 2**70]}, "cu_seqlens is of object"),
    "one computed too many": (
        {"num_computed_tokens": [0, 1, 2]},
        "num_computed_tokens has 3 entries for 2",
    ),
    "negative computed": ({"num_computed_tokens": [0, -1]}, "num_computed_tokens is -1"),
    "computed without end": ({"num_computed_tokens": [0, 2**63 - 1]}, "num_computed_tokens is 9"),
    "one checkpoint too few": (
        {"checkpoint_offsets": [1]},
        "checkpoint_offsets has 1 entries for 2",
    ),
    "checkpoint behind the end": (
        {"checkpoint_offsets": [5, 5]},
        "checkpoint_offsets is 5 for sequence 1 of 4 tokens",
    ),
    "checkpoint of floats": ({"checkpoint_offsets": [0.5, 1]}, "checkpoint_offsets is of float64"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_with_what_to_pass(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        build_chunk_metadata(**{**GOOD, **change})
    assert caught.value.fields["argument"] == message.split()[0]
    assert str(caught.value).endswith(".")
