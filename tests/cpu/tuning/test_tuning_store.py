"""What a store answers is a hint: it decides for live configs only, and never fails a launch."""

from __future__ import annotations

import logging
from dataclasses import replace

import odd_kernels
import pytest
import torch
import triton
from benching import Bench, kernel_with, launched_block

import launchkit
from launchkit import hostonly, settings
from launchkit.configs import identify
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.stores import use_store
from launchkit.errors import StoreError
from launchkit.store import DirectoryStore, MemoryStore

pytestmark = pytest.mark.usefixtures("measuring")


# -- the stored record and the live config list


def retuned(blocks):
    """Which configs a kernel with ``blocks`` measures after BLOCKS were stored, and what it takes."""
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    bench = Bench({128: 1.5, 256: 0.5, 16: 0.0, 32: 0.0, 64: 0.0})
    chosen = launched_block(kernel_with(bench, blocks=blocks))
    return bench.measured, chosen


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ((16, 32, 64), ([], 32)),
        ((64, 32, 16), ([], 32)),
        ((16, 64), ([], 64)),
        ((16, 32, 64, 128), ([128], 32)),
        ((256, 64, 16), ([256], 256)),
        ((128, 256), ([128, 256], 256)),
    ],
    ids=str,
)
def test_changed_list_tunes_only_what_is_new(blocks, expected):
    assert retuned(blocks) == expected


def test_record_of_a_longer_list_keeps_every_timing(memory_store):
    retuned((256, 64, 16))
    (record,) = memory_store.records()
    assert [tuned.median_us for tuned in record.configs] == [3000.0, 1000.0, 2000.0, 500.0]


def test_stored_config_that_is_not_in_the_live_list_is_never_launched(memory_store):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    (record,) = memory_store.records()
    foreign = replace(
        record.winner, config=identify({"BLOCK": 4096, "num_warps": 32}), median_us=1.0, p20_us=1.0
    )
    forged = replace(record, configs=(foreign,), chosen=foreign.config)
    use_store(store := MemoryStore())
    store.put(forged)
    bench = Bench({16: 3.0, 32: 2.0, 64: 1.0})
    assert launched_block(kernel_with(bench)) == 64
    assert bench.measured == [16, 32, 64]


def test_record_of_another_toolchain_is_a_miss(monkeypatch):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    other = replace(seam.toolchain(), triton="9.9.9")
    monkeypatch.setattr(seam, "toolchain", lambda: other)
    assert launched_block(kernel_with(Bench({16: 1.0, 32: 3.0, 64: 2.0}))) == 16


@pytest.mark.parametrize(
    "field",
    [
        {"name": "other"},
        {"arch": "sm_80"},
        {"multiprocessors": 7},
        {"shared_bytes": 1},
        {"memory_gib": 40},
    ],
    ids=str,
)
def test_record_of_another_device_is_a_miss(monkeypatch, field):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    other = replace(seam.device_identity(0), **field)
    monkeypatch.setattr(seam, "device_identity", lambda device: other)
    assert launched_block(kernel_with(Bench({16: 1.0, 32: 3.0, 64: 2.0}))) == 16


def test_kernels_with_one_name_and_unlike_source_do_not_share():
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}), name="ours"))
    other = launchkit.autotuned([triton.Config({"SIZE": s}) for s in (16, 32)], ["n"], name="ours",
                                do_bench=Bench({16: 1.0, 32: 2.0}))(odd_kernels.optional)  # fmt: skip
    launchkit.launch_autotuned(other, lambda meta: (meta["SIZE"],), torch.empty(64), 64)
    assert hostonly.launches()[-1].grid == (16, 1, 1)


# -- a store that is broken


class BrokenStore(MemoryStore):
    def __init__(self, *broken):
        super().__init__()
        self.broken = broken

    def get(self, *identity):
        if "get" in self.broken:
            raise OSError("the disk is gone")
        return super().get(*identity)

    def put(self, record):
        if "put" in self.broken:
            raise OSError("the disk is gone")
        return super().put(record)


@pytest.mark.parametrize("broken", [("get",), ("put",), ("get", "put")], ids=str)
def test_store_that_raises_never_fails_a_launch_and_is_reported_once(caplog, broken):
    use_store(BrokenStore(*broken))
    bench = Bench({16: 3.0, 32: 1.0, 64: 2.0})
    kernel = kernel_with(bench)
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        for n in (64, 65, 64, 66):
            assert launched_block(kernel, n) == 32
    assert bench.measured == [16, 32, 64] * 3
    warnings = [record for record in caplog.records if "the disk is gone" in record.getMessage()]
    assert len(warnings) == len(broken)


def test_store_that_answers_nonsense_is_a_miss():
    class Nonsense(MemoryStore):
        def get(self, *identity):
            return "a record"

    use_store(Nonsense())
    assert launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}))) == 32


def test_store_that_answers_with_the_record_of_another_key_is_a_miss(memory_store):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})), n=64)
    (record,) = memory_store.records()

    class Liar(MemoryStore):
        def get(self, *identity):
            return record

    use_store(Liar())
    bench = Bench({16: 1.0, 32: 3.0, 64: 2.0})
    assert launched_block(kernel_with(bench), n=65) == 16
    assert bench.measured == [16, 32, 64]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": 99}', b"[" * 100_000]
)
def test_corrupt_store_directory_never_fails_a_launch(tmp_path, content):
    use_store(DirectoryStore(tmp_path))
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(content)
    use_store(DirectoryStore(tmp_path))
    bench = Bench({16: 1.0, 32: 3.0, 64: 2.0})
    assert launched_block(kernel_with(bench)) == 16
    assert bench.measured == [16, 32, 64]


def test_store_directory_that_is_a_file_is_reported_and_tunes(tmp_path, monkeypatch, caplog):
    (tmp_path / "launchkit").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    use_store(None)
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        assert launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}))) == 32
    assert "not a directory" in caplog.text


def test_place_named_by_the_user_that_is_no_directory_raises(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LAUNCHKIT_STORE", str(tmp_path / "file"))
    settings.reload()
    use_store(None)
    with pytest.raises(StoreError, match="is not a directory"):
        launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
