"""Environment variables that are set once kernels have been launched: what Triton sees, counts."""

from __future__ import annotations

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs, hit, outcome, triton_launch
from triton import knobs

import launchkit
from launchkit.dispatch import triton_seam as seam

pytestmark = pytest.mark.usefixtures("each_core", "host")

# Read by Triton's Python code somewhere, and those that a user is most likely to try.
VARIABLES = sorted(
    {
        knob.key
        for group in (knobs.runtime, knobs.compilation, knobs.language, knobs.autotuning)
        for knob in group.knob_descriptors.values()
    }
    | {"TRITON_DEBUG", "TRITON_INTERPRET", "TRITON_INSTRUMENTATION_MODE"}
)


@pytest.fixture
def asked(monkeypatch):
    """The keys that Triton would compile for; nothing is compiled while this is in force."""
    keys = []

    def refuse(**details):
        keys.append(details["key"])
        return True

    def start():
        monkeypatch.setattr(knobs.runtime, "jit_cache_hook", refuse)
        return keys

    return start


@pytest.mark.parametrize("name", VARIABLES)
def test_variable_that_is_set_later_changes_what_it_changes_for_triton(name, asked, monkeypatch):
    x = torch.empty(64)
    launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    keys = asked()
    for value in ("1", "0", "", None, "1", None):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
        for _ in range(2):
            found = outcome(lambda: launchkit.launch(odd_kernels.scalar, (2,), x, 3))
            ours = keys[:]
            keys.clear()
            expected = outcome(lambda: triton_launch(odd_kernels.scalar, (2,), (x, 3), {}))
            assert found == expected, (value, found, expected)
            assert ours == keys
            keys.clear()
    hit(odd_kernels.scalar, x, 3)


@pytest.mark.skipif(seam.LAUNCH_VARIABLE is None, reason="this Triton reads none at a launch")
def test_variable_that_triton_reads_at_each_launch_is_seen_by_the_next_one(asked, monkeypatch):
    x, kernel = torch.empty(64), triton.jit(odd_kernels.scalar.fn)  # compiled by nobody before
    launchkit.launch(kernel, (2,), x, 3)
    keys = asked()
    monkeypatch.setenv(seam.LAUNCH_VARIABLE.decode(), "1")
    launchkit.launch(kernel, (2,), x, 3)
    assert len(keys) == 1
    monkeypatch.delenv(seam.LAUNCH_VARIABLE.decode())
    launchkit.launch(kernel, (2,), x, 3)
    hit(kernel, x, 3)
    assert len(keys) == 1


def test_other_variables_cost_no_shortcut(monkeypatch):
    x = torch.empty(64)
    launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    for turn in range(3):
        monkeypatch.setenv("SOMETHING_ELSE", str(turn))
        hit(odd_kernels.scalar, x, 3)


def test_compiled_kernel_is_tuned_though_the_interpreter_is_asked_for_later(measuring, monkeypatch):
    times = {16: 2.0, 32: 1.0}

    def do_bench(call, quantiles):
        call()
        return [times[measuring.launches()[-1].grid[0]]] * 3

    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"], do_bench=do_bench)(
        sample_kernels.copy
    )
    theirs = triton.autotune(sample_kernels.configs(16, 32), ["n"], do_bench=do_bench)(
        sample_kernels.copy
    )
    x = torch.empty(64)

    def grid(meta):
        return (meta["BLOCK"],)

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    theirs[grid](x, x, 64, 1)
    with counted_runs():
        kernel[grid](x, x, 64, 1)
    assert kernel.best_config.kwargs == theirs.best_config.kwargs == {"BLOCK": 32}
