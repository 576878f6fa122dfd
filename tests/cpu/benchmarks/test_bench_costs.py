"""``launchkit bench costs``: each figure is of what it is named for, and bad use is refused."""

from __future__ import annotations

import pytest

import launchkit
from launchkit import hostonly
from launchkit.benchmarks import costs
from launchkit.benchmarks.mode import core_seen
from launchkit.errors import UsageError
from launchkit.tools import bench_costs

WHAT = {
    *("import launchkit", "import of the launch path", "empty loop"),
    *(f"{what}, {how}" for what in ("range", "launch") for how in ("off", "recorded", "sampled")),
    *("first launch of a kind", "first op of a kind"),
    *("plan of a kind of launch", "plan of a kind of op"),
}


@pytest.fixture(scope="module")
def document():
    return costs.measure(rounds=2, kinds=40)


def test_each_cost_has_a_row_with_a_time_or_with_bytes(document):
    assert {row["what"] for row in document["rows"]} == WHAT
    assert len(document["rows"]) == len(WHAT)
    for row in document["rows"]:
        figure = row.get("bytes", row.get("median_us"))
        assert figure > 0, row
        assert ("bytes" in row) is row["what"].startswith("plan")
    assert document["mode"] == "host-only"


def test_each_first_launch_is_of_a_kind_that_was_not_launched():
    with hostonly.activate(arch=90), launchkit.use_store("memory:"):
        launch = costs._launcher()
        launchkit.stats(reset=True)
        for key in costs._keys(30):
            launch(key)
        (row,) = launchkit.stats().values()
    assert row.through_triton == {"first launch of its kind": 30}


def test_each_first_call_of_an_op_leaves_a_plan():
    with hostonly.activate(arch=90), launchkit.use_store("memory:"):
        if core_seen() != "c":
            pytest.skip("op plans need the C core")
        call = costs._op()
        launchkit.stats(reset=True)
        for _ in range(2):
            for number in costs._keys(30):
                call(number)
        (op,) = launchkit.stats().ops.values()
    assert op.as_it_is == {"watched": 30}
    assert op.replays == 30


def test_a_process_that_cannot_import_is_no_result():
    with pytest.raises(UsageError, match=r"importing failed: .*no_such_module"):
        costs._import_us("", "import no_such_module")


@pytest.mark.parametrize("bad", [{"rounds": 1}, {"kinds": 1}, {"kinds": costs.KINDS + 1}])
def test_bad_use_is_refused(bad):
    with pytest.raises(UsageError, match="must be at least"):
        costs.measure(**bad)


def test_the_table_has_a_line_for_each_row(document, capsys):
    bench_costs.show(document)
    printed = capsys.readouterr().out
    assert all(what in printed for what in WHAT)
