"""Where tensors may lie: outputs apart from inputs and from themselves."""

from __future__ import annotations

import itertools

import pytest
import torch

from launchkit.errors import UsageError
from launchkit.kernels.overlap import refuse_overlaps, refuse_self_overlap


def bytes_of(tensor):
    """Every byte that a tensor's elements occupy."""
    width = tensor.element_size()
    sizes, strides = tensor.shape, tensor.stride()
    places = itertools.product(*(range(size) for size in sizes))
    offsets = [sum(i * s for i, s in zip(place, strides, strict=True)) for place in places]
    return [tensor.data_ptr() + o * width + b for o in offsets for b in range(width)]


def refused(written, read):
    try:
        refuse_overlaps("op", (("out", written),), (("x", read), ("y", None)))
    except UsageError as error:
        return "out shares memory with x" in str(error)
    return False


def test_no_two_tensors_that_share_a_byte_are_let_through():
    """10,000 pairs of views of one buffer; the whole buffer's bytes are counted one by one."""
    rng = torch.Generator().manual_seed(0)

    def pick(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    memory = torch.zeros(400)

    def view():
        dtype = (torch.float32, torch.float16)[pick(0, 2)]
        sizes = (pick(0, 4), pick(1, 4), pick(1, 4))
        strides = (pick(0, 40), pick(0, 12), pick(0, 4))
        return memory.view(dtype).as_strided(sizes, strides, pick(0, 200))

    shared = passed = 0
    for _ in range(10_000):
        left, right = view(), view()
        overlapping = not set(bytes_of(left)).isdisjoint(bytes_of(right))
        if overlapping:
            shared += 1
            assert refused(left, right), (left.shape, left.stride(), right.shape, right.stride())
        else:
            passed += not refused(left, right)
    assert shared > 300
    assert passed > 1000


def test_columns_of_one_buffer_may_lie_side_by_side():
    buffer = torch.zeros(9, 20)
    x, out = buffer[:, :12].unflatten(1, (4, 3)), buffer[:, 12:].unflatten(1, (4, 2))
    assert not refused(out, x)
    assert not refused(x, out)
    assert refused(buffer[:, 11:].unflatten(1, (3, 3)), x)


def test_empty_tensors_share_nothing():
    memory = torch.zeros(8)
    assert not refused(memory[4:4], memory)
    assert not refused(memory, memory[4:4])


SELF = {
    "dense": ((3, 4), (4, 1), False),
    "padded pages": ((3, 4), (100, 1), False),
    "transposed": ((3, 4), (1, 3), False),
    "expanded": ((3, 4), (0, 1), True),
    "rows closer than they are long": ((3, 4), (3, 1), True),
    "one stride for two dimensions": ((3, 4), (1, 1), True),
    "a single row": ((1, 4), (0, 1), False),
}


@pytest.mark.parametrize(("sizes", "strides", "shared"), SELF.values(), ids=SELF.keys())
def test_elements_that_share_memory_are_refused(sizes, strides, shared):
    tensor = torch.zeros(1000).as_strided(sizes, strides)
    if not shared:
        refuse_self_overlap("op", "out", tensor)
        return
    with pytest.raises(UsageError, match=r"out has strides .* share memory"):
        refuse_self_overlap("op", "out", tensor)


def test_no_tensor_whose_elements_share_a_byte_is_let_through():
    rng = torch.Generator().manual_seed(1)
    memory, seen = torch.zeros(2000), 0
    for _ in range(3000):
        sizes = torch.randint(1, 5, (3,), generator=rng).tolist()
        strides = torch.randint(0, 30, (3,), generator=rng).tolist()
        tensor = memory.as_strided(sizes, strides)
        places = bytes_of(tensor)
        if len(places) != len(set(places)):
            seen += 1
            with pytest.raises(UsageError):
                refuse_self_overlap("op", "out", tensor)
    assert seen > 500
