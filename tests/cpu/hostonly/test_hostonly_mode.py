"""Entering host-only mode, tuning in it, and leaving it without a trace."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
import triton.testing
from triton.backends.nvidia import driver as nvidia

from launchkit import hostonly
from launchkit.errors import HostOnlyError


@triton.jit
def copy(src, dst, n, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


tuned_copy = triton.autotune(
    configs=[triton.Config({"WIDTH": 32}, num_warps=1), triton.Config({"WIDTH": 64}, num_warps=2)],
    key=["n"],
)(copy)


@pytest.fixture(autouse=True)
def left() -> Iterator[None]:
    hostonly.deactivate()
    yield
    hostonly.deactivate()


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(64), torch.zeros(64)


def launch_copy() -> Any:
    src, dst = tensors()
    return copy[(2,)](src, dst, 50, WIDTH=32)


def triton_state() -> dict[str, Any]:
    groups = ("nvidia", "cache", "autotuning", "build")
    return {
        "driver": dict(vars(triton.runtime.driver)),
        "knobs": {name: dict(vars(getattr(triton.knobs, name))) for name in groups},
        "utils": vars(nvidia.CudaUtils).get("instance"),
        "module": {name: vars(nvidia).get(name) for name in ("PyCUtensorMap", "PyKernelArg")},
        "caches": (
            nvidia.libcuda_dirs.cache_info().currsize,
            nvidia.library_dirs.cache_info().currsize,
        ),
        "testing": (triton.testing.do_bench, triton.testing.do_bench_cudagraph),
        "environment": dict(os.environ),
    }


def test_leaving_puts_triton_back_as_it_was() -> None:
    nvidia.libcuda_dirs.cache_clear()
    nvidia.library_dirs.cache_clear()
    before = triton_state()
    with hostonly.activate():
        launch_copy()
        assert triton_state()["driver"] != before["driver"]
        assert dict(os.environ) == before["environment"], "child processes must not see the stub"
    assert triton_state() == before


def test_leaving_after_an_error_puts_triton_back_as_it_was() -> None:
    before = triton_state()
    with pytest.raises(ZeroDivisionError), hostonly.activate():
        1 / 0
    assert not hostonly.is_active()
    assert triton_state()["driver"] == before["driver"]


def test_leaving_makes_kernels_forget_the_driver() -> None:
    with hostonly.activate():
        compiled = launch_copy()
        copy._launchkit_entry = tuned_copy._launchkit_entry = object()
        assert len(copy.device_caches) == 1
    assert not copy.device_caches
    assert not hasattr(copy, "_launchkit_entry")
    assert not hasattr(tuned_copy, "_launchkit_entry")
    assert (compiled.module, compiled.function) == (None, None)


def test_a_compiled_kernel_that_was_kept_can_be_launched_after_entering_again() -> None:
    with hostonly.activate():
        kept = launch_copy()
        old = kept.function
    with hostonly.activate():
        src, dst = tensors()
        kept[(1, 1, 1)](src, dst, 50, 32)
        assert hostonly.launches()[0].function == kept.function != old


def test_a_handle_that_was_kept_stays_invalid_after_entering_again() -> None:
    def launch(function: int) -> int:
        cuda = ctypes.CDLL("libcuda.so.1")
        dims = [ctypes.c_uint(n) for n in (1, 1, 1, 32, 1, 1, 0)]
        return int(cuda.cuLaunchKernel(ctypes.c_void_p(function), *dims, None, None, None))

    with hostonly.activate():
        old = launch_copy().function
    assert launch(old) == 4, "deinitialized"
    with hostonly.activate():
        assert launch(old) == 400, "invalid handle"
        assert launch_copy().function != old


def test_tuning_takes_the_first_config_and_launches_only_that() -> None:
    src, dst = tensors()
    with hostonly.activate():
        tuned_copy[lambda meta: (triton.cdiv(64, meta["WIDTH"]),)](src, dst, 64)
        assert tuned_copy.best_config is tuned_copy.configs[0]
        assert set(map(tuple, tuned_copy.configs_timings.values())) == {(float("inf"),) * 3}
        assert [launch.grid for launch in hostonly.launches()] == [(2, 1, 1)]


def test_what_was_tuned_is_forgotten_and_what_was_known_before_is_kept() -> None:
    src, dst = tensors()
    known = {("known",): tuned_copy.configs[1]}
    tuned_copy.cache.update(known)
    with hostonly.activate():
        tuned_copy[(1,)](src, dst, 48)
        assert len(tuned_copy.cache) == 2
    assert tuned_copy.cache == known
    assert not {"best_config", "configs_timings", "do_bench"} & set(vars(tuned_copy))
    tuned_copy.cache.clear()


def test_results_are_not_kept_on_disk_by_triton(tmp_path: Path) -> None:
    src, dst = tensors()
    triton.knobs.autotuning.cache = True
    try:
        with hostonly.activate(cache_dir=tmp_path):
            assert not triton.knobs.autotuning.cache
            tuned_copy[(1,)](src, dst, 48)
        assert triton.knobs.autotuning.cache
    finally:
        triton.knobs.autotuning.cache = False
    assert list(tmp_path.rglob("*.cubin"))
    assert not list(tmp_path.rglob("*.autotune.json"))


def test_a_benchmark_of_the_kernels_own_is_asked() -> None:
    times = iter([2.0, 1.0])
    kernel = triton.autotune(
        configs=tuned_copy.configs, key=["n"], do_bench=lambda call, quantiles: [next(times)] * 3
    )(copy)
    src, dst = tensors()
    with hostonly.activate():
        kernel[(1,)](src, dst, 64)
        assert kernel.best_config is kernel.configs[1]


def test_nothing_can_be_timed() -> None:
    with hostonly.activate():
        assert triton.testing.do_bench(launch_copy) == float("inf")
        assert triton.testing.do_bench(launch_copy, quantiles=[0.5, 0.2]) == [float("inf")] * 2
        assert hostonly.launches() == []
        interface = triton.runtime.driver.active.get_device_interface()
        interface.synchronize()
        with pytest.raises(HostOnlyError, match="measures nothing"):
            interface.Event(enable_timing=True)


def test_another_arch_or_number_while_active_is_an_error() -> None:
    with hostonly.activate(arch=90, devices=2):
        for arch, devices in ((80, 2), (90, 1)):
            with pytest.raises(HostOnlyError, match=r"Call hostonly\.deactivate\(\) first"):
                hostonly.activate(arch=arch, devices=devices)
        assert hostonly.is_active()


def test_another_arch_after_leaving_compiles_for_it() -> None:
    for arch in (90, 80):
        with hostonly.activate(arch=arch):
            assert launch_copy().metadata.target.arch == arch
            assert triton.runtime.driver.active.get_device_capability() == divmod(arch, 10)
            assert [launch.kernel for launch in hostonly.launches()] == ["copy"]


def test_activations_of_one_arch_nest() -> None:
    outer = hostonly.activate()
    with hostonly.activate() as inner:
        pass
    inner.deactivate()
    assert hostonly.is_active(), "an activation ends once"
    outer.deactivate()
    assert not hostonly.is_active()


def test_deactivate_leaves_at_any_depth_and_old_sessions_do_nothing() -> None:
    first, _ = hostonly.activate(), hostonly.activate()
    hostonly.deactivate()
    assert not hostonly.is_active()
    with hostonly.activate():
        first.deactivate()
        assert hostonly.is_active()


def test_launches_can_be_read_after_leaving_until_the_mode_is_entered_again() -> None:
    with hostonly.activate():
        launch_copy()
    assert [launch.kernel for launch in hostonly.launches()] == ["copy"]
    with hostonly.activate():
        assert hostonly.launches() == []


def test_an_inactive_stub_is_a_driver_without_devices() -> None:
    with hostonly.activate():
        cuda = ctypes.CDLL("libcuda.so.1")
        assert cuda.cuInit(0) == 0
    count = ctypes.c_int(7)
    assert cuda.cuInit(0) == 100
    assert (cuda.cuDeviceGetCount(ctypes.byref(count)), count.value) == (100, 0)


@pytest.mark.parametrize(
    "use",
    [
        lambda: hostonly.set_device(0),
        hostonly.current_device,
        hostonly.current_arch,
        lambda: hostonly.set_stream(1),
    ],
)
def test_a_fake_outside_the_mode_is_an_error(use: Any) -> None:
    with pytest.raises(HostOnlyError, match=r"Call hostonly\.activate"):
        use()


def test_fakes_end_with_the_mode() -> None:
    with hostonly.activate(devices=2):
        hostonly.set_device(1)
        hostonly.set_stream(9)
        triton.runtime.driver.active.set_capturing(True)
    with hostonly.activate(devices=2):
        driver = triton.runtime.driver.active
        assert (hostonly.current_device(), driver.get_current_stream(0)) == (0, 0)
        assert not driver.is_capturing(0)


@pytest.mark.parametrize("arch", [80, 90, 103])
def test_the_current_arch_is_the_one_that_was_activated(arch: int) -> None:
    with hostonly.activate(arch=arch):
        assert hostonly.current_arch() == arch


def test_cache_behind_a_link_is_the_directory_itself(tmp_path, monkeypatch):
    """Triton's keys hold its path: by two names everything would be compiled twice."""
    from launchkit.hostonly.driver import default_cache_dir

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    assert default_cache_dir().parent == (tmp_path / "real" / "launchkit").resolve()
