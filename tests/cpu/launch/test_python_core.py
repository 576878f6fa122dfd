"""The Python core's own tables: bounded, and a pair of code and plans at any time."""

from __future__ import annotations

import random

import odd_kernels
import pytest
import sample_kernels
import torch
from launching import hit, launch_as_triton, plans
from threads import in_threads

import launchkit
from launchkit.dispatch import plan as plan_module
from launchkit.dispatch.native import guard, python_core
from launchkit.errors import VerifyError

pytestmark = pytest.mark.usefixtures("python_core", "host")


def only_body(kernel):
    (body,) = [body for body in kernel._launchkit_entry._core._bodies.values() if body is not None]
    return body


def test_distinct_values_keep_the_tables_of_exact_values_bounded(monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_PLANS", 64)
    monkeypatch.setattr(guard, "_INT_CLASSES_KEPT", 256)
    x = torch.empty(80)
    for value in range(3, 100_003):
        launchkit.launch(odd_kernels.scalar, (1,), x, value)
    body = only_body(odd_kernels.scalar)
    assert len(body.launch.__globals__["__seen_get"].__self__) <= 64
    assert len(guard.GUARD_NAMESPACE["__classes"]) <= 256


def test_type_combinations_beyond_the_limit_go_through_triton(monkeypatch):
    monkeypatch.setattr(python_core, "MAX_BODIES", 2)
    x = torch.empty(80)
    for value in (3, 3.0, True, None, 3, 3.0, True):
        launch_as_triton(odd_kernels.scalar, x, value)
    assert len(odd_kernels.scalar._launchkit_entry._core._bodies) == 2
    hit(odd_kernels.scalar, x, 3)


def test_plan_behind_the_exact_values_is_the_one_that_is_verified(monkeypatch):
    from launchkit import settings

    monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
    settings.reload()
    x = torch.empty(64)
    for n in (64, 1):
        launchkit.launch(sample_kernels.copy, (1,), x, x, n, 1, BLOCK=16)
        launchkit.launch(sample_kernels.copy, (1,), x, x, n, 1, BLOCK=16)
    seen = only_body(sample_kernels.copy).namespace["__seen_get"].__self__
    first, second = seen
    seen[first] = seen[second]
    with pytest.raises(VerifyError):
        for n in (64, 1):
            launchkit.launch(sample_kernels.copy, (1,), x, x, n, 1, BLOCK=16)


def test_threads_that_meet_new_type_combinations_share_one_table_each(monkeypatch):
    monkeypatch.setattr(python_core, "MAX_BODIES", 1000)
    x = torch.empty(64)
    arguments = [
        (None if a else x, x, 3, f, v)
        for a in (0, 1)
        for f in (True, 3, 1.0)
        for v in (0.5, 3, True)
    ]
    for each in arguments:
        sample_kernels.mixed[(1,)](*each, MODE="plain")

    def work(thread):
        for index in random.Random(thread).sample(range(len(arguments)), len(arguments)):
            launchkit.launch(sample_kernels.mixed, (1,), *arguments[index], MODE="plain")

    in_threads(8, work)
    for each in arguments:
        launch_as_triton(sample_kernels.mixed, *each, MODE="plain")
    core = sample_kernels.mixed._launchkit_entry._core
    assert set(core._bodies) == set(core._launches)
    assert plans(sample_kernels.mixed) == len(arguments)
