"""A manifest of the scan: its launches are warmed, and tuned on chunks that hold tokens."""

from __future__ import annotations

import pytest
import torch
from ssd_cases import make_problem, pin_first_configs, scan_into_cache

import launchkit
from launchkit import hostonly
from launchkit.dispatch.manifest.document import read_manifest
from launchkit.dispatch.manifest.replaying import replay
from launchkit.kernels.ssd import tuning_arguments

LENGTHS = (37, 64, 11)


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    pin_first_configs(monkeypatch)
    path = tmp_path / "manifest.json"
    with hostonly.activate(devices=2), launchkit.record_manifest(path):
        scan_into_cache(make_problem(LENGTHS))
    return path


def test_prefill_after_warm_compiles_nothing(recorded):
    with hostonly.activate(devices=2):
        report = launchkit.warm(recorded)
        assert report.ready, report
        assert len(report.entries) == 5
        with launchkit.watch_compiles(log=False) as seen:
            scan_into_cache(make_problem(LENGTHS))
        assert seen.events == []


def test_index_tensors_are_filled_for_a_batch_of_full_chunks(recorded):
    seen = {}

    def fill(kernel, arguments):
        tuning_arguments.fill(kernel, arguments)
        seen.update(arguments)

    with hostonly.activate(devices=2):
        for entry in read_manifest(recorded).entries:
            replay(entry, launched=True, make=fill)
    bounds = seen["cu_chunk_seqlens_ptr"].tolist()
    chunk_size = seen["chunk_size"]
    tokens = sum(LENGTHS)
    assert bounds == [min(i * chunk_size, tokens) for i in range(len(bounds))]
    last = seen["last_chunk_indices_ptr"].tolist()
    assert len(last) == len(LENGTHS)
    assert last == sorted(set(last))
    assert last[-1] == len(bounds) - 2
    slots = seen["final_state_indices_ptr"].tolist()
    assert slots == sorted(set(slots))
    assert 0 <= min(slots) <= max(slots) < seen["final_states_ptr"].shape[0]
    assert all(isinstance(value, torch.Tensor) for value in (seen["x_ptr"], seen["dt_ptr"]))
