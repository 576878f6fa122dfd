"""The examples on a GPU: each launches there, and what needs a measurement is measured."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from example_runs import hybrid_step_promises, library_promises, rows, run

# Which of its configs is the fastest does not matter, and tuning takes half a minute a kernel.
PINNED = """
from launchkit.benchmarks.libraries import ops
ops.OPERATORS["l2norm"].prepare("cuda")
ops.pin_configs()
"""


def printed(*command, before=""):
    """Run an example; return what it printed, which names this GPU and not host-only."""
    done = run(*command, before=before)
    assert done.returncode == 0, done.stdout + done.stderr
    assert torch.cuda.get_device_name() in done.stdout
    assert "host-only" not in done.stdout
    return done.stdout


def test_step_of_a_hybrid_model_launches_on_the_gpu():
    hybrid_step_promises(printed("hybrid_model_step.py", "--layers", "2"))


def test_first_host_tunes_and_the_second_one_never_does():
    pytest.importorskip("fastapi", reason="the extra [service] is not installed")
    first, second, anew = rows(printed("two_hosts_one_service.py"))
    assert first[:4] == ["A", "up", "absent", "1"]
    assert second[:4] == ["B", "up", "config service", "0"]
    assert anew[:4] == ["B, started anew", "killed", "config service", "0"]
    assert first[4] == second[4] == anew[4] != "none"


def test_operators_of_a_library_are_shown_before_and_after_install():
    for name in ("liger_kernel", "fla"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    library_promises(printed("third_party_library.py", before=PINNED))


def test_gate_compares_counts_where_the_baseline_has_no_times_of_a_gpu():
    done = run("ci_gate_on_launch_overhead/test_launch_overhead.py", "--most", "1e6")
    assert done.returncode == 0, done.stdout + done.stderr
    _, step, careless = rows(done.stdout)
    assert step[1:3] == ["add 4, scale 4", "0"]
    assert "(cuda)" in step[3]
    assert (step[4], careless[4]) == ("passes", "5 launches of add, not 4")
