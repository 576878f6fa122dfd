"""Autotuned kernels under install(): what Triton tuned stays, what is new goes to the store."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sample_kernels
import torch
import triton
from installing import installed

import launchkit
from launchkit import hostonly
from launchkit.errors import CaptureError

X = torch.empty(128)
ARGS = (X, X, 100, 3)


@pytest.fixture(autouse=True)
def never_left_installed(measuring):
    yield
    launchkit.uninstall()


class Tuned:
    """An autotuned kernel that is fastest with ``best`` warps, and its measurements."""

    def __init__(self, best):
        self.measured = 0

        def do_bench(call, quantiles):
            hostonly.clear()
            call()
            self.measured += 1
            (launch,) = hostonly.launches()
            return [1.0 if launch.block[0] == 32 * best else 2.0] * 3

        configs = [triton.Config({"BLOCK": 16}, num_warps=warps) for warps in (1, 2, 4)]
        self.kernel = triton.autotune(configs, ["n"], do_bench=do_bench)(
            triton.jit(sample_kernels.copy.fn)
        )

    def warps(self):
        return self.kernel[(1,)](*ARGS).metadata.num_warps


def test_what_triton_tuned_before_is_kept():
    tuned = Tuned(best=2)
    assert (tuned.warps(), tuned.measured) == (2, 3)
    with installed() as runs:
        assert [tuned.warps() for _ in range(3)] == [2] * 3
        assert tuned.measured == 3
        assert runs.total == 1


def test_what_triton_tuned_before_launches_during_a_capture():
    tuned = Tuned(best=4)
    tuned.warps()
    with installed(), hostonly.capturing():
        assert tuned.warps() == 4


def test_what_is_not_tuned_refuses_a_capture():
    tuned = Tuned(best=4)
    with installed(), hostonly.capturing(), pytest.raises(CaptureError):
        tuned.warps()
    assert tuned.measured == 0


def test_tuning_goes_to_the_store_and_comes_from_there():
    first, second = Tuned(best=2), Tuned(best=4)
    with installed():
        assert (first.warps(), first.measured) == (2, 3)
        assert (second.warps(), second.measured) == (2, 0)


def test_what_was_tuned_under_install_is_known_to_triton_afterwards():
    tuned = Tuned(best=4)
    with installed():
        assert tuned.warps() == 4
    assert (tuned.warps(), tuned.measured) == (4, 3)


def test_another_type_of_key_value_is_tuned_though_triton_takes_it_for_the_same():
    tuned = Tuned(best=1)
    with installed():
        tuned.kernel[(1,)](X, X, 1, 3)
        before = tuned.measured
        tuned.kernel[(1,)](X, X, True, 3)
        assert tuned.measured == before + 3


INTERPRETED = """
import torch, triton, triton.language as tl
import launchkit
launchkit.install()

@triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], ["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def add(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets, mask=offsets < n) + (10 if EVEN else 1)
    tl.store(x_ptr + offsets, value, mask=offsets < n)

x = torch.zeros(16)
add[lambda meta: (16 // meta["BLOCK"],)](x, 15)
launchkit.uninstall()
print(x.tolist() == [1.0] * 15 + [0.0])
"""


def test_interpreted_kernels_compute_under_install(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    path = tmp_path / "interpreted.py"
    path.write_text(INTERPRETED)
    command = [sys.executable, "-W", "ignore", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
