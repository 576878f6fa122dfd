"""Figures in the README's sentences and tables are those of benchmarks/results."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import result

ROOT = Path(__file__).resolve().parents[2]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def rounded(value):
    """Two digits, as prose has them."""
    return f"{float(f'{value:.2g}'):g}"


def ratios_of(name, **which):
    found = [
        row["ratio"]
        for row in result(name)["ratios"]
        if all(row.get(key) == value for key, value in which.items())
    ]
    assert found
    return found


def figures_of_launches():
    launches = result("launch_h200.json")
    ours = [row["median_us"] for row in launches["rows"] if row["variant"] == "launchkit"]
    floor = {f"{row['median_us']:.1f}" for row in launches["rows"] if row["variant"] == "floor"}
    added = [row["added_us"] for row in launches["recording"]]
    mamba = ratios_of("mamba_h200.json", op="layer", over="baseline", time="host")
    libraries = result("libraries_h200.json")["rows"]
    launched = [row["launch_ratio"] for row in libraries]
    whole = [row["host_ratio"] for row in libraries]
    yield f"{min(ours):.1f} to {max(ours):.1f} µs, of which {floor.pop()} are the driver's"
    yield f"| {min(added):.2f} to {max(added):.2f} µs more |"
    yield f"takes {min(mamba):.2f} to {max(mamba):.2f} of the host time"
    yield f"launch in {min(launched):.2f} to {max(launched):.2f} of the time"
    yield f"the whole operator {min(whole):.2f} to {max(whole):.2f}"


def figures_of_serving():
    names = ("serve_h200.json", "serve_granite_h200.json")
    assert all(result(name)["ok"] and result(name)["complete"] for name in names)
    more, first = (
        [ratio for name in names for ratio in ratios_of(name, figure=figure)]
        for figure in ("output_tokens_per_s", "ttft_p50_ms")
    )
    assert len(more) == len(first) == 10
    yield f"gives {min(more):.1f} to {max(more):.1f} times the tokens per second"
    yield f"the first of them in {min(first):.2f} to {max(first):.2f} of the time"


def figures_of_costs():
    costs = {row["what"]: row for row in result("costs.json")["rows"]}
    kib = {what: f"{row['bytes'] / 1024:.1f} KiB" for what, row in costs.items() if "bytes" in row}
    us = {what: rounded(row["median_us"]) for what, row in costs.items() if "bytes" not in row}
    ms = {what: rounded(row["median_us"] / 1000) for what, row in costs.items() if what in us}
    yield f"| {us['first launch of a kind']} µs, and {kib['plan of a kind of launch']} that stay |"
    yield f"| {us['first op of a kind']} µs, and {kib['plan of a kind of op']} that stay |"
    ranges = [us[f"range, {how}"] for how in ("off", "sampled", "recorded")]
    yield f"| {', '.join(ranges)} µs |"
    yield f"| {ms['import launchkit']} ms; {ms['import of the launch path']} ms of CPU time, once |"


def figures_of_stores():
    few, *_, many = result("store_scale.json")["rows"]
    assert (few["keys"], many["keys"]) == (100, 100_000)
    get, put = "get_first_median_us", "put_one_median_us"
    yield f"| {few[get] / 1e3:.1f} ms among 100 keys of a kernel, {many[get] / 1e3:.1f} ms among"
    yield f"| {few[put] / 1e3:.1f} ms among 100 keys, {many[put] / 1e3:.0f} ms among 100,000 |"
    soak = result("soak_host_only.json")
    assert soak["flat"]
    assert soak["launches"] > 9_999_000
    yield "memory over ten million launches | flat |"


@pytest.mark.parametrize(
    "figures", [figures_of_launches, figures_of_serving, figures_of_costs, figures_of_stores]
)
def test_figures_of_the_readme_are_of_the_committed_results(figures):
    for figure in figures():
        assert figure in README, figure


def test_figures_of_a_warm_start_are_of_the_committed_result():
    document = result("warm_start_h200.json")
    rows = {row["variant"]: row for row in document["rows"]}
    first = {variant: row["first_call_s"] for variant, row in rows.items()}
    assert all(row["benchmarks"] == 0 for variant, row in rows.items() if variant != "cold")
    assert rows["warm"]["compilations"] == rows["warm_disk"]["compilations"] == 0
    guide = " ".join((ROOT / "docs/guides/serving.md").read_text(encoding="utf-8").split())
    assert (
        f"takes {first['cold']:.1f} s where nothing is stored, {first['store']:.1f} s with stored "
        f"configs, {first['store_disk']:.1f} s where Triton's disk cache has the kernels as well, and "
        f"{first['warm_disk'] * 1000:.0f} ms after `warm`, which took {rows['warm_disk']['warm_s']:.1f} s"
    ) in guide


def test_a_million_launches_were_the_same_on_each_triton_of_the_readme():
    assert "A million random launches" in README
    assert "on each of Triton 3.6 to 3.9" in README
    for minor in (6, 7, 8, 9):
        document = result(f"differential_triton3{minor}.json")
        assert document["machine"]["triton"].startswith(f"3.{minor}.")
        assert document["differences"] == 0
        assert document["sets"] == 1_000_000 == sum(row["sets"] for row in document["rows"])
