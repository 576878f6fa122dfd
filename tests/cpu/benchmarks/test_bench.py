"""The launch benchmark measures what it says: same launches, complete JSON, clear refusals."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton
from typer.testing import CliRunner

import launchkit
from launchkit import jsonio, settings
from launchkit.benchmarks.launch import bench as launch_bench
from launchkit.benchmarks.launch import floor
from launchkit.benchmarks.launch.cases import CASES
from launchkit.benchmarks.launch.variants import FORMS, RECORDED, VARIANTS, build, has_form
from launchkit.benchmarks.timing import TimedRow
from launchkit.errors import CompilerError, UsageError
from launchkit.tools import bench


@pytest.fixture(params=list(CASES))
def case(request, host):
    return CASES[request.param]("cpu")


def triton_launch(case, host):
    compiled = case.jit[case.grid](**case.arguments, **case.configs[0].all_kwargs())
    return compiled, host.launches()[-1]


def test_every_variant_and_call_form_makes_the_same_launch(case, host):
    _, expected = triton_launch(case, host)
    for form in FORMS:
        for variant in VARIANTS:
            loop = build(case, variant, form)
            assert (loop is None) == (not has_form(variant, form))
            if loop is None:
                continue
            host.clear()
            loop(3)
            assert host.launches() == [expected] * 3, (variant, form)


def test_floor_makes_the_same_launch_from_c(case, host):
    compiled, expected = triton_launch(case, host)
    loop = floor.floor_loop(compiled, case.grid, floor.kernel_params(compiled, case.arguments), 0)
    gc.collect()
    host.clear()
    loop(5)
    assert host.launches() == [expected] * 5


def test_case_names_count_the_arguments_that_a_caller_passes(host):
    assert [CASES[name]("cpu").args for name in CASES] == [0, 19, 46, 26]


def test_result_has_every_row_and_ratio_and_stores_nothing(memory_store):
    document = launch_bench.measure(["noop_19"], rounds=3, launches=10)
    assert document["mode"] == "host-only"
    assert document["machine"]["triton"] == triton.__version__
    places = {(row["call_form"], row["variant"]) for row in document["rows"]}
    assert places == {(f, v) for f in FORMS for v in VARIANTS if has_form(v, f)}
    assert len(places) == 5 * len(FORMS) - 1 - 3
    for row in document["rows"]:
        assert (row["case"], row["args"]) == ("noop_19", 19)
        assert 0 < row["p10_us"] <= row["median_us"] <= row["p90_us"]
    medians = {(r["call_form"], r["variant"]): r["median_us"] for r in document["rows"]}
    for ratio in document["ratios"]:
        form = ratio["call_form"]
        quotient = medians[form, "launchkit"] / medians[form, ratio["over"]]
        assert ratio["ratio"] == pytest.approx(quotient, abs=1e-4)
    assert len(document["ratios"]) == 11 + 4 + 1
    assert [row["call_form"] for row in document["recording"]] == list(FORMS)
    assert list(memory_store.records()) == []


def test_table_shows_each_case_form_and_ratio(capsys):
    rows = [
        {"case": "noop_0", "args": 0, "call_form": form, "variant": variant, "median_us": cost}
        for form in FORMS
        for variant, cost in (("triton_jit", 12.5), ("triton_autotuner", 40.0), ("launchkit", 5.0))
        if has_form(variant, form)
    ]
    rows.append(
        {"case": "noop_0", "args": 0, "call_form": "c_loop", "variant": "floor", "median_us": 3.25}
    )
    document = {
        "mode": "cuda",
        "machine": {"gpu": "NVIDIA H200", "triton": "3.6.0"},
        "rows": rows,
        "ratios": launch_bench.ratios(rows),
    }
    bench.show(document)
    printed = capsys.readouterr().out
    assert "NVIDIA H200; Triton 3.6.0" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80
    lines = [line.replace("f(a, b)", "f(a,b)").split() for line in printed.splitlines()]
    figures = ["40.0", "12.5", "3.2", "5.0", "0.12"]
    assert ["noop/0", "f(a,b)", *figures] in lines
    assert ["f(a=a)", *figures] in lines
    assert ["f(**kw)", *figures] in lines
    assert ["+", "grid()", *figures] in lines
    assert ["frozen", "-", "-", "3.2", "5.0", "-"] in lines


def test_every_form_is_compared_with_the_driver_and_with_torchs_addition():
    costs = [("c_loop", "floor", 4.0), ("positional", "torch_add", 8.0)]
    costs += [("positional", "launchkit", 5.0), ("keywords", "launchkit", 6.0)]
    rows = [
        {"case": "noop_19", "call_form": form, "variant": variant, "median_us": cost}
        for form, variant, cost in costs
    ]
    found = {(r["call_form"], r["over"]): r["ratio"] for r in launch_bench.ratios(rows)}
    assert found == {
        ("positional", "floor"): 1.25, ("positional", "torch_add"): 0.625,
        ("keywords", "floor"): 1.5, ("keywords", "torch_add"): 0.75,
    }  # fmt: skip


def test_recording_adds_what_recorded_launches_of_a_round_took_more():
    labels = {"case": "noop_0", "call_form": "positional"}
    plain = TimedRow({**labels, "variant": "launchkit"}, print, times_us=[4.0, 9.0, 4.5])
    recorded = TimedRow({**labels, "variant": RECORDED}, print, times_us=[4.25, 9.0, 5.0])
    assert launch_bench.recording([plain, recorded]) == [{**labels, "added_us": 0.25}]


def test_recorded_variant_is_recorded_and_the_others_are_not(monkeypatch):
    seen, profile_launches = [], launchkit.profile_launches

    @contextlib.contextmanager
    def recording():
        with profile_launches() as profile:
            yield
        seen.extend((row.kernel, row.launches) for row in profile.rows)

    monkeypatch.setattr(launch_bench.launchkit, "profile_launches", recording)
    launch_bench.measure(["noop_0"], rounds=2, launches=7)
    assert len(seen) == len(FORMS) * 2
    assert {count for _, count in seen} == {8}


@pytest.mark.parametrize(
    ("cases", "rounds", "launches", "named"),
    [(["noop_7"], 3, 10, "noop_46"), (["noop_0"], 1, 10, "rounds"), (["noop_0"], 3, 0, "launches")],
)
def test_bad_options_are_refused_with_what_would_do(cases, rounds, launches, named):
    with pytest.raises(UsageError, match=named):
        launch_bench.measure(cases, rounds, launches)


def test_a_tools_launch_hook_is_not_measured_along(host, monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", print)
    with pytest.raises(UsageError, match="launch hook"):
        launch_bench.measure(["noop_0"], 3, 10)


def test_command_prints_and_writes_the_same_json(tmp_path):
    target = tmp_path / "launch.json"
    options = ["launch", "--case", "noop_0", "--rounds", "2", "--launches", "5"]
    result = CliRunner().invoke(bench.app, [*options, "--json", "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert result.stdout.encode() == target.read_bytes()
    document = jsonio.loads(target.read_bytes(), source="test", limit_bytes=10**6)
    assert {row["case"] for row in document["rows"]} == {"noop_0"}


def in_a_process(*options, modules="", **environment):
    """Run the command as a user does, with the modules named in ``modules`` missing."""
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({modules.split()!r}))\n"
        "from launchkit.tools.cli import main\nmain()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "bench", "launch", *options],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )


SHORT = ("--case", "noop_0", "--rounds", "2", "--launches", "5")


def test_without_torch_it_says_what_to_install():
    result = in_a_process(modules="torch")
    assert result.returncode == 2
    assert b"pip install 'launchkit-triton[torch]'" in result.stderr.replace(b"\n", b" ")
    assert b"Traceback" not in result.stderr


def test_an_output_without_mu_loses_no_figure():
    result = in_a_process(*SHORT, PYTHONIOENCODING="ascii", COLUMNS="30")
    assert result.returncode == 0, result.stderr
    printed = result.stdout.decode("ascii")
    assert "host ?s per launch" in printed
    (line,) = [line for line in printed.splitlines() if "f(a=a)  " in line]
    # Call, four figures and the ratio, whole although the terminal is narrow.
    assert len([cell for cell in line.replace("|", " ").split() if "." in cell]) == 5


def test_figures_are_shown_before_a_write_that_fails(capsys):
    with pytest.raises(UsageError, match="Give another file"):
        bench.launch(list(SHORT[1:2]), 2, 5, output=Path("/dev/full"))
    assert "noop/0" in capsys.readouterr().out


@pytest.mark.parametrize("options", [("--rounds", "1"), ("--launches", "0")])
def test_a_number_that_is_too_small_is_refused_before_torch_is_imported(options):
    result = in_a_process(*options, modules="torch triton")
    assert result.returncode == 2
    least = int(options[1]) + 1
    assert result.stderr.decode() == (
        f"launchkit: {options[0]} must be at least {least}, not {options[1]}. Give more.\n"
    )


def test_a_case_named_twice_is_measured_once():
    result = CliRunner().invoke(bench.app, ["launch", *SHORT, "--case", "noop_0", "--json"])
    document = jsonio.loads(result.stdout_bytes, source="test", limit_bytes=10**6)
    places = [(row["call_form"], row["variant"]) for row in document["rows"]]
    assert len(places) == len(set(places)) == 21


def test_a_compiler_that_fails_is_named_with_its_words(tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho no dlfcn.h here >&2\nexit 1\n")
    compiler.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("CC", str(compiler))
        settings.reload()
        with pytest.raises(CompilerError, match=r"no dlfcn\.h here\nSet CC"):
            floor.floor_loop(None, (1,), [], 0)
    settings.reload()


def test_help_names_every_case():
    assert bench.CASE_NAMES.split(", ") == list(CASES)


@pytest.mark.parametrize("variable", ["LAUNCHKIT_DISABLE", "LAUNCHKIT_VERIFY"])
def test_launchkit_is_not_measured_while_it_is_told_to_be_something_else(monkeypatch, variable):
    with monkeypatch.context() as patch:
        patch.setenv(variable, "1")
        settings.reload()
        with pytest.raises(UsageError, match="Unset it"):
            bench.launch(case=["noop_0"], rounds=2, launches=5)
    settings.reload()
