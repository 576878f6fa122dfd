"""How host-only mode knows every kernel of the process."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import pytest
import sample_kernels
import torch
import triton

from launchkit import hostonly
from launchkit.hostonly.instances import Instances


class Kernel:
    """Stands for a class of Triton's; its hash must never be asked for."""

    def __init__(self, name="", *, block=1):
        self.name, self.block = name, block

    def __hash__(self):
        raise AssertionError("hashed")


class Tuned(Kernel):
    """One that its own subclass makes."""


@pytest.fixture(scope="module")
def before():
    return [Kernel("old"), Tuned("old and tuned", block=2)]


@pytest.fixture(scope="module")
def instances(before):
    return Instances(Kernel)


def test_those_that_were_there_are_found(instances, before):
    found = instances.alive()
    assert all(any(each is kernel for each in found) for kernel in before)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Kernel("new", block=4),
        lambda: Tuned("new"),
        lambda: copy.copy(Kernel("copied")),
        lambda: copy.deepcopy(Tuned("copied whole")),
        lambda: pickle.loads(pickle.dumps(Kernel("stored"))),
    ],
)
def test_later_ones_are_noted_however_they_are_made(instances, make):
    kernel = make()
    assert sum(each is kernel for each in instances.alive()) == 1
    assert kernel.name


def test_dead_ones_are_forgotten(instances):
    count = len(instances.alive())
    for _ in range(100):
        Kernel("short-lived")
    gc.collect()
    assert len(instances.alive()) == count


def test_threads_may_make_some_meanwhile(instances):
    kept, failures = [], []

    def make():
        try:
            for _ in range(500):
                kept.append(Kernel("one of many"))
                Kernel("gone at once")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        instances.alive()
    for thread in threads:
        thread.join()
    assert failures == []
    found = {id(each) for each in instances.alive()}
    assert {id(kernel) for kernel in kept} <= found


def test_kernel_made_between_two_activations_forgets_the_second_too():
    with hostonly.activate():
        pass
    kernel = triton.jit(sample_kernels.copy.fn)
    with hostonly.activate():
        kernel[(1,)](torch.empty(16), torch.empty(16), 16, 1, BLOCK=16)
        assert any(kernel.device_caches.values())
    assert not any(cache[0] for cache in kernel.device_caches.values())
