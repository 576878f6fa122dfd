"""The benchmark of first prefills: its document, its table, its promises, host-only."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.benchmarks.warm import bench as warm_bench
from launchkit.errors import LaunchkitError
from launchkit.tools import bench
from launchkit.tools.bench_warm import show

KERNELS = 5


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The command's own result, read from its output file."""
    target = tmp_path_factory.mktemp("bench") / "warm.json"
    with pytest.MonkeyPatch.context() as patch:
        # The others only copy one more folder.
        kept = [each for each in warm_bench.VARIANTS if each.name in ("cold", "warm", "warm_disk")]
        patch.setattr(warm_bench, "VARIANTS", tuple(kept))
        result = CliRunner().invoke(bench.app, ["warm", "--json", "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert result.stdout.encode() == target.read_bytes()
    return jsonio.loads(target.read_bytes(), source="test", limit_bytes=10**6)


@pytest.fixture
def rows(document):
    return {row["variant"]: row for row in document["rows"]}


def test_cold_process_compiles_every_kernel_at_its_first_call(rows):
    row = rows["cold"]
    assert (row["compilations"], row["compiled"], row["warmed"]) == (KERNELS, KERNELS, None)


@pytest.mark.parametrize(
    ("variant", "status", "compiled"), [("warm", "compiled", KERNELS), ("warm_disk", "loaded", 0)]
)
def test_warmed_process_makes_nothing_at_its_first_call(variant, status, compiled, rows):
    row = rows[variant]
    assert (row["benchmarks"], row["tunings"]) == (0, 0)
    assert (row["compilations"], row["compiled"]) == (0, 0)
    assert row["warmed"] == {status: KERNELS}
    assert row["compiled_in_warm"] == compiled


def test_times_are_those_of_each_process(document):
    assert (document["mode"], document["complete"]) == ("host-only", True)
    for row in document["rows"]:
        assert 0 < row["first_call_s"] < row["to_first_call_s"] < row["process_s"] + 1
        assert row["second_call_s"] > 0
        assert (row["warm_s"] is None) == (row["warmed"] is None)


def test_ratios_are_of_the_cold_process(document, rows):
    assert len(document["ratios"]) == 4
    for ratio in document["ratios"]:
        time = ratio["time"]
        quotient = rows[ratio["of"]][time] / rows["cold"][time]
        assert ratio["ratio"] == pytest.approx(quotient, abs=1e-4)


def test_table_has_a_line_for_each_process(document, capsys):
    show(document)
    printed = capsys.readouterr().out
    assert "host-only" in printed
    assert f"{KERNELS} [{KERNELS}]" in printed
    assert printed.count("0 [0]") == 2


def test_process_that_fails_is_an_error_with_what_it_said(tmp_path):
    with pytest.raises(LaunchkitError, match="KeyError"):
        warm_bench._run({"cache_dir": str(tmp_path)}, tmp_path)
