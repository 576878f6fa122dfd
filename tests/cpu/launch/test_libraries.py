"""liger-kernel and flash-linear-attention under install(), where they are installed."""

from __future__ import annotations

import example_runs
import pytest
import torch
import triton
from launching import outcome
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

import launchkit
from launchkit import hostonly, jsonio
from launchkit.benchmarks.libraries import bench, ops, timing
from launchkit.dispatch import install as install_module
from launchkit.dispatch import launch_counts
from launchkit.errors import UsageError
from launchkit.tools import bench_libraries

pytest.importorskip("fla", reason="needs flash-linear-attention, which CI installs")
pytest.importorskip("liger_kernel", reason="needs liger-kernel, which CI installs")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def pretended_gpu():
    with hostonly.activate(), ops.pretended_gpu():
        yield
    launchkit.uninstall()


class BothWays:
    """Makes each launch of an operator through launchkit and through Triton alone."""

    def __init__(self):
        self.pairs = []

    def getitem(self, kernel, grid):
        def launch(*args, **kwargs):
            installation, install_module._current = install_module._current, None
            plain = KernelInterface.__getitem__(kernel, grid)
            expected = outcome(lambda: plain(*args, **kwargs))
            install_module._current = installation
            fast = install_module._subscript(kernel, grid)
            self.pairs.append((expected, outcome(lambda: fast(*args, **kwargs))))

        return launch


@pytest.mark.parametrize("name", ops.OPERATORS)
def test_operator_launches_fast_and_exactly_what_triton_launches(name, monkeypatch):
    operator = ops.OPERATORS[name].prepare("cpu")
    ops.pin_configs()
    launchkit.install()
    both = BothWays()
    operator()  # compiles
    with monkeypatch.context() as patch:
        for kind in install_module._CLASSES:
            patch.setattr(kind, "__getitem__", lambda *asked: both.getitem(*asked))
        operator()
    assert both.pairs
    for expected, found in both.pairs:
        assert len(expected[1]) == 1
        assert found == expected
    launch_counts.reset()
    with launchkit.count_launches():
        operator()
    counts = launchkit.stats()
    assert sum(row.fast for row in counts.values()) == len(both.pairs)
    assert sum(row.slow for row in counts.values()) == 0, str(counts)


def fla_tuners():
    ops.OPERATORS["l2norm"].prepare("cpu")
    ops.OPERATORS["chunk_gla"].prepare("cpu")
    return [
        tuner
        for module in ops._library_modules()
        for tuner in ops._tuners(module)
        if type(tuner) is not Autotuner
    ]


def test_adapter_covers_every_autotuner_of_the_tested_version():
    from launchkit.dispatch import adapters
    from launchkit.dispatch.layers import take_apart

    tuners = fla_tuners()
    assert len(tuners) > 3
    for tuner in tuners:
        assert adapters.find(take_apart(tuner)) is adapters.FlaLauncher, tuner.base_fn


def test_config_from_the_librarys_files_is_launched(tmp_path, monkeypatch):
    import fla.ops.utils.cache as library

    operator = ops.OPERATORS["l2norm"].prepare("cpu")
    kernel = next(each for each in fla_tuners() if each.base_fn.__name__ == "l2norm_fwd_kernel")
    config = dict(kernel.configs[0].kwargs)
    text = {"kwargs": config, "num_warps": 2, "num_stages": 5, "num_ctas": 1}
    document = {"kernel_name": kernel.kernel_name, "default_config": text}
    (tmp_path / f"{kernel.kernel_name}.json").write_bytes(jsonio.dumps(document))
    monkeypatch.setenv("FLA_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(library, "FLA_CACHE_MODE", library.FlaCacheMode.FULL)
    monkeypatch.setattr(kernel, "cache", {})
    live = [triton.Config(config, num_warps=warps) for warps in (4, 8)]
    monkeypatch.setattr(kernel, "configs", live)
    launchkit.install()
    operator.forward()
    hostonly.clear()
    operator.forward()
    (launch,) = hostonly.launches()
    assert launch.block == (64, 1, 1), "two warps, as the file says"
    assert kernel.best_config.num_stages == 5
    monkeypatch.setattr(library, "FLA_CACHE_MODE", library.FlaCacheMode.DISABLED)
    monkeypatch.setattr(kernel, "cache", {})
    hostonly.clear()
    operator.forward()
    (launch,) = hostonly.launches()
    assert launch.block == (128, 1, 1), "the first of its own configs again"


def test_benchmark_reports_every_operator(capsys):
    found = bench.measure(("rms_norm", "l2norm"), rounds=2, calls=2)
    assert [row["operator"] for row in found["rows"]] == ["rms_norm", "l2norm"]
    for row in found["rows"]:
        assert row["launches"] == row["fast"] == 2
        assert row["through_triton"] == {}
        for name in ("host", "launch", "triton_run"):
            before, after = row[f"{name}_us_before"], row[f"{name}_us_after"]
            assert 0 <= after < 1e7
            assert before > 0
            assert row[f"{name}_ratio"] == round(after / before, 4)
        assert row["triton_run_us_after"] == 0, "a fast launch enters no run of Triton's"
        assert found["total"]["launch_us_before"] > row["launch_us_before"]
    assert found["mode"] == "host-only"
    assert sorted(found["libraries"]) == ["flash-linear-attention", "liger-kernel"]
    assert found["skipped"] == []
    bench_libraries.show(found)
    assert "l2norm" in capsys.readouterr().out


def test_an_operator_that_the_library_refuses_is_skipped_with_its_reason(monkeypatch, capsys):
    def refused(new):
        raise RuntimeError("this GPU produces incorrect results\nat length")

    operator = ops.LibraryOperator("refused", "liger-kernel", refused)
    monkeypatch.setitem(bench.OPERATORS, "refused", operator)
    found = bench.measure(("refused", "rms_norm"), rounds=1, calls=1)
    reason = "RuntimeError: this GPU produces incorrect results"
    assert found["skipped"] == [
        {"operator": "refused", "library": "liger-kernel", "reason": reason}
    ]
    assert [row["operator"] for row in found["rows"]] == ["rms_norm"]
    bench_libraries.show(found)
    assert "skipped: refused" in capsys.readouterr().out
    with pytest.raises(UsageError, match="none of the operators can be measured"):
        bench.measure(("refused",), rounds=1, calls=1)


def test_example_shows_every_operator_before_and_after_install(monkeypatch, capsys):
    """In this process, where the libraries are imported: that takes them longest."""
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    launchkit.stats(reset=True)
    assert example_runs.module("third_party_library.py").main() == 0
    printed = capsys.readouterr().out
    assert "host-only" in printed
    example_runs.library_promises(printed)


def test_the_timer_of_triton_runs_counts_nested_ones_once_and_leaves_nothing_behind():
    before = [vars(kind).get("run") for kind in install_module._CLASSES]
    operator = ops.OPERATORS["l2norm"].prepare("cpu")
    ops.pin_configs()
    operator()
    with timing.RunTimer() as timer:
        operator()
        spent_ns = timer.spent_ns
        launchkit.install()
        operator()
        timer.spent_ns = 0
        operator()
        assert timer.spent_ns == 0
        launchkit.uninstall()
        assert spent_ns > 0
    assert [vars(kind).get("run") for kind in install_module._CLASSES] == before
