"""The Mamba benchmark's command: its cases, its document, its table, its refusals."""

from __future__ import annotations

import errno
import subprocess
import sys
from itertools import pairwise

import pytest
import triton
from typer.testing import CliRunner

from launchkit import jsonio, settings
from launchkit.benchmarks.mamba import bench as mamba_bench
from launchkit.benchmarks.mamba.cases import MambaCase, build, select
from launchkit.benchmarks.mamba.steps import OPS, STEPS
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.errors import UsageError
from launchkit.tools import bench, bench_mamba, bench_output
from launchkit.tools.bench_mamba_table import show

TINY = ("--model", "Nemotron-3-Nano", "--sequences", "2", "--tokens", "40", "--rounds", "2")


def read(data):
    return jsonio.loads(data, source="test", limit_bytes=10**6)


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The command's own result for two tiny cases, read from its output file."""
    target = tmp_path_factory.mktemp("bench") / "mamba.json"
    result = CliRunner().invoke(bench.app, ["mamba", *TINY, "--json", "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert result.stdout.encode() == target.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["mamba.json"]
    return read(target.read_bytes())


def test_result_has_a_row_for_every_case_op_and_step(document):
    names = ["Nemotron-3-Nano/S2/T40", "Nemotron-3-Nano/S2/T40/initial"]
    assert (document["mode"], document["complete"]) == ("host-only", True)
    assert document["machine"]["triton"] == triton.__version__
    assert document["machine"]["gpu"] is None
    assert document["method"]["rounds"] == 2
    assert document["method"]["keep_freed_memory"] is True
    assert [case["case"] for case in document["cases"]] == names
    assert [case["initial_states"] for case in document["cases"]] == [False, True]
    places = [(row["case"], row["op"], row["step"]) for row in document["rows"]]
    assert places == [(name, op, step) for name in names for op in OPS for step in STEPS]


def test_rows_hold_ordered_times_and_the_launches_that_were_seen(document):
    launches = {"ssd_scan": (5, 5), "final_state_writeback": (4, 0), "layer": (9, 5)}
    for row in document["rows"]:
        before, after = launches[row["op"]]
        assert row["launches"] == (before if row["step"] == "baseline" else after)
        assert row["p10_us"] <= row["median_us"] <= row["p90_us"]
        assert not any(field.startswith("gpu") for field in row)
        if row["op"] != "final_state_writeback":
            assert row["p10_us"] > 0


def test_ratios_are_those_of_the_medians(document):
    medians = {
        (r["case"], r["step"]): r["median_us"] for r in document["rows"] if r["op"] == "layer"
    }
    assert len(document["ratios"]) == 2 * 4
    for ratio in document["ratios"]:
        assert (ratio["of"], ratio["op"], ratio["time"]) == ("launchkit", "layer", "host")
        quotient = medians[ratio["case"], STEPS[-1]] / medians[ratio["case"], ratio["over"]]
        assert ratio["ratio"] == pytest.approx(quotient, abs=1e-4)


def with_gpu_times(document):
    """The document as a GPU would have made it, with all figures as wide as they get."""
    rows = [
        {
            **row,
            "median_us": 1234.56,
            "gpu_median_us": 1000.0 if row["step"] == STEPS[-1] else 990.0,
        }
        for row in document["rows"]
    ]
    return {
        **document,
        "mode": "cuda",
        "machine": {"gpu": "NVIDIA H200", "triton": "3.6.0"},
        "rows": rows,
        "ratios": mamba_bench.ratios(rows),
    }


def test_the_gpu_ratio_is_over_the_same_kernels_launched_by_triton(document):
    found = [r for r in with_gpu_times(document)["ratios"] if r["time"] == "gpu"]
    assert [(r["over"], r["ratio"]) for r in found] == [("fused_write", 1.0101)] * 2


def test_table_shows_each_case_in_80_columns(document, capsys):
    show(document)
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    lines = [line.split() for line in printed.splitlines()]
    (ratio,) = [
        r["ratio"] for r in document["ratios"] if (r["case"], r["over"]) == (
            "Nemotron-3-Nano/S2/T40", "baseline")
    ]  # fmt: skip
    medians = [
        f"{row['median_us']:.1f}" for row in document["rows"][: len(OPS) * len(STEPS)]
        if row["op"] == "layer"
    ]  # fmt: skip
    assert ["2", "40", "no", "layer", "9", "→", "5", *medians, f"{ratio:.2f}"] in lines
    assert [line[:4] for line in lines if line[:1] == ["write-back"]] == [
        ["write-back", "4", "→", "0"]
    ] * 2
    assert "one number a state" in " ".join(printed.split())


def test_table_of_a_gpu_has_its_ratio_and_still_80_columns(document, capsys):
    wide = with_gpu_times(document)
    wide["cases"] = [{**case, "sequences": 16, "tokens": 8192} for case in wide["cases"]]
    show(wide)
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    figures = ["1234.6"] * 5
    lines = [line.split() for line in printed.splitlines()]
    assert ["16", "8192", "yes", "layer", "9", "→", "5", *figures, "1.00", "1.010"] in lines


def test_launches_that_were_not_seen_are_shown_as_unknown(document, capsys):
    unseen = {**document, "rows": [{**row, "launches": None} for row in document["rows"]]}
    show(unseen)
    assert "? → ?" in capsys.readouterr().out


def test_default_cases_are_every_model_and_size_of_the_table():
    cases = select()
    assert len(cases) == len(set(cases)) == 5 * 3 * 4 * 2
    assert {case.model for case in cases} == set(MAMBA_SHAPES)
    assert len({case.name for case in cases}) == len(cases)
    chosen = select(["Bamba-9B", "Bamba-9B"], [4], [512, 32], initial_states=False)
    assert chosen == (MambaCase("Bamba-9B", 4, 512, False), MambaCase("Bamba-9B", 4, 32, False))


@pytest.mark.parametrize("case", select(sequences=[3], tokens=[40]), ids=lambda case: case.name)
def test_tensors_of_a_case_have_its_models_sizes(case):
    inputs, shape = build(case, "cpu"), MAMBA_SHAPES[case.model]
    assert inputs.x.shape == (40, shape.nheads, shape.headdim)
    assert inputs.B.shape == inputs.C.shape == (40, shape.ngroups, shape.dstate)
    assert str(inputs.ssm_state.dtype) == f"torch.{shape.state_dtype}"
    assert not inputs.x.is_contiguous()
    assert (inputs.initial_states is not None) == case.initial_states
    bounds = inputs.metadata.cu_seqlens.tolist()
    assert bounds[0] == 0
    assert bounds[-1] == 40
    lengths = [end - start for start, end in pairwise(bounds)]
    assert set(lengths) <= {13, 14}
    slots = inputs.state_indices.tolist()
    assert len(set(slots)) == 3
    assert max(slots) < inputs.ssm_state.shape[0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model", "Mamba-9000"], "Bamba-9B"),
        (["--sequences", "0"], "Give sequences from 1 to 65535"),
        (["--sequences", "65536", "--tokens", "70000"], "Give sequences from 1 to 65535"),
        (["--tokens", "100000000000"], "Give tokens from 1 to 2147483647"),
        (["--tokens", "512", "--tokens", "2147483648"], "cannot have 2147483648 tokens"),
        (["--sequences", "16", "--tokens", "15"], "Give more tokens"),
        (["--tokens", "-1"], "cannot have -1 tokens"),
        (["--rounds", "1"], "rounds must be at least 2"),
        (["-o", "missing/mamba.json"], "directory that exists"),
    ],
)
def test_bad_options_are_refused_with_what_would_do(options, named, monkeypatch):
    monkeypatch.setattr(mamba_bench, "prepare", lambda *_: pytest.fail("compiled"))
    result = CliRunner().invoke(bench.app, ["mamba", *options])
    assert isinstance(result.exception, UsageError)
    assert named in str(result.exception)


@pytest.mark.parametrize("variable", ["LAUNCHKIT_DISABLE", "LAUNCHKIT_VERIFY"])
def test_launchkit_is_not_measured_while_it_is_told_to_be_something_else(monkeypatch, variable):
    with monkeypatch.context() as patch:
        patch.setenv(variable, "1")
        settings.reload()
        for command in (bench_mamba.mamba, bench_mamba.quick):
            with pytest.raises(UsageError, match="Unset it"):
                command()
    settings.reload()


@pytest.mark.parametrize(
    ("missing", "advice"), [("torch", b"launchkit-triton[torch]'."), ("einops", b"[bench]'.")]
)
def test_what_is_not_installed_is_named_with_what_to_install(missing, advice):
    code = (
        f"import sys\nsys.modules[{missing!r}] = None\nfrom launchkit.tools.cli import main\nmain()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "bench", "mamba", *TINY], capture_output=True, check=False
    )
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr
    assert advice in result.stderr.replace(b"\n", b"")


def test_help_names_every_model():
    assert bench_mamba.MODEL_NAMES.split(", ") == list(MAMBA_SHAPES)


class Cut(BaseException):
    """Stands for whatever ends a run early."""


def cut_short(monkeypatch, output):
    """Run two cases with made-up times, and end the run after the first."""
    launches = {(step, what): 5 for step in STEPS for what in ("scan", "layer")}
    launches["baseline", "writeback"] = 4
    monkeypatch.setattr(
        mamba_bench, "prepare", lambda cases, _: {case.name: launches for case in cases}
    )
    times = {place: [2.0, 2.0] for place in launches}
    measured = []

    def host_us(*_):
        if measured:
            raise Cut
        measured.append(True)
        return times

    monkeypatch.setattr(mamba_bench, "_host_us", host_us)
    with pytest.raises(Cut):
        bench_mamba.mamba(["Nemotron-3-Nano"], [1], [32], output=output)


def test_a_run_that_is_cut_short_leaves_the_cases_that_were_finished(monkeypatch, tmp_path):
    target = tmp_path / "mamba.json"
    cut_short(monkeypatch, target)
    document = read(target.read_bytes())
    assert document["complete"] is False
    assert [case["case"] for case in document["cases"]] == ["Nemotron-3-Nano/S1/T32"]
    assert len(document["rows"]) == len(OPS) * len(STEPS)


def test_an_output_that_cannot_be_written_in_between_is_said_and_ends_nothing(
    monkeypatch, tmp_path, caplog
):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(bench_output.os, "replace", full)
    cut_short(monkeypatch, tmp_path / "mamba.json")
    assert "only the whole result at the end" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_result_so_far_touches_no_file_but_its_own(monkeypatch, tmp_path):
    others = [tmp_path / "mamba.json.part", tmp_path / "mamba.part"]
    for other in others:
        other.write_text("the user's")
    cut_short(monkeypatch, tmp_path / "mamba.json")
    assert {path.read_text() for path in others} == {"the user's"}
    assert {*tmp_path.iterdir()} == {tmp_path / "mamba.json", *others}
