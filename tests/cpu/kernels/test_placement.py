"""Which GPU kernels are launched on now, as pruning asks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from launchkit import hostonly
from launchkit.kernels import placement


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine with an H200 and a B200, as torch.cuda tells it; yields what it was asked."""
    asked = []

    def capability(device):
        asked.append(device)
        return ((9, 0), (10, 0))[device]

    monkeypatch.setattr(placement, "INTERPRETED", False)
    monkeypatch.setattr(placement, "_arch_of", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    return asked


def make_current(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: device)


def test_without_a_gpu_there_is_no_arch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert placement.live_arch() is None


def test_the_arch_is_that_of_the_current_gpu(monkeypatch, two_gpus):
    for device, arch in ((0, 90), (1, 100), (0, 90)):
        make_current(monkeypatch, device)
        assert placement.live_arch() == arch


def test_each_gpu_is_asked_once(monkeypatch, two_gpus):
    for device in (0, 1, 0, 1, 1):
        make_current(monkeypatch, device)
        placement.live_arch()
    assert two_gpus == [0, 1]


def test_the_interpreter_has_no_arch(monkeypatch, two_gpus):
    make_current(monkeypatch, 0)
    monkeypatch.setattr(placement, "INTERPRETED", True)
    assert placement.live_arch() is None


def test_capabilities_of_amd_gpus_are_no_arch(monkeypatch, two_gpus):
    make_current(monkeypatch, 0)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert placement.live_arch() is None


def test_host_only_mode_has_the_arch_that_it_pretends():
    for arch in (90, 100, 80):
        with hostonly.activate(arch=arch):
            assert placement.live_arch() == arch
    assert hostonly.is_active() is False


def test_importing_the_kernels_asks_no_gpu():
    code = (
        "import torch\n"
        "def asked(*_): raise AssertionError('a GPU was asked at import')\n"
        "for name in ('is_available', 'current_device', 'get_device_capability', 'device_count'):\n"
        "    setattr(torch.cuda, name, asked)\n"
        "import launchkit.kernels.mamba_layer, launchkit.kernels.ssd.warmup\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def early(monkeypatch, arch, cuda, can_wait=True):
    """Whether launches may start early, on a GPU and a driver of the CUDA version given."""

    class Driver:
        def cuDriverGetVersion(self, version):
            version._obj.value = cuda
            return 0

    def load(name):
        if cuda is None:
            raise OSError(name)
        return Driver()

    monkeypatch.setattr(placement.ctypes, "CDLL", load)
    monkeypatch.setattr(placement, "live_arch", lambda: arch)
    monkeypatch.setattr(placement, "_CAN_WAIT", can_wait)
    placement._driver.cache_clear()
    try:
        return placement.may_start_early()
    finally:
        placement._driver.cache_clear()


def test_launches_start_early_where_gpu_and_driver_can(monkeypatch):
    assert early(monkeypatch, 90, 12030)
    assert early(monkeypatch, 100, 13000)


@pytest.mark.parametrize(("arch", "cuda"), [(89, 13000), (90, 12020), (90, None), (None, 13000)])
def test_launches_start_early_nowhere_else(monkeypatch, arch, cuda):
    assert not early(monkeypatch, arch, cuda)


def test_launches_start_early_with_no_triton_that_cannot_call_what_it_takes(monkeypatch):
    assert not early(monkeypatch, 90, 12030, can_wait=False)
