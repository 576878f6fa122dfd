"""One process of ``launchkit bench warm``: gets ready, makes a prefill, and prints what it took."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton

import launchkit
from launchkit import clock, hostonly, jsonio
from launchkit.benchmarks.mamba.cases import MambaCase, ScanInputs, build
from launchkit.benchmarks.pinned_configs import LAUNCHKIT_KERNELS, PINNED_CONFIGS
from launchkit.benchmarks.warm.bench import MODEL, SEQUENCES, TOKENS
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen


def main(task: str) -> None:
    """Do one task, JSON as warm_start.py writes it, and print the result as a line of JSON."""
    read = jsonio.loads(task.encode(), source="the task", limit_bytes=10**6)
    assert isinstance(read, dict), "a task is an object"
    with contextlib.ExitStack() as stack:
        if not torch.cuda.is_available():
            stack.enter_context(hostonly.activate(cache_dir=read["cache_dir"]))
        stack.enter_context(launchkit.use_store(read["store"]))
        found = _first_prefill(read)
    print(jsonio.dumps_compact(found).decode())  # noqa: T201 - the parent reads it


def _first_prefill(task: dict[str, Any]) -> dict[str, Any]:
    counts = _two_configs_each()
    case = MambaCase(MODEL, SEQUENCES, TOKENS, initial_states=False)
    inputs = build(case, "cuda" if torch.cuda.is_available() else "cpu")
    _wait()
    found: dict[str, Any] = {"warm_s": None, "warmed": None}
    if task["warms"]:
        with _compilations() as compiled:
            found["warm_s"] = _seconds(lambda: found.update(warmed=_warm(task["manifest"])))
        found["compiled_in_warm"] = len(compiled)
    recording = launchkit.record_manifest(task["manifest"]) if task["records"] else None
    with launchkit.watch_compiles(log=False) as seen, _compilations() as compiled:
        found["first_call_s"] = _seconds(lambda: _prefill(inputs))
    started_s = task["started_us"] / 1e6
    found["to_first_call_s"] = round(clock.utc_now().timestamp() - started_s, 3)
    if recording is not None:
        recording.stop()
    found["second_call_s"] = _seconds(lambda: _prefill(inputs))
    tunings = sum(event.kind == "tuning" for event in seen.events)
    return {
        "compiled_in_warm": 0,
        **found,
        "benchmarks": counts["benchmarks"],
        "tunings": tunings,
        "compilations": len(seen.events) - tunings,
        "compiled": len(compiled),
    }


def _warm(manifest: str) -> dict[str, int]:
    report = launchkit.warm(manifest)
    if not report.ready:
        raise RuntimeError(str(report))
    return report.counts


def _two_configs_each() -> dict[str, int]:
    """Leave each kernel two configs; return where their benchmarks are counted."""
    counts = {"benchmarks": 0}

    def counted(bench: Callable[..., Any]) -> Callable[..., Any]:
        def do_bench(*args: Any, **kwargs: Any) -> Any:
            counts["benchmarks"] += 1
            return bench(*args, **kwargs)

        return do_bench

    for name, kernel in LAUNCHKIT_KERNELS._asdict().items():
        kernel.configs = list(PINNED_CONFIGS[name])
        kernel.do_bench = counted(kernel.do_bench)
    return counts


def _prefill(inputs: ScanInputs) -> None:
    batch = inputs.metadata
    mamba_chunk_scan_combined_varlen(
        inputs.x, inputs.dt, inputs.A, inputs.B, inputs.C, inputs.chunk_size,
        batch.cu_seqlens, batch.cu_chunk_seqlens, batch.last_chunk_indices, batch.seq_idx,
        inputs.out, inputs.D, None, inputs.dt_bias, None, True,
        state_dtype=inputs.state_dtype, final_states_out=inputs.ssm_state,
        final_state_indices=inputs.state_indices,
    )  # fmt: skip
    _wait()


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _seconds(call: Callable[[], Any]) -> float:
    start_ns = clock.now_ns()
    call()
    return round((clock.now_ns() - start_ns) / 1e9, 6)


@contextlib.contextmanager
def _compilations() -> Iterator[list[str]]:
    """Yield a list of what Triton compiles, not of what it reads from its disk cache."""
    compiled: list[str] = []
    knobs = triton.knobs.compilation
    before = knobs.listener

    def listener(**given: Any) -> None:
        if not given["cache_hit"]:
            compiled.append(given["src"].name)
        if before is not None:
            before(**given)

    knobs.listener = listener
    try:
        yield compiled
    finally:
        knobs.listener = before
