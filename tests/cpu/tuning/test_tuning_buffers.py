"""Byte ranges of tensors: what is saved is all that a view reaches, and clones overlap alike."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from launchkit.dispatch.tuning import buffers

DTYPES = [torch.uint8, torch.bool, torch.float16, torch.float32, torch.complex64, torch.int64]


@st.composite
def views(draw):
    """Views of one storage: any type, shape and stride, from anywhere in it."""
    storage = torch.zeros(4096, dtype=torch.uint8)
    found = []
    for _ in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(DTYPES))
        size = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(0, 3)))]
        stride = [draw(st.integers(0, 20)) for _ in size]
        offset = draw(st.integers(0, 100))
        found.append(torch.as_strided(storage.view(dtype), size, stride, offset))
    return storage, found


def reached(storage, tensor):
    """The bytes of the storage that a view has elements in, found by their addresses."""
    places = set()
    for index in itertools.product(*map(range, tensor.shape)):
        element = tensor[index]
        start = element.data_ptr() - storage.data_ptr()
        places |= set(range(start, start + tensor.element_size()))
    return places


@given(views())
def test_range_is_from_the_first_to_the_last_byte_of_a_view(made):
    storage, tensors = made
    for tensor in tensors:
        places, found = reached(storage, tensor), buffers.range_of(tensor)
        assert (found.start, found.stop) == (min(places), max(places) + 1)


@given(views(), st.integers(0, 2**32))
def test_saved_ranges_give_back_every_byte_that_a_view_reaches(made, seed):
    storage, tensors = made
    random = torch.Generator().manual_seed(seed)
    storage.random_(0, 2, generator=random)
    before = storage.clone()
    saved = [buffers.save("k", each) for each in buffers.merged(map(buffers.range_of, tensors))]
    after = storage.random_(0, 2, generator=random).clone()
    for each in saved:
        each.restore()
    places = set().union(*(range(s.range.start, s.range.stop) for s in saved))
    for tensor in tensors:
        assert reached(storage, tensor) <= places
    outside = torch.tensor(sorted(set(range(4096)) - places), dtype=torch.int64)
    inside = torch.tensor(sorted(places), dtype=torch.int64)
    assert torch.equal(storage[inside], before[inside])
    assert torch.equal(storage[outside], after[outside])


@given(views())
def test_merged_ranges_are_apart_and_hold_the_same_bytes(made):
    _, tensors = made
    ranges = [buffers.range_of(tensor) for tensor in tensors]
    found = buffers.merged(ranges)
    bytes_of = [set(range(each.start, each.stop)) for each in ranges]
    merged = [set(range(each.start, each.stop)) for each in found]
    assert set().union(*merged) == set().union(*bytes_of)
    assert sum(map(len, merged)) == len(set().union(*merged))
    for each in ranges:
        assert any(one.covers(each) for one in found)


@given(views())
def test_clones_hold_the_same_values_and_overlap_as_the_originals(made):
    storage, tensors = made
    storage.random_(0, 2)
    clones = buffers.Clones(tensors)
    clones.refill()
    copies = [clones.of(tensor) for tensor in tensors]
    for tensor, copied in zip(tensors, copies, strict=True):
        assert torch.equal(tensor, copied)
        assert (tensor.dtype, tensor.size(), tensor.stride()) == (
            copied.dtype, copied.size(), copied.stride(),
        )  # fmt: skip
        assert copied.data_ptr() % 64 == tensor.data_ptr() % 64
    before = storage.clone()
    for one, copied in zip(tensors, copies, strict=True):
        for other, other_copied in zip(tensors, copies, strict=True):
            if buffers.range_of(one).overlaps(buffers.range_of(other)):
                assert copied.data_ptr() - other_copied.data_ptr() == (
                    one.data_ptr() - other.data_ptr()
                )
    for copied in copies:
        buffers.range_of(copied).bytes.fill_(1)
    assert torch.equal(storage, before)
    clones.refill()
    assert all(map(torch.equal, tensors, copies))


@pytest.mark.parametrize(
    "tensor",
    [torch.empty(0), torch.empty(3, 0), torch.empty(2, device="meta"), torch.eye(3).to_sparse()],
    ids=["empty", "no columns", "meta", "sparse"],
)
def test_tensor_without_memory_of_its_own_has_no_range(tensor):
    assert buffers.range_of(tensor) is None
    assert buffers.Clones([tensor]).of(tensor) is tensor


def test_arguments_that_are_no_tensors_stay_themselves():
    clones = buffers.Clones([])
    for value in (None, 3, "text", 1.5, [1, 2], (None, (1, "a")), object()):
        assert buffers.tensors_in(value) == []
        assert clones.of(value) == value


def test_leaf_that_requires_gradients_is_restored():
    leaf = torch.ones(4, requires_grad=True)
    saved = buffers.save("k", buffers.range_of(leaf))
    with torch.no_grad():
        leaf.mul_(3.0)
    saved.restore()
    assert leaf.tolist() == [1.0] * 4
    clones = buffers.Clones([leaf])
    clones.refill()
    assert clones.of(leaf).requires_grad
    assert clones.of(leaf).tolist() == [1.0] * 4
