"""Valid files for ``launchkit bench fuzz`` to change: records of every kind, and foreign files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from launchkit import jsonio
from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store.foreign import ForeignContext

KERNEL = KernelId("model.layers.scale_rows", "0123456789abcdef" * 4)
DEVICE = DeviceId("cuda", "NVIDIA H100 80GB HBM3", "sm_90", 132, 232448, 80)
PARAMETERS = ("x_ptr", "y_ptr", "n", "BLOCK")
_DTYPES = ("torch.float16", "torch.float32")
_OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}


@functools.cache
def records() -> tuple[TunedRecord, ...]:
    """Return records of one kernel and device, with every type of value and kind of result."""
    values = (1024, True, 1.5, "1024", "a, b\\'\n", None, float("nan"), 2**70, (1, ("x", None)))
    return tuple(_record(value, at) for at, value in enumerate(values))


def _record(value: object, at: int) -> TunedRecord:
    dtypes = tuple(zip(PARAMETERS, (*_DTYPES, None, None), strict=True))
    configs = [
        TunedConfig.measured(_config(64), (2.5, 2.25, 3.0), reps=100, method="eager"),
        TunedConfig.measured(_config(128), 2.0, reps=None, method="graph+cold"),
        TunedConfig.failed(_config(256), "OutOfResources: shared memory", method="eager"),
        TunedConfig.imported(_config(512), method="imported:vllm"),
    ]
    chosen = configs[(0, 1, 3)[at % 3]]
    return TunedRecord(
        kernel=KERNEL,
        device=DEVICE,
        toolchain=Toolchain("3.6.0" if at % 2 else "3.9.0+git0"),
        key=LaunchKey((encode_value("n", value), encode_value("m", at)), dtypes),
        configs=tuple(configs),
        chosen=chosen.config,
        tuned_at="2026-01-31T23:59:59Z" if at % 2 else None,
    )


def _config(block: int) -> tuple[Any, ...]:
    return identify({"BLOCK": block, "mode": "fast", **_OPTIONS})


CONTEXT = ForeignContext(
    kernel=KERNEL,
    device=DEVICE,
    toolchain=Toolchain("3.6.0"),
    parameters=PARAMETERS,
    tensors=("x_ptr", "y_ptr"),
    dtypes={"x_ptr": "torch.float16"},
    keys=("n",),
    key_types={"n": "int"},
    config_types={"BLOCK": "int"},
    key_values={},
)
"""What is told of the foreign files; the readers of keys that a format lacks get more."""


def triton() -> Any:
    """Return what Triton's own autotune file holds."""
    fields = {"maxnreg": None, "pre_hook": None, "ir_override": None, **_OPTIONS}
    configs = [{"kwargs": {"BLOCK": block, "mode": "0.5"}, **fields} for block in (64, 128, 256)]
    times = ([0.5, 0.4, 0.6], [0.25, 0.2, 0.3], [float("inf")] * 3)
    return {"key": [1024, *_DTYPES], "configs_timings": [list(p) for p in zip(configs, times)]}  # noqa: B905


def dejavu() -> Any:
    """Return what a triton-dejavu cache.json holds."""
    key, other = (str((n, *_DTYPES)) for n in ("1024", "7"))
    printed = "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    return {
        "signature": "JITFunction(model:scale_rows)",
        "total_bench_time_s": 1.5,
        "evaluated_configs": 3,
        "keys": ["n"],
        "cache": {key: printed, other: printed.replace("128", "64")},
        "timings": {key: [0.25, 0.2, 0.3], other: {"values": [0.5]}},
        "timings_data": {"labels": ["ms"], "cuda_graphs": False},
    }


def fla() -> Any:
    """Return what a config file of flash-linear-attention holds."""
    config = {"kwargs": {"BLOCK": 64}, **_OPTIONS, "maxnreg": None}
    keys = ([1024, *_DTYPES], [7, *_DTYPES])
    entries = {fla_digest(key): {"autotune_key": key, "config": config} for key in keys}
    return {"kernel_name": "scale_rows", "triton_version": "3.6.0", "autotune_entries": entries}


def fla_digest(key: object) -> str:
    """Return the digest of an entry's key."""
    return hashlib.md5(jsonio.dumps_python_compact(key), usedforsecurity=False).hexdigest()


def moe() -> Any:
    """Return what a fused-MoE file of vLLM holds."""
    blocks = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    config = {**blocks, "num_warps": 4, "num_stages": 3}
    return {"triton_version": "3.6.0", "1": config, "64": {**config, "num_warps": 8}}


def inductor() -> Any:
    """Return what a .best_config of PyTorch Inductor holds."""
    own: Mapping[str, Any] = {"configs_hash": "ab", "found_by_coordesc": False}
    return {"BLOCK": 64, "num_warps": 8, "num_stages": 1, "time_taken_ms": 3, **own}
