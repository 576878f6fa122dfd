"""Arguments are after a tuning what they were before, whatever the kernel does to them."""

from __future__ import annotations

import logging

import access_kernels as kernels
import pytest
import torch
import triton
from executing import Executed, times
from triton.tools.tensor_descriptor import TensorDescriptor

import launchkit
from launchkit.dispatch.tuning import buffers as tuning_buffers
from launchkit.dispatch.tuning import protection as tuning_protection
from launchkit.errors import ProtectionError, UsageError

pytestmark = pytest.mark.usefixtures("measuring")


def tuned(kernel, *args, key=("n",), bench=None, blocks=(16, 32), **options):
    """Tune a kernel by launching it once; return it."""
    configs = [triton.Config({"BLOCK": block}) for block in blocks]
    autotuned = launchkit.autotuned(configs, list(key), do_bench=bench or times(), **options)
    made = autotuned(kernel)
    made[(1,)](*args)
    return made


def double(named):
    named["x_ptr"].mul_(2.0)


def values(n=64, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_kernel_that_changes_its_input_in_place_leaves_it_as_it_was(monkeypatch, protect):
    executed = Executed(monkeypatch, double)
    x = values()
    tuned(kernels.doubles, x, 64, protect=protect)
    assert torch.equal(x, values())
    assert len(executed.launches) == 6


def test_each_config_starts_with_the_values_of_the_launch(monkeypatch):
    seen = {}

    def effect(named):
        seen.setdefault(named["BLOCK"], []).append(named["x_ptr"][0].item())
        double(named)

    Executed(monkeypatch, effect)
    x = torch.full((64,), 3.0)
    tuned(kernels.doubles, x, 64)
    assert seen == {16: [3.0, 6.0, 12.0], 32: [3.0, 6.0, 12.0]}


def test_without_protection_changes_stay_as_with_triton(monkeypatch):
    Executed(monkeypatch, double)
    x = torch.ones(64)
    tuned(kernels.doubles, x, 64, protect="none")
    assert x.tolist() == [2.0**6] * 64


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_sums_by_atomics_are_not_added_up_by_tuning(monkeypatch, protect):
    Executed(monkeypatch, lambda named: named["sum_ptr"].add_(named["x_ptr"].sum()))
    x, total = values(), torch.tensor([5.0])
    tuned(kernels.counts, x, total, 64, protect=protect)
    assert total.item() == 5.0


def copy(named):
    named["y_ptr"].copy_(named["x_ptr"] + 1.0)


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_output_that_is_the_input_is_restored(monkeypatch, protect):
    Executed(monkeypatch, copy)
    x = values()
    tuned(kernels.copies, x, x, 64, protect=protect)
    assert torch.equal(x, values())


@pytest.mark.parametrize("protect", ["auto", "copies"])
@pytest.mark.parametrize("shift", [1, 31, 63, 64, 100])
def test_output_that_overlaps_the_input_is_restored(monkeypatch, protect, shift):
    def effect(named):
        named["y_ptr"].copy_(named["x_ptr"].clone() + 1.0)

    Executed(monkeypatch, effect)
    memory = values(256)
    tuned(kernels.copies, memory[:64], memory[shift : shift + 64], 64, protect=protect)
    expected = values(256)
    if protect == "auto" and shift >= 64:  # apart from the input: written again by the launch
        expected[shift : shift + 64] = expected[:64] + 1.0
    assert torch.equal(memory, expected)


def test_output_that_is_only_written_is_not_copied(monkeypatch):
    saved = []
    monkeypatch.setattr(
        tuning_protection.buffers, "save",
        lambda kernel, each: saved.append(each) or tuning_buffers.SavedRange(each, each.bytes.clone()),
    )  # fmt: skip
    tuned(kernels.copies, values(), values(), 64)
    assert saved == []
    tuned(kernels.doubles, values(), 64)
    assert [each.stop - each.start for each in saved] == [256]


def test_clones_overlap_and_are_aligned_as_the_originals(monkeypatch):
    memory = values(4096)
    x, y = memory[3:67], memory[35:99]
    executed = Executed(monkeypatch, copy_through_clone)
    tuned(kernels.copies, x, y, 64, protect="copies")
    assert torch.equal(memory, values(4096))
    for named in executed.launches:
        ours, theirs = named["x_ptr"], named["y_ptr"]
        assert ours.data_ptr() != x.data_ptr()
        assert theirs.data_ptr() - ours.data_ptr() == y.data_ptr() - x.data_ptr()
        assert (ours.data_ptr() - x.data_ptr()) % 64 == 0  # what torch aligns host memory to
        assert (ours.shape, ours.stride(), ours.dtype) == (x.shape, x.stride(), x.dtype)


def copy_through_clone(named):
    before = named["x_ptr"].clone()
    named["y_ptr"].copy_(before)
    assert torch.equal(named["x_ptr"][32:], before[:32])  # they overlap


@pytest.mark.parametrize("protect", ["auto", "copies"])
@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()], ids=repr)
def test_arguments_are_restored_when_the_benchmark_raises(monkeypatch, protect, error):
    Executed(monkeypatch, double)

    def bench(call, quantiles):
        call()
        raise error

    x = values()
    with pytest.raises(type(error)):
        tuned(kernels.doubles, x, 64, bench=bench, protect=protect)
    assert torch.equal(x, values())


def test_argument_that_hooks_restore_is_not_copied_again(monkeypatch):
    monkeypatch.setattr(tuning_protection.buffers, "save", None)  # would raise
    Executed(monkeypatch, double)
    x = values()
    tuned(kernels.doubles, x, 64, restore_value=["x_ptr"])
    assert torch.equal(x, values())


def test_kernel_whose_ir_is_not_understood_has_all_arguments_restored(monkeypatch):
    monkeypatch.setattr("launchkit.dispatch.tuning.calls.accesses_of", lambda compiled: None)
    Executed(monkeypatch, copy)
    x, y = values(), values(seed=1)
    tuned(kernels.copies, x, y, 64)
    assert torch.equal(x, values())
    assert torch.equal(y, values(seed=1))


def two_configs(kernel, protect):
    configs = [triton.Config({}, num_warps=warps) for warps in (1, 2)]
    return launchkit.autotuned(configs, [], do_bench=times(), protect=protect)(kernel)


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_tensors_in_tuples_are_protected(monkeypatch, protect):
    Executed(monkeypatch, lambda named: named["pair"][1].add_(named["pair"][0]))
    a, b = values(), values(seed=1)
    two_configs(kernels.takes_tuple, protect)[(1,)]((a, b), values())
    assert torch.equal(b, values(seed=1))


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_tensors_behind_descriptors_are_protected(monkeypatch, protect):
    Executed(monkeypatch, lambda named: named["y"].base.add_(1.0))
    matrix = values(4096).half().view(64, 64)
    source, target = (TensorDescriptor.from_tensor(matrix.clone(), [16, 32]) for _ in range(2))
    base = target.base
    two_configs(kernels.adds_up_described, protect)[(1,)](source, target)
    assert target.base is base
    assert torch.equal(base, matrix)


def test_memory_behind_loaded_addresses_is_said_not_to_be_protected(caplog):
    kernel = two_configs(kernels.follows, "auto")
    with caplog.at_level(logging.INFO, logger="launchkit"):
        kernel[(1,)](torch.zeros(4, dtype=torch.int64), values())
    assert caplog.text.count("writes through addresses that it loads") == 1


# -- memory that is short


@pytest.fixture
def full_device(monkeypatch):
    """Copies on the tensors' own device do not fit; ``clones`` says how often one was tried."""
    tried = []

    def clone(tensor, **options):
        tried.append(tensor.numel())
        raise torch.cuda.OutOfMemoryError("out of memory")

    def empty(size, **options):
        tried.append(size)
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(tuning_buffers.torch.Tensor, "clone", clone)
    monkeypatch.setattr(tuning_buffers, "_aligned_like", lambda each: empty(each.stop - each.start))
    return tried


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_copies_go_to_host_memory_where_the_device_is_full(monkeypatch, full_device, protect):
    Executed(monkeypatch, double)
    x = values()
    tuned(kernels.doubles, x, 64, protect=protect)
    assert full_device
    assert torch.equal(x, values())


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_copy_that_fits_nowhere_names_the_bytes_and_launches_nothing(
    monkeypatch, full_device, protect
):
    def to(tensor, *args, **options):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    executed = Executed(monkeypatch, double)
    monkeypatch.setattr(tuning_buffers.torch.Tensor, "to", to)
    x = values(1000)
    with pytest.raises(ProtectionError, match="a copy of 4000 bytes") as caught:
        tuned(kernels.doubles, x, 1000, protect=protect)
    assert caught.value.fields["bytes"] == 4000
    assert executed.launches == []


def test_other_errors_of_copying_are_not_taken_for_full_memory(monkeypatch):
    def clone(tensor, **options):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(tuning_buffers.torch.Tensor, "clone", clone)
    with pytest.raises(RuntimeError, match="no kernel image"):
        tuned(kernels.doubles, values(), 64)


# -- options


@pytest.mark.parametrize(
    "options",
    [
        {"protect": "all"},
        {"protect": None},
        {"measure": "gpu"},
        {"l2": "hot"},
        {"check_outputs": 1},
        {"check_outputs": (1,)},
        {"check_outputs": (-1.0, 0.0)},
        {"check_outputs": (float("nan"), 0.0)},
        {"check_outputs": (True, 0.0)},
        {"check_outputs": True, "protect": "none"},
        {"measure": "graph", "do_bench": times()},
        {"l2": "cold", "do_bench": times()},
    ],
    ids=lambda options: " ".join(options),
)
def test_option_that_cannot_work_is_refused_where_it_is_given(options):
    with pytest.raises(UsageError):
        launchkit.autotuned([triton.Config({"BLOCK": 16})], ["n"], **options)
