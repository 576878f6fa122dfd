"""install() and uninstall() while other threads launch."""

from __future__ import annotations

import sys
import threading
from collections import Counter

import pytest
import sample_kernels
import torch
import triton
from installing import state_of_classes, triton_launches
from threads import in_threads

import launchkit
from launchkit import hostonly


@pytest.fixture(autouse=True)
def never_left_installed(host):
    yield
    launchkit.uninstall()


X = torch.empty(128)


def kernels():
    jit = triton.jit(sample_kernels.copy.fn)
    # One config: of several, Triton's Autotuner keeps the arguments on itself while it chooses,
    # which other threads that launch through Triton may take away.
    tuned = triton.autotune(sample_kernels.configs(16), ["n"])(triton.jit(jit.fn))
    return [
        (jit, {"BLOCK": 16}),
        (tuned, {}),
        (triton.heuristics({"BLOCK": lambda args: 64})(triton.jit(jit.fn)), {}),
    ]


@pytest.fixture
def eager_threads():
    """Threads take turns every 50 microseconds, not every five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def test_launches_are_whole_while_it_is_installed_and_uninstalled_over_and_over(eager_threads):
    made = kernels()
    before = state_of_classes()
    expected = [triton_launches(k, X, X, 100, 3, **options) for k, options in made]
    done = threading.Event()

    def flip():
        for _ in range(100):
            launchkit.install()
            launch_all(made)
            launchkit.uninstall()
            launch_all(made)
        done.set()
        return 200

    def launch_meanwhile():
        rounds = 0
        while not done.is_set() and rounds < 5000:  # as many as are recorded
            launch_all(made)
            rounds += 1
        return rounds

    hostonly.clear()
    rounds = sum(in_threads(4, lambda index: launch_meanwhile() if index else flip()))
    assert Counter(hostonly.launches()) == {launch: rounds for (launch,) in expected}
    assert hostonly.dropped() == 0
    assert state_of_classes() == before


def launch_all(made):
    for kernel, options in made:
        kernel[(2,)](X, X, 100, 3, **options)


def test_many_threads_install_once():
    before = state_of_classes()
    in_threads(8, lambda _: launchkit.install())
    launchkit.uninstall()
    assert state_of_classes() == before


def test_first_launch_from_many_threads_decides_once():
    launchkit.install()
    (kernel, options), *_ = kernels()
    routes = in_threads(8, lambda _: (kernel[(1,)](X, X, 9, 1, **options), kernel._launchkit_route))
    assert len({id(route) for _, route in routes}) == 1
