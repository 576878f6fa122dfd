"""annotate around and inside the capture of a CUDA graph, while launches are recorded."""

from __future__ import annotations

import pytest
import torch

from launchkit.profiling import annotate, profile_launches

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_ranges_may_be_entered_while_a_graph_is_captured():
    x = torch.zeros(7, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with profile_launches() as profile, annotate("around"):
        with torch.cuda.graph(graph), annotate("inside", layer=1):
            x += 1
        graph.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [1.0] * 7
    calls = {row.path: row.calls for row in profile.ranges}
    assert calls == {("around",): 1, ("around", "inside"): 1}
