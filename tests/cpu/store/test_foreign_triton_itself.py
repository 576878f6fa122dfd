"""A file that Triton's own Autotuner writes is read, stored, and answers launchkit's launch."""

from __future__ import annotations

import pathlib

import pytest
import sample_kernels
from benching import BLOCKS, Bench, grid_of_block, kernel_with, launched_block

from launchkit import hostonly
from launchkit.dispatch.stores import use_store
from launchkit.keys import KernelId
from launchkit.store import MemoryStore
from launchkit.store.foreign import ForeignContext, read

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

pytestmark = pytest.mark.usefixtures("measuring")


def written_by_triton(monkeypatch, tmp_path, times):
    """The file in which Triton keeps the times of a tuning of ``copy``."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    configs = sample_kernels.configs(*BLOCKS)
    tuned = triton.autotune(configs, ["n"], do_bench=Bench(times), cache_results=True)
    x = torch.empty(64)
    tuned(sample_kernels.copy)[grid_of_block](x, x, 64, 1)
    (path,) = pathlib.Path(tmp_path).rglob("*.autotune.json")
    return path


def context_of(record):
    """What must be told of the file, from a record that launchkit's own tuning made."""
    parameters = tuple(name for name, _ in record.key.dtypes)
    return ForeignContext(
        kernel=KernelId("sample_kernels.copy", record.kernel.digest),
        device=record.device,
        toolchain=record.toolchain,
        parameters=parameters,
        tensors=tuple(name for name, dtype in record.key.dtypes if dtype is not None),
        keys=("n",),
    )


def test_file_of_triton_answers_a_launch_without_tuning(monkeypatch, tmp_path, memory_store):
    launched_block(kernel_with(Bench({16: 1.0, 32: 2.0, 64: 3.0})))
    (own,) = memory_store.records()
    path = written_by_triton(monkeypatch, tmp_path, {16: 3.0, 32: 1.0, 64: 2.0})
    result = read("triton", path, context_of(own))
    (record,) = result.records
    assert (record.key, record.device) == (own.key, own.device)
    assert {t.config: t.median_us for t in record.configs} == dict(
        zip((t.config for t in own.configs), (3000.0, 1000.0, 2000.0), strict=True)
    )
    store = MemoryStore()
    store.put(record)
    use_store(store)
    bench = Bench({})
    assert record.kernel == own.kernel
    assert launched_block(kernel_with(bench)) == 32
    assert bench.measured == []
    assert hostonly.is_active()
