"""A fresh process takes tuned configs from the store; the switches turn shortcuts off or check them."""

from __future__ import annotations

import os
import stat

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
import workers
from launching import counted_runs

import launchkit
from launchkit import hostonly, settings
from launchkit.errors import VerifyError

TIMES = {16: 3.0, 32: 1.0, 64: 2.0}


@pytest.fixture
def warm(tmp_path):
    """A directory store that another process has filled: 32 was the fastest."""
    store = tmp_path / "store"
    seen = workers.run(store, TIMES)
    assert seen == {"block": 32, "measured": [16, 32, 64], "plans": 1}
    return store


def test_fresh_process_with_a_warm_store_launches_without_a_benchmark(warm):
    assert workers.run(warm, None, 3) == {"block": 32, "measured": [], "plans": 1}


def test_read_only_store_is_read(warm):
    for path in [warm, *warm.rglob("*")]:
        path.chmod(stat.S_IRUSR | stat.S_IXUSR if path.is_dir() else stat.S_IRUSR)
    try:
        before = sorted(map(str, warm.rglob("*")))
        assert workers.run(warm, None)["block"] == 32
        assert sorted(map(str, warm.rglob("*"))) == before
    finally:
        for path in [warm, *warm.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_store_that_cannot_be_written_tunes_and_launches(tmp_path):
    # A file where a directory is needed refuses root as well.
    store = tmp_path / "store"
    store.mkdir()
    (store / "v1").write_text("in the way")
    seen, warnings = workers.finished(workers.start(store, TIMES, 3))
    assert seen == {"block": 32, "measured": [16, 32, 64], "plans": 1}
    assert "for this process only" in warnings or "Traceback" not in warnings


def test_disabled_is_plain_triton_and_touches_no_store(tmp_path):
    store = tmp_path / "store"
    seen = workers.run(store, {16: 1.0, 32: 2.0, 64: 3.0}, 2, LAUNCHKIT_DISABLE="1")
    assert seen == {"block": 16, "measured": [16, 32, 64], "plans": None}
    assert not store.exists()


@pytest.fixture
def environment(each_core, monkeypatch):
    """Set a variable of launchkit's and have it read."""

    def put(name, value):
        monkeypatch.setenv(name, value)
        settings.reload()

    return put


def test_disabled_launches_go_through_tritons_run_each_time(host, environment):
    environment("LAUNCHKIT_DISABLE", "1")
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    x = torch.empty(64)
    with counted_runs() as runs:
        for _ in range(3):
            launchkit.launch_autotuned(kernel, (1,), x, x, 64, 1)
            kernel[(1,)](x, x, 64, 1)
            launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
    assert runs.autotuner == 6
    assert runs.jit == 9


def layered(order):
    size = triton.heuristics({"SIZE": lambda args: 16})
    tune = launchkit.autotuned(
        [triton.Config({"MODE": "plain"}), triton.Config({"MODE": "shift"})], ["n"]
    )
    if order == "outside":
        return size(tune(sample_kernels.mixed))
    return tune(size(sample_kernels.mixed))


def test_verify_passes_right_plans(host, environment):
    environment("LAUNCHKIT_VERIFY", "1")
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    x = torch.empty(64)
    for launched in range(1, 4):
        hostonly.clear()
        launchkit.launch_autotuned(kernel, (1,), x, x, 64, 1)
        launchkit.launch(odd_kernels.scalar, (1,), x, 3)
        assert len(hostonly.launches()) == 2, launched


def test_verify_checks_a_hit_against_triton_and_then_takes_it(host, environment):
    environment("LAUNCHKIT_VERIFY", "1")
    x = torch.empty(64)
    launchkit.launch(odd_kernels.scalar, (1,), x, 3)
    hostonly.clear()
    with counted_runs() as runs:
        launchkit.launch(odd_kernels.scalar, (1,), x, 3)
    assert runs.jit == 1  # compiles at most, and launches nothing
    assert len(hostonly.launches()) == 1


# What the autotuner adds for the kernel below the heuristic.
INNER = {"MODE": "plain", "num_warps": 4, "num_ctas": 1, "num_stages": 3}


def tamper(launcher, x, *args, **kwargs):
    """Make the plan of these arguments hold another kernel, in a way that its own checks do not
    see; return it."""
    other = launchkit.launch(odd_kernels.scalar, (1,), x, 16)
    core = launcher._core
    wrong = core.find(args, kwargs)
    wrong.compiled, wrong.function = other, other.function
    wrong.cache_key = "tampered"
    wrong.cache["tampered"] = other
    core.insert(core.slot(args, kwargs), wrong)
    return wrong


def test_verify_raises_for_a_plain_kernels_plan_that_was_tampered_with(host, environment):
    environment("LAUNCHKIT_VERIFY", "1")
    x = torch.empty(64)
    launchkit.launch(odd_kernels.scalar, (1,), x, 3)
    tamper(odd_kernels.scalar._launchkit_entry, x, x, 3)
    hostonly.clear()
    with pytest.raises(VerifyError, match="another compiled kernel"):
        launchkit.launch(odd_kernels.scalar, (1,), x, 3)
    assert hostonly.launches() == []


def test_verify_raises_for_an_autotuned_kernels_plan_that_was_tampered_with(host, environment):
    environment("LAUNCHKIT_VERIFY", "1")
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    x = torch.empty(64)
    launchkit.launch_autotuned(kernel, (1,), x, x, 64, 1)
    tamper(kernel._launchkit_entry, x, x, x, 64, 1)
    for launch in (
        lambda: launchkit.launch_autotuned(kernel, (1,), x, x, 64, 1),
        lambda: kernel[(1,)](x, x, 64, 1),
    ):
        with pytest.raises(VerifyError):
            launch()


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_verify_raises_under_heuristics_too(host, environment, order):
    environment("LAUNCHKIT_VERIFY", "1")
    kernel, x = layered(order), torch.empty(64)
    for _ in range(2):
        launchkit.launch_autotuned(kernel, (1,), None, x, 3, True, 0.5)
    launcher = kernel._launchkit_entry
    below, given = (launcher._below, {}) if order == "outside" else (launcher._inner, INNER)
    tamper(below, x, None, x, 3, True, 0.5, SIZE=16, **given)
    with pytest.raises(VerifyError):
        launchkit.launch_autotuned(kernel, (1,), None, x, 3, True, 0.5)


def test_tampered_plan_is_launched_where_nothing_verifies(each_core, host):
    # Shows that the test of verification tampers with what a launch uses.
    x = torch.empty(64)
    launchkit.launch(odd_kernels.scalar, (1,), x, 3)
    plan = tamper(odd_kernels.scalar._launchkit_entry, x, x, 3)
    launchkit.launch(odd_kernels.scalar, (1,), x, 3)
    assert hostonly.launches()[-1].function == plan.function


def test_process_told_to_take_the_python_core_launches_with_it(tmp_path):
    store = tmp_path / "store"
    seen = workers.run(store, TIMES, 3, LAUNCHKIT_NATIVE="0")
    assert seen == {"block": 32, "measured": [16, 32, 64], "plans": 1}


def test_store_of_the_environment_is_the_one_that_is_used(tmp_path):
    workers.run("-", TIMES, LAUNCHKIT_STORE=str(tmp_path / "elsewhere"))
    assert list((tmp_path / "elsewhere").rglob("*.json"))
    assert os.environ.get("LAUNCHKIT_STORE") is None
