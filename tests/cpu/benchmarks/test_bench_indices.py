"""The benchmark of state indices: its document, its table, its refusals."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.benchmarks import indices
from launchkit.errors import UsageError
from launchkit.tools import bench
from launchkit.tools.bench_indices import show

COUNTS = (1, 33)


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The command's own result for two batches, read from its output file."""
    target = tmp_path_factory.mktemp("bench") / "indices.json"
    options = [option for count in COUNTS for option in ("--requests", str(count))]
    result = CliRunner().invoke(
        bench.app, ["indices", *options, "--rounds", "2", "--json", "-o", str(target)]
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.encode() == target.read_bytes()
    return jsonio.loads(target.read_bytes(), source="test", limit_bytes=10**6)


def test_result_has_a_row_for_every_batch_and_variant(document):
    assert (document["mode"], document["complete"]) == ("host-only", True)
    places = [(row["requests"], row["variant"], row["launches"]) for row in document["rows"]]
    launches = dict(zip(indices.VARIANTS, (4, 4, 1, 1), strict=True))
    assert places == [(count, name, many) for count in COUNTS for name, many in launches.items()]
    for row in document["rows"]:
        assert 0 < row["p10_us"] <= row["median_us"] <= row["p90_us"]


def test_ratios_are_those_of_the_medians(document):
    medians = {(row["requests"], row["variant"]): row["median_us"] for row in document["rows"]}
    assert len(document["ratios"]) == len(COUNTS) * 3
    for ratio in document["ratios"]:
        count = ratio["requests"]
        quotient = medians[count, "launchkit"] / medians[count, ratio["over"]]
        assert ratio["ratio"] == pytest.approx(quotient, abs=1e-4)


def test_every_variant_makes_the_launches_that_its_row_names(document, host):
    tables = indices._tables("cpu")
    seen = {}
    for name, call in indices.calls(tables, 33).items():
        call()
        host.clear()
        call()
        seen[name] = len(host.launches())
    assert seen == {row["variant"]: row["launches"] for row in document["rows"]}


def test_variants_of_one_launch_pass_the_kernel_the_same(host):
    tables = indices._tables("cpu")
    calls = indices.calls(tables, 33)
    launches = []
    for name in ("one_triton", "launchkit"):
        host.clear()
        calls[name]()
        launches.extend(host.launches())
    one, other = launches
    assert (one.function, one.grid, one.block) == (other.function, other.grid, other.block)
    scalars = [[p for p in each.params if len(p) == 4] for each in launches]
    assert scalars[0] == scalars[1]


@pytest.mark.parametrize("gpu", [False, True])
def test_table_has_a_line_a_batch_in_80_columns(document, capsys, gpu):
    rows = [{**row, "gpu_median_us": 12.3} if gpu else row for row in document["rows"]]
    show({**document, "rows": rows})
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    first = [line.split()[0] for line in printed.splitlines() if line.split()[:1]]
    assert [count for count in first if count in ("1", "33")] == ["1", "33"]
    assert ("12.3 → 12.3" in printed) == gpu


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--requests", "257"), "257 requests"), (("--requests", "0"), "0 requests"),
     (("--rounds", "1"), "--rounds must be at least 2")],
)  # fmt: skip
def test_a_bad_option_is_refused(options, message):
    result = CliRunner().invoke(bench.app, ["indices", *options])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
