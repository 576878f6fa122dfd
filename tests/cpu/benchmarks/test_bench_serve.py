"""The served benchmark on the driver that executes nothing: its document, table, runs, refusals."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels
from launchkit.benchmarks.serve import bench as serve_bench
from launchkit.benchmarks.serve import pairs as serve_pairs
from launchkit.benchmarks.serve.asked import Asked
from launchkit.benchmarks.serve.engine import Served, make_engine
from launchkit.benchmarks.serve.figures import FIGURES, figures, percentile_ms, ratios, summary
from launchkit.benchmarks.serve.pairs import Pairs, difference, run_order
from launchkit.benchmarks.serve.requests import Workload, draw_requests
from launchkit.benchmarks.serve.variants import GROUPS, VARIANTS, Baseline, Launchkit
from launchkit.errors import UsageError
from launchkit.tools import bench
from launchkit.tools.bench_serve_table import show

UNHURRIED = settings(deadline=None, max_examples=60)
"""However busy the machine is."""

SMALL = Asked(
    layers=1, concurrency=(1, 3), requests=3, input_tokens=6, output_tokens=2, repeats=3
)  # fmt: skip
OPTIONS = (
    "--layers", "1", "--concurrency", "1", "--concurrency", "3", "--requests", "3",
    "--input-tokens", "6", "--output-tokens", "2", "--repeats", "3",
)  # fmt: skip


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The command's own result, read from its output file."""
    target = tmp_path_factory.mktemp("bench") / "serve.json"
    result = CliRunner().invoke(bench.app, ["serve", *OPTIONS, "--json", "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert result.stdout.encode() == target.read_bytes()
    return jsonio.loads(target.read_bytes(), source="test", limit_bytes=10**6)


def test_result_has_a_row_for_each_variant_of_a_case(document):
    assert (document["mode"], document["complete"], document["ok"]) == ("host-only", True, True)
    cases = ["Nemotron-3-Nano/C1", "Nemotron-3-Nano/C3"]
    assert [case["case"] for case in document["cases"]] == cases
    places = [(case, variant) for case in cases for variant in VARIANTS]
    assert [(row["case"], row["variant"]) for row in document["rows"]] == places
    for row in document["rows"]:
        for name in FIGURES:
            runs = row[name]["runs"]
            assert len(runs) == 3
            if None not in runs:
                assert row[name]["mean"] == pytest.approx(statistics.mean(runs), abs=1e-4)
                assert row[name]["stddev"] == pytest.approx(statistics.stdev(runs), abs=1e-4)


def test_tokens_of_a_driver_that_executes_nothing_are_not_said_to_be_equal(document):
    assert [case["tokens_and_states_equal"] for case in document["cases"]] == [None, None]


def test_cases_say_how_much_was_served(document):
    for case in document["cases"]:
        expected = [
            sum(r.output_tokens for r in draw_requests(SMALL.workloads(False)[0], 256, seed))
            for seed in (1, 2, 3)
        ]
        assert case["output_tokens"] == expected
        assert all(steps >= 2 for steps in case["steps"])
        assert set(case["scans"]) == {"replayed", "ran_as_is"}
        assert sum(case["scans"].values()) >= 3


@pytest.mark.parametrize("different", [False, True])
def test_table_has_a_line_for_every_figure_in_80_columns(document, capsys, different):
    wide = {"mean": 123456.78, "stddev": 12345.67, "runs": []}
    rows = [{**row, **dict.fromkeys(FIGURES, wide)} for row in document["rows"]]
    found = [{**ratio, "ratio": 12.345, "stddev": 12.345} for ratio in document["ratios"]]
    cases = document["cases"]
    if different:
        cases = [{**case, "difference": {"what": "token"}} for case in cases]
    show({**document, "rows": rows, "ratios": found, "cases": cases})
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.count("123,457 ± 12,346") == 2 * 2 * len(FIGURES)
    assert printed.count("DIFFER") == 2 * different


def nothing_runs(monkeypatch, pairs):
    """Have each case come to ``pairs`` at once."""
    monkeypatch.setattr(serve_bench, "compile_all", lambda *args: None)
    monkeypatch.setattr(serve_bench, "run_pairs", lambda *args: pairs)


def test_a_difference_fails_the_case_and_the_command(monkeypatch, tmp_path):
    run = dict.fromkeys(FIGURES, 1.0)
    where = {"what": "token", "pair": 1, "request": 2, "place": 0}
    pairs = Pairs(
        {name: [run] * 3 for name in VARIANTS}, [5] * 3, [9] * 3, compared=4, difference=where
    )  # fmt: skip
    nothing_runs(monkeypatch, pairs)
    target = tmp_path / "serve.json"
    result = CliRunner().invoke(bench.app, ["serve", *OPTIONS, "-o", str(target)])
    assert result.exit_code == 1
    assert "DIFFER" in result.output
    found = jsonio.loads(target.read_bytes(), source="test", limit_bytes=10**6)
    assert not found["ok"]
    assert {case["tokens_and_states_equal"] for case in found["cases"]} == {False}
    assert [case["difference"] for case in found["cases"]] == [where] * 2
    assert (len(found["rows"]), found["ratios"]) == (4, [])


def served_with(tokens, states=(7, 8)):
    return Served(tokens, [0] * len(tokens), [[]] * len(tokens), states=list(states))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (served_with([[1, 2], [3]]), served_with([[1, 2], [3]]), None),
        (served_with([[1, 2], [3]]), served_with([[1, 4], [5]]),
         {"what": "token", "pair": 2, "request": 0, "place": 1}),
        (served_with([[1, 2], [3]]), served_with([[1, 2], [3, 4]]),
         {"what": "token", "pair": 2, "request": 1, "place": 1}),
        (served_with([[1]], (7, 8)), served_with([[1]], (7, 9)),
         {"what": "states", "pair": 2, "layer": 1}),
    ],
)  # fmt: skip
def test_the_first_difference_is_found(one, other, expected):
    assert difference(2, {"baseline": one, "launchkit": other}) == expected
    assert difference(2, {"baseline": other, "launchkit": one}) == expected


def test_pairs_run_a_b_then_b_a():
    order = [name for pair in range(4) for name in run_order(pair)]
    a, b = VARIANTS
    assert order == [a, b, b, a, a, b, b, a]


def test_runs_of_a_case_warm_up_first_and_take_turns(monkeypatch):
    ran = []

    class Stack:
        model = SMALL.model("Nemotron-3-Nano", cuda=False)

    class Ops(str):
        def scans(self):
            return {"replayed": len(ran)}

    class Engine:
        stack = Stack

        class states:
            executes = True

        def serve(self, workload, requests, ops):
            ran.append((ops, [r.prompt.tolist() for r in requests]))
            tokens = [[len(ran)] if ops == "odd" else [1] for _ in requests]
            return Served(tokens, [0] * 3, [[1]] * 3, [1], [1], [1], 1)

    workload = SMALL.workloads(False)[0]
    ops = {"baseline": "a", "launchkit": Ops("b")}
    pairs = serve_pairs.run_pairs(Engine(), ops, workload, 3, 11)
    assert "".join(each for each, _ in ran) == "baabbaab"
    drawn = [[r.prompt.tolist() for r in draw_requests(workload, 256, s)] for s in range(11, 15)]
    assert [prompts for _, prompts in ran] == [each for each in drawn for _ in range(2)]
    assert (pairs.repeats, pairs.compared, pairs.difference) == (3, 4, None)
    assert pairs.scans == {"replayed": 6}
    ran.clear()
    ops["launchkit"] = Ops("odd")
    pairs = serve_pairs.run_pairs(Engine(), ops, workload, 3, 11)
    assert pairs.difference == {"what": "token", "pair": 0, "request": 0, "place": 0}


def test_both_variants_launch_the_same_but_for_lookups_and_initial_states(host):
    # Prompts come in pieces: some start from a state.
    workload = Workload(concurrency=4, requests=9, input_tokens=9, output_tokens=4, step_tokens=12)
    counts = {}
    with pinned():
        model = SMALL.model("Nemotron-3-Nano", cuda=False)
        engine = make_engine(model, workload, "cpu", executes=False)
        ops = {"baseline": Baseline(engine.states, triton_kernels()),
               "launchkit": Launchkit(engine.states)}  # fmt: skip
        for name, variant in ops.items():
            host.clear()
            engine.serve(workload, draw_requests(workload, 256, 0), variant)
            counts[name] = Counter(each.kernel for each in host.launches())
    ours, theirs = counts["launchkit"], counts["baseline"]
    lookups = ours.pop("get_aligned_state_indices_multi_group_kernel")
    assert theirs.pop("get_aligned_state_indices_kernel") == GROUPS * lookups
    # One prompt alone is read in its slot, several are gathered; the baseline's gathers are torch's.
    in_place, gathers = (
        ours.pop(f"_{name}_kernel") for name in ("indexed_state_passing", "gather_initial_states")
    )
    ours["_state_passing_fwd_kernel"] += in_place
    assert ours == theirs
    assert ours["decode_update_kernel"] > 0
    assert min(in_place, gathers) > 0


@UNHURRIED
@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=300), st.integers(1, 99))
def test_percentiles_are_those_of_the_standard_library(times_ns, percent):
    expected = statistics.quantiles(times_ns, n=100, method="inclusive")[percent - 1] / 1e6
    assert percentile_ms(times_ns, percent) == pytest.approx(expected, abs=1e-3)


def test_figures_of_a_run_are_taken_at_the_ends_of_steps():
    served = Served(
        tokens=[[1, 2, 3], [4]], arrived_ns=[0, 10**6],
        token_ns=[[2 * 10**6, 5 * 10**6, 9 * 10**6], [5 * 10**6]],
        prefill_steps_ns=[2 * 10**6, 3 * 10**6], decode_steps_ns=[4 * 10**6], wall_ns=9 * 10**6,
    )  # fmt: skip
    assert figures(served) == {
        "output_tokens_per_s": 444.44, "ttft_p50_ms": 3.0, "ttft_p95_ms": 3.9, "itl_p50_ms": 3.5,
        "itl_p95_ms": 3.95, "prefill_step_p50_ms": 2.5, "decode_step_p50_ms": 4.0,
    }  # fmt: skip


def test_a_figure_that_runs_lack_has_no_mean_and_no_ratio():
    run = {**dict.fromkeys(FIGURES, 2.0), "itl_p50_ms": None}
    found = summary([run, run, run])
    assert found["itl_p50_ms"] == {"mean": None, "stddev": None, "runs": [None] * 3}
    assert found["ttft_p50_ms"]["mean"] == 2.0
    compared = ratios([dict.fromkeys(FIGURES, 1.0)] * 3, [run] * 3)
    assert set(compared) == set(FIGURES) - {"itl_p50_ms"}
    assert compared["ttft_p50_ms"] == {"ratio": 0.5, "stddev": 0.0, "better": "lower"}


def test_cases_behind_the_time_limit_are_left_out_and_said(capsys, monkeypatch):
    monkeypatch.setattr(serve_bench, "compile_all", lambda *args: None)
    document = serve_bench.measure(replace(SMALL, rate=0.5, time_limit_s=1e-9))
    assert (document["method"]["arrivals"], document["method"]["rate_per_step"]) == ("Poisson", 0.5)
    assert [left["case"] for left in document["skipped"]] == [
        "Nemotron-3-Nano/C1", "Nemotron-3-Nano/C3",
    ]  # fmt: skip
    assert (document["complete"], document["ok"], document["rows"]) == (False, True, [])
    show(document)
    assert "Nemotron-3-Nano/C3: left out: 0 of 3 repeats" in capsys.readouterr().out


def test_a_run_that_is_cut_short_leaves_the_cases_that_were_served(monkeypatch):
    run = dict.fromkeys(FIGURES, 1.0)
    pairs = Pairs({name: [run] * 3 for name in VARIANTS}, [5] * 3, [9] * 3)
    nothing_runs(monkeypatch, pairs)
    kept = []

    def stop(document):
        kept.append(([case["case"] for case in document["cases"]], document["complete"]))
        if len(kept) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve_bench.measure(replace(SMALL, models=("Bamba-9B", "Nemotron-3-Nano")), finished=stop)
    assert kept == [(["Bamba-9B/C1"], False), (["Bamba-9B/C1", "Bamba-9B/C3"], False)]


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--model", "Mamba-0"), "no model named Mamba-0"),
     (("--repeats", "2"), "--repeats must be at least 3"),
     (("--repeats", "1001"), "repeats must be from 3 to 1000"),
     (("--layers", "0"), "layers must be from 1"),
     (("--layers", "100000000"), "layers must be from 1 to 1024"),
     (("--concurrency", "0"), "concurrency must be from 1"),
     (("--concurrency", "4096"), "need a token each in a step"),
     (("--requests", "0"), "requests must be from 1"),
     (("--requests", "100000000"), "requests must be from 1 to 100000"),
     (("--requests", "10000", "--output-tokens", "10000"), "Give fewer requests or tokens"),
     (("--input-tokens", "0"), "input_tokens must be from 1"),
     (("--input-tokens", "1000000000000"), "input_tokens must be from 1 to 1000000"),
     (("--output-tokens", "0"), "output_tokens must be from 1"),
     (("--output-tokens", "100000000000"), "output_tokens must be from 1 to 1000000"),
     (("--rate", "0"), "the rate must be from"),
     (("--rate", "nan"), "the rate must be from"),
     (("--seed", "-1"), "the seed must be from 0"),
     (("--time-limit", "0"), "the time limit must be a number of seconds above 0"),
     (("--time-limit", "nan"), "the time limit must be"),
     (("--time-limit", "inf"), "for no limit a large one")],
)  # fmt: skip
def test_a_bad_option_is_refused(options, message):
    result = CliRunner().invoke(bench.app, ["serve", *options])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
