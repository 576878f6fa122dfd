"""``launchkit bench differential``: the same sets with any processes, counts that add up, exit codes."""

from __future__ import annotations

import json
import random

import pytest
import typer

from launchkit.benchmarks import trials
from launchkit.benchmarks.differential import bench
from launchkit.benchmarks.differential.arguments import typed
from launchkit.errors import HostOnlyError, UsageError
from launchkit.tools import bench_differential


def test_a_result_counts_every_set_and_says_what_it_ran_on(tmp_path, capsys):
    output = tmp_path / "out.json"
    bench_differential.differential(
        sets=31, case=["integers", "autotuned"], seed=5, processes=2, output=output
    )
    document = json.loads(output.read_bytes())
    assert [(row["case"], row["sets"]) for row in document["rows"]] == [
        ("integers", 16), ("autotuned", 15),
    ]  # fmt: skip
    for row in document["rows"]:
        slow, raised = sum(row["through_triton"].values()), sum(row["raised"].values())
        assert row["fast"] + slow + raised == row["sets"] == sum(row["forms"].values())
        assert row["launched"] + row["nothing_launched"] + raised == row["sets"]
        assert 0 < row["kinds"] <= row["sets"]
    assert (document["sets"], document["differences"]) == (31, 0)
    assert document["method"] == {"seed": 5, "processes": 2, "devices": 2}
    assert document["mode"] == "host-only"
    assert document["machine"]["core"] in ("c", "python")
    assert "31 argument sets, 0 differences" in " ".join(capsys.readouterr().out.split())


def test_a_seed_draws_the_same_calls_and_another_seed_others():
    def drawn(seed):
        rng = random.Random(seed)
        return [str(typed(rng)) for _ in range(50)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_difference_is_printed_and_is_exit_code_1(monkeypatch, capsys):
    row = {"case": "integers", "sets": 2, "fast": 2, "through_triton": {}, "raised": {}, "kinds": 1,
           "differences": 1, "first_differences": ["[(1,)](7)\n  launchkit: a\n  Triton: b"]}  # fmt: skip
    document = {"sets": 2, "differences": 1, "mode": "host-only", "wall_s": 0.1, "rows": [row],
                "machine": {"triton": "3.9.0", "python": "3.11", "core": "c"}}  # fmt: skip
    monkeypatch.setattr(bench, "measure", lambda *_, **__: document)
    with pytest.raises(typer.Exit) as left:
        bench_differential.differential(sets=2, processes=1)
    assert left.value.exit_code == 1
    assert "integers: [(1,)](7)\n  launchkit: a\n  Triton: b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sets": 0}, "--sets must be at least 1"),
        ({"processes": 0}, "--processes must be at least 1"),
        ({"case": ["no_such"]}, "no case named no_such"),
    ],
)
def test_bad_use_is_refused_before_a_process_starts(options, said, monkeypatch):
    monkeypatch.setattr(trials, "ProcessPoolExecutor", lambda *_: pytest.fail("started"))
    with pytest.raises(UsageError, match=said):
        bench_differential.differential(**{"processes": 1, **options})


def test_what_a_process_cannot_do_is_said_as_it_is(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(HostOnlyError, match=r"no-such-compiler.*Install gcc"):
        bench.measure(["integers"], sets=1)
