"""What host-only mode records of a launch, and what it pretends to be."""

from __future__ import annotations

import ctypes
import random
import re
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from launchkit import hostonly
from launchkit.errors import HostOnlyError
from launchkit.hostonly.cubin import CubinError, param_layout

# Triton passes pointers to scratch memory after the arguments: global, and from 3.5 profile.
SCRATCH = [bytes(8)] * (1 if triton.__version__.startswith("3.4.") else 2)


@triton.jit
def scalars(dst, i, j, u, f, d: tl.float64, flag, WIDTH: tl.constexpr):
    value = i + j + u.to(tl.int64) + f.to(tl.int64) + d.to(tl.int64) + flag.to(tl.int64)
    tl.store(dst + tl.arange(0, WIDTH), value)


@triton.jit
def scale(src, dst, factor, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    tl.store(dst + at, tl.load(src + at) * factor)


@triton.jit
def row_sums(src, dst, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    square = tl.load(src + at[:, None] * WIDTH + at[None, :])
    tl.store(dst + at, tl.sum(tl.trans(square) + square, axis=0))


@triton.jit
def product(left, right, dst, DEPTH: tl.constexpr):
    at, along = tl.arange(0, 64), tl.arange(0, DEPTH)
    rows = tl.load(left + at[:, None] * DEPTH + along[None, :])
    columns = tl.load(right + along[:, None] * 64 + at[None, :])
    tl.store(dst + at[:, None] * 64 + at[None, :], tl.dot(rows, columns))


@pytest.fixture(autouse=True)
def session() -> Iterator[hostonly.HostOnlySession]:
    with hostonly.activate(arch=90, devices=2) as active:
        hostonly.clear()
        yield active


def cuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(64), torch.zeros(64)


def last() -> hostonly.HostLaunch:
    return hostonly.launches()[-1]


def as_address(tensor: torch.Tensor) -> bytes:
    return struct.pack("<Q", tensor.data_ptr())


def test_a_launch_is_recorded_with_its_kernel_grid_block_and_stream() -> None:
    src, dst = tensors()
    hostonly.set_stream(0x7F00)
    compiled = scale[(3, 5, 2)](src, dst, 2, WIDTH=64, num_warps=2)
    hostonly.set_stream(0)
    launch = last()
    assert (launch.kernel, launch.function) == ("scale", compiled.function)
    assert (launch.grid, launch.block) == ((3, 5, 2), (64, 1, 1))
    assert (launch.stream, launch.attributes, launch.device) == (0x7F00, (), 0)
    assert launch.shared_bytes == compiled.metadata.shared == 0


def test_nothing_is_executed() -> None:
    src, dst = torch.ones(64), torch.zeros(64)
    scale[(1,)](src, dst, 2, WIDTH=64)
    assert dst.eq(0).all()


def test_shared_memory_is_what_the_compiler_asked_for() -> None:
    compiled = row_sums[(1,)](torch.zeros(64, 64), torch.zeros(64), WIDTH=64)
    assert last().shared_bytes == compiled.metadata.shared > 0


def test_param_bytes_are_the_packed_arguments() -> None:
    dst = torch.zeros(64, dtype=torch.int64)
    scalars[(1,)](dst, -7, -(2**40), 2**63 + 5, 1.5, -2.25, True, WIDTH=64)
    arguments = [
        as_address(dst),
        struct.pack("<i", -7),
        struct.pack("<q", -(2**40)),
        struct.pack("<Q", 2**63 + 5),
        struct.pack("<f", 1.5),
        struct.pack("<d", -2.25),
        b"\x01",
    ]
    assert list(last().params) == arguments + SCRATCH


def test_an_argument_folded_into_the_kernel_is_no_param() -> None:
    src, dst = tensors()
    scale[(1,)](src, dst, 1, WIDTH=64)
    assert list(last().params) == [as_address(src), as_address(dst), *SCRATCH]


def test_param_layout_agrees_with_cuobjdump() -> None:
    dst = torch.zeros(64, dtype=torch.int64)
    compiled = scalars[(1,)](dst, 3, 2**40, 2**63, 1.5, 2.5, True, WIDTH=64)
    cubin = compiled.asm["cubin"]
    tool = triton.knobs.nvidia.cuobjdump.path
    listing = run_on_file([tool, "-elf"], cubin)
    entries = re.findall(r"Ordinal : (0x\w+)\s+Offset\s+: (0x\w+)\s+Size\s+: (0x\w+)", listing)
    expected = sorted(tuple(int(text, 16) for text in entry) for entry in entries)
    layout = param_layout(cubin, "scalars")
    found = zip(range(7 + len(SCRATCH)), layout.offsets, layout.sizes, strict=True)
    assert list(found) == expected


def run_on_file(command: list[str], content: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        return subprocess.run(
            [*command, file.name], capture_output=True, text=True, check=True
        ).stdout


def test_a_damaged_cubin_is_refused_or_read_as_before() -> None:
    src, dst = tensors()
    cubin = scale[(1,)](src, dst, 2, WIDTH=64).asm["cubin"]
    whole = param_layout(cubin, "scale")
    dice = random.Random(1)
    refused = 0
    for _ in range(500):
        damaged = bytearray(cubin[: dice.choice([len(cubin), dice.randrange(len(cubin))])])
        for _ in range(dice.randrange(1, 40)):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            layout = param_layout(bytes(damaged), "scale")
        except CubinError:
            refused += 1
        else:
            assert len(layout.sizes) == len(layout.offsets) <= len(whole.sizes)
    assert refused > 100


@given(st.binary(max_size=300))
def test_bytes_that_are_no_cubin_are_refused(content: bytes) -> None:
    for candidate in (content, b"\x7fELF\x02\x01" + content):
        with pytest.raises(CubinError):
            param_layout(candidate, "scale")


def test_a_kernel_that_the_cubin_does_not_hold_is_refused() -> None:
    src, dst = tensors()
    cubin = scale[(1,)](src, dst, 2, WIDTH=64).asm["cubin"]
    with pytest.raises(CubinError, match=r"no section \.nv\.info\.scal$"):
        param_layout(cubin, "scal")


def test_cluster_cooperative_and_dependent_launches_arrive_as_attributes() -> None:
    src, dst = tensors()
    options: dict[str, Any] = {"launch_cooperative_grid": True, "launch_pdl": True}
    scale[(4,)](src, dst, 2, WIDTH=64, num_ctas=2, **options)
    assert last().grid == (8, 1, 1)
    assert dict(last().attributes) == {
        "cluster_dim": (2, 1, 1),
        "cluster_scheduling_policy": 1,
        "cooperative": 1,
        "programmatic_stream_serialization": 1,
    }
    scale[(4,)](src, dst, 2, WIDTH=64, launch_cooperative_grid=True)
    assert last().attributes == (("cooperative", 1),)


def test_an_empty_grid_reaches_no_driver() -> None:
    src, dst = tensors()
    assert scale[(0,)](src, dst, 2, WIDTH=64) is not None
    assert hostonly.launches() == []


def test_recording_off_leaves_nothing_and_comes_back() -> None:
    src, dst = tensors()
    with hostonly.recording(False):
        scale[(1,)](src, dst, 2, WIDTH=64)
    assert hostonly.launches() == []
    scale[(1,)](src, dst, 2, WIDTH=64)
    assert len(hostonly.launches()) == 1


def test_a_second_device_loads_a_function_of_its_own() -> None:
    src, dst = tensors()
    scale[(1,)](src, dst, 2, WIDTH=64)
    hostonly.set_device(1)
    try:
        assert hostonly.current_device() == 1
        scale[(1,)](src, dst, 2, WIDTH=64)
    finally:
        hostonly.set_device(0)
    first, second = hostonly.launches()
    assert (first.device, second.device) == (0, 1)
    assert first.function != second.function
    assert first.params == second.params


@pytest.mark.parametrize("index", [-1, 2, "0", None, 0.5, True])
def test_a_device_that_does_not_exist_cannot_be_current(index: Any) -> None:
    with pytest.raises(HostOnlyError, match="with more devices") as caught:
        hostonly.set_device(index)
    assert caught.value.fields == {"reason": "device", "device": index, "devices": 2}


@pytest.mark.parametrize("handle", [-1, 2**64, "0", None, 1.5])
def test_what_is_no_handle_cannot_be_the_stream(handle: Any) -> None:
    with pytest.raises(HostOnlyError, match="Pass its cuda_stream") as caught:
        hostonly.set_stream(handle)
    assert caught.value.fields == {"reason": "stream", "handle": handle}


def test_capturing_is_what_the_driver_and_cuda_say() -> None:
    def answers() -> tuple[bool, int]:
        status = ctypes.c_int(-1)
        assert cuda().cuStreamIsCapturing(ctypes.c_void_p(0), ctypes.byref(status)) == 0
        return triton.runtime.driver.active.is_capturing(0), status.value

    assert answers() == (False, 0)
    with hostonly.capturing():
        assert answers() == (True, 1)
        with hostonly.capturing():
            pass
        assert answers() == (True, 1)
    assert answers() == (False, 0)


def test_the_device_looks_like_an_h100() -> None:
    driver = triton.runtime.driver.active
    properties = driver.utils.get_device_properties(0)
    assert properties["multiprocessor_count"] == 132
    assert properties["max_shared_mem"] == 232448
    assert properties["max_num_regs"] == 65536
    assert properties["warpSize"] == 32
    assert driver.get_device_capability(1) == (9, 0)
    target = driver.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)


def test_what_asks_for_too_much_shared_memory_is_out_of_resources() -> None:
    half = torch.zeros(1, dtype=torch.float16)
    with pytest.raises(triton.runtime.errors.OutOfResources, match="shared memory"):
        product[(1,)](half, half, torch.zeros(1), DEPTH=1024)
    assert hostonly.launches() == []


def test_a_kernel_whose_module_was_unloaded_cannot_be_launched() -> None:
    src, dst = tensors()
    compiled = scale[(1,)](src, dst, 3, WIDTH=32)
    assert cuda().cuModuleUnload(ctypes.c_void_p(compiled.module)) == 0
    with pytest.raises(RuntimeError, match="unloaded kernel handle"):
        compiled[(1, 1, 1)](src, dst, 3, 32)
    scale.device_caches.clear()


def launch_packed(function: int, grid_x: int, params: bytes) -> int:
    size = ctypes.c_size_t(len(params))
    extra = (ctypes.c_void_p * 5)(
        1, ctypes.cast(params, ctypes.c_void_p), 2, ctypes.addressof(size), None
    )
    dims = [ctypes.c_uint(n) for n in (grid_x, 1, 1, 32, 1, 1, 0)]
    return int(cuda().cuLaunchKernel(ctypes.c_void_p(function), *dims, None, None, extra))


def test_params_passed_as_one_buffer_are_recorded_like_any() -> None:
    src, dst = tensors()
    function = scale[(1,)](src, dst, 2, WIDTH=64).function
    packed = struct.pack("<QQi4x", 11, 22, 33) + b"".join(SCRATCH)
    assert launch_packed(function, 1, packed) == 0
    arguments = [struct.pack("<Q", 11), struct.pack("<Q", 22), struct.pack("<i", 33)]
    assert list(last().params) == arguments + SCRATCH
    assert launch_packed(function, 1, packed[:-1]) == 1, "a short buffer is an invalid value"


def test_the_ring_keeps_the_last_launches_and_counts_the_others() -> None:
    src, dst = tensors()
    function = scale[(1,)](src, dst, 2, WIDTH=64).function
    hostonly.clear()
    packed = bytes(24) + b"".join(SCRATCH)
    for number in range(65_536 + 3):
        launch_packed(function, number + 1, packed)
    kept = hostonly.launches()
    assert (len(kept), hostonly.dropped()) == (65_536, 3)
    assert [kept[0].grid[0], kept[-1].grid[0]] == [4, 65_536 + 3]
    hostonly.clear()
    assert (hostonly.launches(), hostonly.dropped()) == ([], 0)


def test_launches_of_many_threads_are_all_recorded_whole() -> None:
    src, dst = tensors()
    scale[(1,)](src, dst, 2, WIDTH=64)
    hostonly.clear()

    def work(worker: int) -> None:
        for number in range(300):
            scale[(number + 1, worker + 1)](src, dst, 1000 * worker + number + 2, WIDTH=64)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = {
        (launch.grid[1] - 1, launch.grid[0] - 1): launch.params[2] for launch in hostonly.launches()
    }
    assert seen == {
        (worker, number): struct.pack("<i", 1000 * worker + number + 2)
        for worker in range(4)
        for number in range(300)
    }


def test_every_repr_says_host_only(session: hostonly.HostOnlySession) -> None:
    src, dst = tensors()
    scale[(1,)](src, dst, 2, WIDTH=64)
    for labelled in (last(), session, triton.runtime.driver.active):
        assert hostonly.LABEL in repr(labelled)
