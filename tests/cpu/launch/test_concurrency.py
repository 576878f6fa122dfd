"""Many threads, and launches inside launches: each one is what Triton would have launched."""

from __future__ import annotations

import random

import pytest
import sample_kernels
import torch
import triton
from benching import grid_of_block
from launching import launch_as_triton, plans
from threads import in_threads

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("each_core", "host")

THREADS, LAUNCHES = 8, 150


def argument_sets():
    x = torch.empty(80)
    tensors = [x, x[1:], torch.empty(80, dtype=torch.float16)]
    return [
        (source, target, n, stride)
        for source in tensors
        for target in (x, x[2:])
        for n in (64, 7)
        for stride in (1, 2)
    ]


def described(launch):
    return (launch.function, launch.grid[0], launch.params)


@pytest.mark.parametrize("autotuned", [False, True], ids=["plain", "autotuned"])
def test_threads_with_mixed_arguments_launch_what_triton_launches(autotuned):
    kernel = theirs = sample_kernels.copy
    options = {"BLOCK": 16}
    if autotuned:
        kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
        theirs = triton.autotune(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
        options = {}
    sets = argument_sets()
    expected = []
    for index, arguments in enumerate(sets):
        theirs[(index + 1,)](*arguments, **options)
        expected.append(described(hostonly.launches()[-1]))
    hostonly.clear()

    def launch(thread):
        rng = random.Random(thread)
        counts = [0] * len(sets)
        for _ in range(LAUNCHES):
            index = rng.randrange(len(sets))
            counts[index] += 1
            launchkit.launch(kernel, (index + 1,), *sets[index], **options)
        return counts

    counts = [sum(column) for column in zip(*in_threads(THREADS, launch), strict=True)]
    found = [described(launch) for launch in hostonly.launches()]
    assert len(found) == THREADS * LAUNCHES
    assert sorted(found) == sorted(
        e for e, count in zip(expected, counts, strict=True) for _ in range(count)
    )


def test_threads_that_make_plans_while_others_drop_them_launch_what_triton_launches():
    sets = argument_sets()
    for arguments in sets:
        sample_kernels.copy[(1,)](*arguments, BLOCK=16)
    compiled = [sample_kernels.copy[(1,)](*arguments, BLOCK=16) for arguments in sets]
    launchkit.launch(sample_kernels.copy, (1,), *sets[0], BLOCK=16)
    core = sample_kernels.copy._launchkit_entry._core

    def work(thread):
        rng = random.Random(thread)
        for _ in range(LAUNCHES):
            if thread == 0:
                core.clear()
            index = rng.randrange(len(sets))
            if (
                launchkit.launch(sample_kernels.copy, (1,), *sets[index], BLOCK=16)
                is not compiled[index]
            ):
                return False
        return True

    assert all(in_threads(THREADS, work))
    for arguments in sets:
        launch_as_triton(sample_kernels.copy, *arguments, BLOCK=16)


def test_threads_that_meet_new_type_combinations_keep_a_plan_for_each():
    x = torch.empty(64)
    values = [0.5, 3, True]
    arguments = [
        (None if a else x, x, n, f, v)
        for a in (0, 1)
        for n in (3,)
        for f in (True, 3, 1.0)
        for v in values
    ]
    for each in arguments:
        sample_kernels.mixed[(1,)](*each, MODE="plain")

    def work(thread):
        for index in random.Random(thread).sample(range(len(arguments)), len(arguments)):
            launchkit.launch(sample_kernels.mixed, (1,), *arguments[index], MODE="plain")

    in_threads(THREADS, work)
    for each in arguments:
        launch_as_triton(sample_kernels.mixed, *each, MODE="plain")
    assert plans(sample_kernels.mixed) == len(arguments)


def test_launch_inside_a_grid_function_is_a_launch_of_its_own():
    x = torch.empty(64)

    def grid(meta):
        launchkit.launch(sample_kernels.copy, (5,), x, x, 7, 2, BLOCK=16)
        return (3,)

    for _ in range(3):
        hostonly.clear()
        launchkit.launch(sample_kernels.copy, grid, x, x, 64, 1, BLOCK=16)
        assert [launch.grid[0] for launch in hostonly.launches()] == [5, 3]


def test_launch_of_the_same_kernel_inside_its_pre_hook():
    x, depth = torch.empty(64), []

    def hook(named):
        if not depth:
            depth.append(1)
            launchkit.launch_autotuned(kernel, grid_of_block, x, x, 7, 2)
            depth.pop()

    configs = [triton.Config({"BLOCK": 16}, pre_hook=hook)]
    kernel = launchkit.autotuned(configs, ["n"])(sample_kernels.copy)
    for _ in range(3):
        hostonly.clear()
        launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, 1)
        assert len(hostonly.launches()) == 2


def test_first_launches_of_one_kernel_in_many_threads_all_launch_the_same_binary():
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    x = torch.empty(64)
    compiled = in_threads(THREADS, lambda _: launchkit.launch_autotuned(kernel, (1,), x, x, 64, 1))
    assert len({each.hash for each in compiled}) == 1
    assert len(hostonly.launches()) == THREADS
