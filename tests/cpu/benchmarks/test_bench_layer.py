"""The benchmark of a short continuation: its document, its table, its refusals."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.benchmarks.layer import bench as layer_bench
from launchkit.benchmarks.layer import mixed, steps
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels
from launchkit.errors import UsageError
from launchkit.tools import bench
from launchkit.tools.bench_layer import show

MODEL = "Nemotron-3-Nano"
LAYERS = 23
PARTS = [("layer", name) for name in steps.VARIANTS] + [
    ("step", "baseline"), ("step", "launchkit"),
    *((mix, name) for mix in mixed.MIXES for name in mixed.VARIANTS),
]  # fmt: skip
MIXED = [
    LAYERS * 6 + 1,
    LAYERS * 5 + 1,
    LAYERS * 6 + 1,
    LAYERS * 6 + 1,
    LAYERS * 8 + 1,
    LAYERS * 8 + 1,
]
"""In place without the gather; of several prompts and with a checkpoint the scan makes it."""
COPIES = (
    "preprocess_mamba_align_fused_kernel", "precopy_mamba_align_fused_kernel",
    "postprocess_mamba_fused_kernel",
)  # fmt: skip


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The command's own result for one model, read from its output file."""
    target = tmp_path_factory.mktemp("bench") / "layer.json"
    result = CliRunner().invoke(
        bench.app, ["layer", "--model", MODEL, "--rounds", "2", "--json", "-o", str(target)]
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.encode() == target.read_bytes()
    return jsonio.loads(target.read_bytes(), source="test", limit_bytes=10**6)


def test_result_has_a_row_for_every_part_and_the_launches_that_were_seen(document):
    assert (document["mode"], document["complete"]) == ("host-only", True)
    assert [(row["what"], row["variant"]) for row in document["rows"]] == PARTS
    # Of a step: a lookup a group or one for all, a launch that decides and one that copies, and
    # behind the layers a snapshot of what was accepted and a launch that decides and copies.
    launches = [13, 6, 5, LAYERS * 13 + 4 + 2 + 2, LAYERS * 5 + 1 + 2 + 2, *MIXED]
    assert [row["launches"] for row in document["rows"]] == launches
    for row in document["rows"]:
        assert (row["model"], row["layers"]) == (MODEL, LAYERS)
        assert 0 < row["p10_us"] <= row["median_us"] <= row["p90_us"]


def test_ratios_are_those_of_the_medians(document):
    medians = {(row["what"], row["variant"]): row["median_us"] for row in document["rows"]}
    assert [(r["what"], r["over"]) for r in document["ratios"]] == [
        ("layer", "baseline"), ("layer", "copied"), ("step", "baseline"),
        *((mix, "copied") for mix in mixed.MIXES),
    ]  # fmt: skip
    for ratio in document["ratios"]:
        what = ratio["what"]
        quotient = medians[what, "launchkit"] / medians[what, ratio["over"]]
        assert ratio["ratio"] == pytest.approx(quotient, abs=1e-4)


def test_copies_of_a_step_are_the_same_launches_in_both_variants(host):
    with pinned():
        parts = steps.parts(MODEL, "cpu", triton_kernels())
        found = []
        for part in parts[-2:]:
            host.clear()
            part.call()
            found.append([each for each in host.launches() if each.kernel in COPIES])
    assert [tuple(each.kernel for each in one) for one in found] == [COPIES, COPIES]
    for one, other in zip(*found, strict=True):
        assert (one.function, one.grid, one.block) == (other.function, other.grid, other.block)


@pytest.mark.parametrize("gpu", [False, True])
def test_table_has_a_line_for_every_part_in_80_columns(document, capsys, gpu):
    wide = [{**row, "median_us": 12345.67} for row in document["rows"]]
    # As wide as they get: a busy machine measures anything.
    ratios = [{**ratio, "ratio": 1.234} for ratio in document["ratios"]]
    if gpu:
        ratios = [*ratios, *({**ratio, "time": "gpu", "ratio": 0.987} for ratio in ratios)]
    show({**document, "rows": wide, "ratios": ratios})
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    lines = [line.split() for line in printed.splitlines() if "→" in line]
    assert [line[: line.index("→") + 2] for line in lines] == [
        [MODEL, "layer", "13", "→", "5"], ["step", "307", "→", "120"],
        ["+decode", "step", "139", "→", "116"], ["+several", "step", "139", "→", "139"],
        ["+checkpoint", "step", "185", "→", "185"],
    ]  # fmt: skip
    assert ("0.987" in printed) == gpu


def test_a_run_that_is_cut_short_leaves_the_parts_that_were_timed(monkeypatch):
    kept = []

    def stop(document):
        kept.append([row["what"] for row in document["rows"]])
        if len(kept) == 2:
            raise KeyboardInterrupt

    counts = dict.fromkeys(((name, what) for what, name in PARTS), 1)
    monkeypatch.setattr(layer_bench, "_counted", lambda models: {MODEL: counts})
    with pytest.raises(KeyboardInterrupt):
        layer_bench.measure((MODEL,), 2, finished=stop)
    assert kept == [["layer"] * 3, ["layer"] * 3 + ["step"] * 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--model", "Mamba-0"), "no model named Mamba-0"),
     (("--rounds", "1"), "--rounds must be at least 2")],
)  # fmt: skip
def test_a_bad_option_is_refused(options, message):
    result = CliRunner().invoke(bench.app, ["layer", *options])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
