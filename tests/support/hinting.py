"""A ``copy`` kernel whose tuned record is moved to another identity before it is launched again."""

from dataclasses import replace

from benching import BLOCKS, Bench, kernel_with, launched_block
from stored import store_of
from triton.runtime.errors import OutOfResources

import launchkit
from launchkit.configs import TunedRecord
from launchkit.dispatch import feasibility
from launchkit.dispatch.stores import use_store
from launchkit.keys import LaunchKey, Toolchain, encode_value
from launchkit.store import MemoryStore

TIMES = {16: 3.0, 32: 1.0, 64: 2.0}


def tuned_record(n=64, times=TIMES, **options) -> TunedRecord:
    """What launchkit stores of a launch, which is not counted: 32 is the fastest, then 64, then 16."""
    with use_store(store := MemoryStore()):
        launched_block(kernel_with(Bench(times), blocks=tuple(times), **options), n)
    (record,) = store.records()
    launchkit.stats(reset=True)
    return record


def elsewhere(record, device="NVIDIA H100 PCIe"):
    """The record as if it came from another GPU of the same architecture and limits."""
    return replace(record, device=replace(record.device, name=device, memory_gib=80))


def other_version(record, triton="0.0.1"):
    """The record as if another Triton had measured it."""
    return replace(record, toolchain=Toolchain(triton))


def another_n(record, n):
    """The record as if it were of another n."""
    values = tuple(encode_value(v.name, n) if v.name == "n" else v for v in record.key.values)
    return replace(record, key=LaunchKey(values, record.key.dtypes))


def relaunched(record_or_store, n=64, blocks=BLOCKS, times=None, policies=None, **options):
    """Launch the kernel over a store; return what was measured and what was launched."""
    is_record = isinstance(record_or_store, TunedRecord)
    store = store_of(record_or_store) if is_record else record_or_store
    bench = Bench(times or dict.fromkeys(blocks, 1.0))
    with use_store(store, **(policies or {})):
        return bench.measured, launched_block(kernel_with(bench, blocks=blocks, **options), n)


def refuse(monkeypatch, *blocks, error=None):
    """Let configs of these blocks not fit: what compiling them raises. Returns those that were tried."""
    tried = []
    load = feasibility._load

    def loaded(compiled):
        block = compiled.src.constants.get((4,), None)
        tried.append(block)
        if block in blocks:
            raise error or OutOfResources(300_000, 232_448, "shared memory")
        load(compiled)

    monkeypatch.setattr(feasibility, "_load", loaded)
    return tried
