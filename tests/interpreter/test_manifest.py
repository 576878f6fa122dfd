"""Interpreted launches compile nothing, so no manifest has them."""

from __future__ import annotations

import manifest_kernels
import torch

import launchkit


def test_interpreted_launches_are_not_recorded(tmp_path):
    path = tmp_path / "manifest.json"
    x, y = torch.arange(64.0), torch.full((64,), torch.nan)
    with launchkit.record_manifest(path) as recording:
        launchkit.launch(manifest_kernels.plain, (4,), x, y, 64, 1, 0.5, BLOCK=16)
        assert (recording.entries, recording.unreplayable) == (0, 0)
    assert torch.equal(y, x * 0.5)
    assert not path.exists()
