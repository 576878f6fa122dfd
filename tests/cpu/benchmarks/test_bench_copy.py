"""The copy benchmark's command: its variants, its memory, its table, its refusals."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import triton
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.benchmarks.copy import bench as copy_bench
from launchkit.benchmarks.copy.pool import MAX_SETS, Pool, sets_of
from launchkit.benchmarks.copy.variants import TILES, compared, swept
from launchkit.benchmarks.shapes import CACHE_SHAPES
from launchkit.errors import UsageError
from launchkit.kernels.state_copy.shapes import copy_shape
from launchkit.tools import bench, bench_copy
from launchkit.tools.bench_copy import show

QWEN = CACHE_SHAPES["Qwen3.5-9B"]
TINY = replace(QWEN, model="tiny", layers=2, conv_dim=64, temporal=(3, 8, 16))


def test_requests_of_real_models_own_the_states_that_engines_give_them():
    sizes = {name: shape.request_bytes for name, shape in CACHE_SHAPES.items()}
    assert sizes == {"Qwen3.5-9B": 52_297_728, "Nemotron-3-Super": 171_048_960}
    assert {shape.conv_bytes for shape in CACHE_SHAPES.values()} == {81_920}


def test_small_sets_take_turns_and_large_ones_stay_within_memory():
    for shape in CACHE_SHAPES.values():
        assert sets_of(shape, 1) == MAX_SETS == 8
        for reqs in copy_bench.REQS:
            held = 2 * reqs * shape.request_bytes * sets_of(shape, reqs)
            assert held < 45 * 2**30


def test_sets_are_disjoint_and_states_lie_in_pages_of_their_layer():
    pool = Pool(TINY, (1, 3), "cpu")
    ids = torch.cat([blocks.tables.tables[0].flatten() for blocks in pool.sets(3)])
    assert len(ids.unique()) == len(ids) == 2 * 3 * MAX_SETS
    conv, temporal = (state.tensor for state in pool.states.states[:2])
    assert temporal.data_ptr() - conv.data_ptr() == TINY.conv_bytes
    assert conv.stride(0) * 2 == temporal.stride(0) * 4
    assert conv.data_ptr() % 16 == temporal.data_ptr() % 16 == 0


def test_a_batch_is_the_copies_that_the_kernels_find():
    pool = Pool(TINY, (2,), "cpu")
    blocks = pool.sets(2)[1]
    found = zip(*(each.tolist() for each in pool.copies(blocks)), strict=True)
    expected = [
        (tensor[src].data_ptr(), tensor[dst].data_ptr(), tensor[src].nbytes)
        for src, dst in blocks.tables.tables[0].tolist()
        for tensor in (state.tensor for state in pool.states.states)
    ]
    assert list(found) == expected


def test_a_copy_is_seen_only_where_every_byte_arrived():
    pool = Pool(TINY, (2,), "cpu")
    blocks = pool.sets(2)[0]
    table = blocks.tables.tables[0].long()
    for state in pool.states.states:
        state.tensor[table[:, 1]] = state.tensor[table[:, 0]]
    assert pool.copied(blocks)
    last = pool.states.states[-1].tensor
    last[table[1, 1], -1, -1, -1] = 0
    assert not pool.copied(blocks)
    pool.spoil(blocks)
    assert not last[table[:, 1]].any()


def test_the_table_holds_both_older_kernels_and_launchkit_at_every_number_of_tiles(host):
    names = [variant.name for variant in compared(QWEN)]
    assert names[:4] == ["byte_2d", "u64_2d", "u64_tiled", "launchkit"]
    tiles = {variant.tiles for variant in compared(QWEN) if variant.kernel == "launchkit"}
    assert tiles == {*TILES, copy_shape(QWEN.temporal_bytes).tiles}
    (upstream,) = [variant for variant in compared(QWEN) if variant.name == "u64_tiled"]
    assert (upstream.tiles, upstream.block_size, upstream.num_warps) == (16, 1024, 4)


def test_candidates_of_the_sweep_have_names_of_their_own(host):
    names = [variant.name for variant in swept(QWEN)]
    assert len(set(names)) == len(names) <= 26
    assert {"u64_tiled", "launchkit", "launchkit_batch"} < set(names)


def rows():
    """Return a result's rows, made as the benchmark makes them."""
    times_us = {"byte_2d": [200.0, 210.0, 190.0], "launchkit": [25.0, 25.5, 24.5]}
    return [
        copy_bench._row(
            CACHE_SHAPES["Qwen3.5-9B"], 1, replace(variant, tiles=64), times_us[variant.name],
            104_595_456, 4244.0, 4800.0,
        )
        for variant in compared(QWEN)
        if variant.name in times_us
    ]  # fmt: skip


def test_a_rate_counts_bytes_read_and_written():
    _, ours = rows()
    assert (ours["median_us"], ours["gb_per_s"]) == (25.0, 4183.8)
    assert ours["of_ceiling"] == round(4183.8 / 4244.0, 4)
    assert ours["of_datasheet"] == round(4183.8 / 4800.0, 4)
    assert ours["sets"] == 8


def test_a_variant_that_fails_is_named_and_the_others_are_measured(monkeypatch):
    bad, good = compared(QWEN)[:2]

    def captured(variant, pool, reqs):
        if variant is bad:
            raise triton.TritonError("no such thing\nand more")
        return variant, []

    monkeypatch.setattr(copy_bench, "_captured", captured)
    monkeypatch.setattr(copy_bench, "_replay_us", lambda graph: 2400.0)
    ceiling = SimpleNamespace(time_us=lambda: 1000.0)
    monkeypatch.setattr(copy_bench, "_Ceiling", lambda: ceiling)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    failed = []
    (row,) = copy_bench._case(TINY, None, 3, [bad, good], 2, failed)
    assert (row["variant"], row["median_us"]) == (good.name, 100.0)
    assert row["ceiling_gb_per_s"] == round(4 * 2**30 / 1e6, 1)
    (failure,) = failed
    assert failure == {
        "model": "tiny", "reqs": 3, "variant": bad.name, "error": "TritonError: no such thing",
    }  # fmt: skip


def test_the_table_shows_a_line_a_variant(capsys):
    machine = {"gpu": "NVIDIA H200", "triton": "3.6.0"}
    failure = {"model": "Qwen3.5-9B", "reqs": 1, "variant": "all", "error": "RuntimeError: no"}
    show({"mode": "cuda", "machine": machine, "rows": rows(), "failed": [failure]})
    lines = capsys.readouterr().out.splitlines()
    assert any("byte_2d" in line and "200.0" in line for line in lines)
    assert any("launchkit" in line and "98.6" in line and "87.2" in line for line in lines)
    assert "not measured: Qwen3.5-9B, 1 requests, all: RuntimeError: no" in lines
    assert max(len(line) for line in lines) <= 80


@pytest.mark.skipif(torch.cuda.is_available(), reason="for where there is no GPU")
def test_without_a_gpu_it_says_that_it_needs_one():
    result = CliRunner().invoke(bench.app, ["copy"])
    assert isinstance(result.exception, UsageError)
    assert "Run it on a CUDA GPU" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "GPT"], "no model named GPT"),
        (["--reqs", "0"], "requests at least 1"),
        (["--rounds", "1"], "--rounds must be at least 2"),
    ],
)
def test_a_bad_option_is_refused_before_anything_is_measured(options, message):
    result = CliRunner().invoke(bench.app, ["copy", *options])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_the_hosts_part_needs_no_gpu_and_is_compared_with_a_copy_a_state(tmp_path):
    output = tmp_path / "host.json"
    options = ["copy", "--host", "--model", "Qwen3.5-9B", "--reqs", "2", "--rounds", "2", "-o"]
    result = CliRunner().invoke(bench.app, [*options, str(output)], catch_exceptions=False)
    document = jsonio.loads(output.read_bytes(), source="test", limit_bytes=10**6)
    assert (result.exit_code, document["complete"], document["rows"]) == (0, True, [])
    assert document["method"]["host_calls_per_round"] == 10
    assert {(row["model"], row["layers"], row["reqs"]) for row in document["host"]} == {
        ("Qwen3.5-9B", 24, 2)
    }
    medians = {(row["op"], row["variant"]): row["median_us"] for row in document["host"]}
    assert len(medians) == len(document["host"]) == 8
    for ratio in document["host_ratios"]:
        ours, other = (medians[ratio["op"], ratio[name]] for name in ("of", "over"))
        assert ratio["ratio"] == pytest.approx(ours / other, rel=0.01, abs=1e-4)
    assert len(document["host_ratios"]) == 4
    lines = result.stdout.splitlines()
    assert any("preprocess, all move" in line and line.split()[0] == "2" for line in lines)


def test_a_sweep_of_the_host_is_refused():
    result = CliRunner().invoke(bench.app, ["copy", "--host", "--sweep"])
    assert "Give one of them" in str(result.exception)


def test_its_help_names_the_models():
    for name in CACHE_SHAPES:
        assert name in bench_copy.MODEL_NAMES
