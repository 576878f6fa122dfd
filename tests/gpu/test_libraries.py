"""Operators of liger-kernel and flash-linear-attention with install(): the same bits, fast."""

from __future__ import annotations

import pytest

import launchkit
from launchkit.benchmarks.libraries import ops
from launchkit.dispatch import launch_counts

pytest.importorskip("liger_kernel", reason="needs liger-kernel")
pytest.importorskip("fla", reason="needs flash-linear-attention")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def never_left_installed():
    yield
    launchkit.uninstall()


@pytest.mark.parametrize("name", ops.OPERATORS)
def test_outputs_and_gradients_have_the_same_bits_and_every_launch_is_fast(name):
    operator = ops.OPERATORS[name]
    operator.prepare("cuda")
    ops.pin_configs()
    try:
        plain, again = operator.prepare("cuda")(), operator.prepare("cuda")()
    except RuntimeError as error:
        if "produces incorrect results" not in str(error):
            raise
        pytest.skip(f"the library refuses this operator here: {error}")
    assert ops.equal(plain, again), "the operator itself gives other bits each time"
    launchkit.install()
    operator.prepare("cuda")()
    launch_counts.reset()
    with launchkit.count_launches():
        fast = operator.prepare("cuda")()
    assert ops.equal(plain, fast)
    counts = launchkit.stats()
    assert sum(row.fast for row in counts.values()) > 0
    assert sum(row.slow for row in counts.values()) == 0, str(counts)
