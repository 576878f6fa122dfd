"""Small batches for tests of single host functions: plain objects with an engine's attributes."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np

from launchkit.kernels.state_copy.buffers import CpuGpuBuffer
from launchkit.kernels.state_copy.copy_specs import get_conv_copy_spec, get_temporal_copy_spec

FUNCS = (get_conv_copy_spec, get_temporal_copy_spec)
make_buffer = partial(CpuGpuBuffer, device="cpu")


def output(scheduled, drafts=None, finished=(), preempted=None, resumed=()):
    """A scheduler's output for tokens by request."""
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        scheduled_spec_decode_tokens={k: [0] * n for k, n in (drafts or {}).items()},
        finished_req_ids=set(finished),
        preempted_req_ids=preempted,
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set(resumed)),
    )


def request(computed, *blocks, req_id="a"):
    """A request with its block ids by group; the first group is attention's."""
    return SimpleNamespace(
        req_id=req_id, num_computed_tokens=computed, block_ids=[[], *map(list, blocks)]
    )


def batch(accepted):
    """An input batch of requests by name, with the tokens each accepted."""
    return SimpleNamespace(
        req_ids=list(accepted), num_accepted_tokens_cpu=np.array([*accepted.values()], np.int32)
    )
