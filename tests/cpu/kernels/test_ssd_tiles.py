"""Configs that Triton compiles wrongly for one GPU are left out there, and only there."""

from __future__ import annotations

import functools
import re

import pytest
import torch
from benching import NO_CONFIG_LEFT
from chunk_cases import bounds_of
from pinning import pin

from launchkit import hostonly
from launchkit.kernels.ssd import bmm, chunk_scan, tiles
from launchkit.kernels.ssd.bmm import _bmm_chunk_fwd_kernel, launch_bmm_chunk
from launchkit.kernels.ssd.chunk_scan import _chunk_scan_fwd_kernel, launch_chunk_scan

ALL_SCAN = tuple(_chunk_scan_fwd_kernel.configs)
ALL_BMM = tuple(_bmm_chunk_fwd_kernel.configs)

# Told apart by threads and by programs per chunk of 64 tokens and 64 channels. The fastest of
# all are wrong on compute capability 9.0.
CANDIDATES = {
    (128, 2): (((64, 32, 32), 4, 2), 1.0),
    (256, 1): (((64, 64, 32), 8, 2), 2.0),
    (128, 4): (((32, 32, 32), 4, 2), 3.0),
    (128, 1): (((64, 64, 32), 4, 1), 4.0),
    (64, 2): (((64, 32, 32), 2, 2), 5.0),
}
EVERY = list(CANDIDATES)
RIGHT_ON_90 = EVERY[2:]


def expected_on(arch):
    return RIGHT_ON_90 if arch == 90 else EVERY


def scan_once(dtype=torch.bfloat16):
    """Launch the chunk scan on one chunk; return its threads and programs."""
    x = torch.zeros(64, 1, 64, dtype=dtype)
    C = torch.zeros(64, 1, 16, dtype=dtype)
    per_token = torch.zeros(1, 1, 64)
    seq_idx = torch.zeros(1, dtype=torch.int32)
    launch_chunk_scan(
        torch.zeros(1, 1, 64, 64), x, per_token, per_token, C, torch.zeros(1, 1, 64, 16),
        bounds_of((64,), before=0), seq_idx, torch.zeros_like(x), None, None, None,
    )  # fmt: skip
    return last_launch()


def bmm_once(left, right, dstate=64):
    """Launch the chunk products on one chunk; return its threads and programs."""
    C, B = (torch.zeros(64, 1, dstate, dtype=dtype) for dtype in (left, right))
    launch_bmm_chunk(C, B, 64, bounds_of((64,), before=0), torch.zeros(1, 1, 64, 64))
    return last_launch()


def last_launch():
    launch = hostonly.launches()[-1]
    return launch.block[0], launch.grid[0]


class Bench:
    """Takes the place of ``do_bench``: runs the launch and answers by its threads and programs."""

    def __init__(self):
        self.measured = []

    def __call__(self, call, quantiles):
        call()
        self.measured.append(last_launch())
        return [CANDIDATES[self.measured[-1]][1]] * len(quantiles)


@pytest.fixture
def candidates(monkeypatch):
    """Put CANDIDATES into the lists of both kernels, the wrong ones first."""
    configs = tiles.tile_configs(choice for choice, _ in CANDIDATES.values())
    for kernel in (_chunk_scan_fwd_kernel, _bmm_chunk_fwd_kernel):
        monkeypatch.setattr(kernel, "configs", configs)


@pytest.fixture
def bench(candidates, monkeypatch):
    """Let host-only mode measure the candidates by a table; yields what was measured."""
    from launchkit.dispatch import triton_seam

    bench = Bench()
    monkeypatch.setattr(triton_seam, "executes", lambda: True)
    for kernel in (_chunk_scan_fwd_kernel, _bmm_chunk_fwd_kernel):
        monkeypatch.setitem(vars(kernel), "do_bench", bench)
    return bench


def test_the_first_config_of_each_list_is_right_everywhere():
    for configs in (ALL_SCAN, ALL_BMM):
        assert not tiles.keeps_operand_in_flight(configs[0])


def test_the_lists_stay_rich_where_they_are_pruned():
    assert (len(ALL_BMM), len(ALL_SCAN)) == (9, 23)
    assert len({str(config) for config in ALL_SCAN}) == 23
    with hostonly.activate(arch=90):
        assert len(tiles.drop_miscompiled(ALL_SCAN, {})) == 12


@pytest.mark.parametrize(
    ("rows", "warps", "stages", "wrong"),
    [
        (64, 4, 2, True),
        (64, 8, 2, True),
        (128, 4, 5, True),
        (192, 12, 2, True),
        (64, 4, 1, False),
        (64, 2, 3, False),
        (32, 4, 3, False),
        (16, 8, 2, False),
        (96, 4, 2, False),
    ],
)
def test_whole_warp_groups_rows_and_several_stages_make_a_config_wrong(rows, warps, stages, wrong):
    (config,) = tiles.tile_configs([((rows, 64, 32), warps, stages)])
    assert tiles.keeps_operand_in_flight(config) is wrong
    with hostonly.activate(arch=90):
        assert (tiles.drop_miscompiled([config], {}) == []) is wrong
    with hostonly.activate(arch=100):
        assert tiles.drop_miscompiled([config], {}) == [config]


def test_one_process_measures_on_each_gpu_what_is_right_there(bench, memory_store):
    for arch in (90, 100, 80):
        with hostonly.activate(arch=arch):
            assert scan_once() == expected_on(arch)[0]
        assert bench.measured == expected_on(arch)
        bench.measured.clear()
    with hostonly.activate(arch=90):
        assert scan_once() == expected_on(90)[0]
    assert bench.measured == []
    assert sorted(len(record.configs) for record in memory_store.records()) == [3, 5, 5]


def test_without_measuring_the_first_right_config_is_launched(candidates):
    for arch in (90, 100, 90, 80):
        with hostonly.activate(arch=arch):
            assert scan_once() == expected_on(arch)[0]


def test_two_gpus_of_one_process_have_lists_of_their_own(bench, monkeypatch):
    arch_of = {0: 100, 1: 90}
    monkeypatch.setattr(tiles, "live_arch", lambda: arch_of[hostonly.current_device()])
    with hostonly.activate(devices=2):
        for device in (0, 1, 0, 1):
            hostonly.set_device(device)
            assert scan_once() == expected_on(arch_of[device])[0]


def test_a_stored_config_that_is_wrong_on_this_gpu_is_never_taken(bench, monkeypatch, memory_store):
    with monkeypatch.context() as patch:
        patch.setattr(tiles, "live_arch", lambda: None)
        with hostonly.activate(arch=90):
            assert scan_once() == EVERY[0]
    (record,) = memory_store.records()
    assert record.chosen == record.configs[0].config
    assert len(record.configs) == len(EVERY)
    bench.measured.clear()
    with hostonly.activate(arch=90):
        assert scan_once() == RIGHT_ON_90[0]
        assert scan_once() == RIGHT_ON_90[0]
    assert bench.measured == []
    assert [record.chosen for record in memory_store.records()] == [record.chosen]


def test_a_stored_config_that_is_right_on_this_gpu_is_taken_unmeasured(bench):
    with hostonly.activate(arch=100):
        scan_once()
    bench.measured.clear()
    with hostonly.activate(arch=100):
        assert scan_once() == EVERY[0]
    assert bench.measured == []


def test_a_list_of_wrong_configs_alone_is_refused_on_that_gpu(candidates, monkeypatch):
    wrong = _chunk_scan_fwd_kernel.configs[:2]
    monkeypatch.setattr(_chunk_scan_fwd_kernel, "configs", wrong)
    with hostonly.activate(arch=90), pytest.raises(NO_CONFIG_LEFT, match="after pruning"):
        scan_once()


@pytest.mark.parametrize(
    ("left", "right", "cast"),
    [
        (torch.bfloat16, torch.bfloat16, False),
        (torch.float32, torch.float32, False),
        (torch.bfloat16, torch.float16, False),
        (torch.float16, torch.float32, False),
        (torch.float16, torch.bfloat16, True),
        (torch.float32, torch.float16, True),
    ],
    ids=str,
)
def test_products_drop_configs_only_where_the_left_operand_is_cast(candidates, left, right, cast):
    with hostonly.activate(arch=90):
        assert bmm_once(left, right) == (RIGHT_ON_90[0] if cast else EVERY[0])
    with hostonly.activate(arch=100):
        assert bmm_once(left, right) == EVERY[0]


# -- what the compiler made of them


@pytest.fixture
def compiled(monkeypatch):
    """Yield a function that launches with one config for sm_90 and returns Triton's GPU code."""
    kept = []
    for module in (bmm, chunk_scan):
        launch = module.launch_autotuned
        monkeypatch.setattr(
            module, "launch_autotuned", lambda *a, _f=launch, **k: kept.append(_f(*a, **k))
        )

    def code(kernel, config, call):
        with monkeypatch.context() as patch:
            pin(patch, kernel, config)
            call()
        return kept[-1].asm["ttgir"]

    with hostonly.activate(arch=90):
        yield code


def operand_in_flight(code):
    """Whether a wgmma reads its left operand from registers and is not waited for at once."""
    from_registers = re.search(r"warp_group_dot .*: tensor<", code)
    waiting = re.search(r"warp_group_dot_wait .*pendings = [1-9]", code)
    return from_registers is not None and waiting is not None


def warp_group_configs(configs):
    return [config for config in configs if config.num_warps % 4 == 0]


def test_no_config_that_is_kept_leaves_a_register_operand_in_flight(compiled):
    for config in warp_group_configs(tiles.drop_miscompiled(ALL_SCAN, {})):
        code = compiled(_chunk_scan_fwd_kernel, config, scan_once)
        assert not operand_in_flight(code), config
    for dtype in (torch.bfloat16, torch.float32):
        for config in warp_group_configs(ALL_BMM):
            products = functools.partial(bmm_once, dtype, dtype, 128)
            code = compiled(_bmm_chunk_fwd_kernel, config, products)
            assert "warp_group_dot " in code
            assert not operand_in_flight(code), config


def test_configs_that_are_dropped_leave_one_in_flight(compiled):
    (config,) = tiles.tile_configs([((64, 64, 32), 4, 3)])
    assert operand_in_flight(compiled(_chunk_scan_fwd_kernel, config, scan_once))
    products = functools.partial(bmm_once, torch.float32, torch.bfloat16, 128)
    assert operand_in_flight(compiled(_bmm_chunk_fwd_kernel, config, products))
