"""launchkit configs explain, and launchkit.explain of a live launch."""

from __future__ import annotations

import json

import pytest
import sample_kernels
import torch
import triton
from benching import Bench, grid_of_block, kernel_with, launched_block
from hinting import TIMES, elsewhere, tuned_record
from lookups import H100, H200, KERNEL, key, record
from stored import store_of
from typer.testing import CliRunner

import launchkit
from launchkit import hostonly
from launchkit.dispatch.stores import use_store
from launchkit.errors import NotAutotunedError, UnfingerprintableError
from launchkit.store import DirectoryStore
from launchkit.tools.configs import app


def run(*arguments):
    return CliRunner(env={"COLUMNS": "400"}).invoke(app, ["explain", *map(str, arguments)])


@pytest.fixture
def place(tmp_path):
    store = DirectoryStore(tmp_path / "store")
    for each in (record(n=64), record(n=128), record(made=key("a", m=1.5), device=H100)):
        store.put(each)
    return store.path


def explained(place, *arguments, kernel=KERNEL.name):
    result = run(kernel, "--store", place, "--triton", "3.6.0", "--json", *arguments)
    return result.exit_code, json.loads(result.stdout)


def test_record_that_differs_in_nothing_ends_with_0(place):
    code, found = explained(
        place, "--key", "n=64", "--device", H200.name, "--dtype", "x_ptr=float16"
    )
    assert code == 0
    assert found["found"]
    assert found["nearest"][0]["differences"] == []


def test_difference_ends_with_1_and_is_named(place):
    code, found = explained(place, "--key", "n=100", "--limit", 1)
    assert (code, found["records"], len(found["nearest"])) == (1, 3, 1)
    assert found["nearest"][0]["differences"] == [
        {"field": "key n", "stored": "128 (int)", "wanted": "100 (int)", "hint": None}
    ]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--device", "NVIDIA A100"), "device.name"),
        (("--arch", "sm_80"), "device.arch"),
        (("--digest", "0" * 64), "kernel.digest"),
        (("--triton", "3.9.0"), "toolchain.triton"),
        (("--dtype", "x_ptr=bfloat16"), "dtype x_ptr"),
        (("--dtype", "n=tl.int32"), "dtype n"),
        (("--key", "missing=1"), "key missing"),
    ],
)
def test_each_field_can_be_asked_for(place, arguments, field):
    code, found = explained(place, "--key", "n=64", *arguments)
    assert code == 1
    assert [each["field"] for each in found["nearest"][0]["differences"]] == [field]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "'a'"), ("'a'", "'a'"), ("64.0", "64.0 (float)"), ("True", "True (bool)"),
     ("None", "None (none)"), ("(1, 'b')", '[["int","1"],["str","b"]] (tuple)'), ("a=b", "'a=b'")],
)  # fmt: skip
def test_key_is_typed_as_python_writes_it(place, text, expected):
    assert explained(place, "--key", f"n={text}")[1]["wanted"]["key n"] == expected


@pytest.mark.parametrize(
    "bad", [("--key", "n"), ("--key", "=1"), ("--key", "n=[1]"), ("--dtype", "x"), ("--limit", 0)]
)
def test_bad_use_ends_with_2(place, bad):
    result = run(KERNEL.name, "--store", place, *bad)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_part_of_a_name_is_enough_where_one_kernel_has_it(place):
    assert explained(place, "--key", "n=64", kernel="kern")[1]["kernel"] == KERNEL.name
    code, found = explained(place, kernel="nothing_like_it")
    assert (code, found["records"], found["nearest"]) == (1, 0, [])


def test_text_for_people_has_no_control_characters(place, tmp_path):
    DirectoryStore(place).put(record(n="\x1b[31m red"))
    result = run(KERNEL.name, "--store", place, "--key", "n='\x1b[2J'", "--limit", 9)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert "nearest of 4 stored" in result.stdout


# -- the library


class TestLiveLaunch:
    @pytest.fixture(autouse=True)
    def measuring(self, measuring):
        """Launches tune and store."""

    def explained(self, kernel, n=64):
        x = torch.empty(64)
        return launchkit.explain(kernel, grid_of_block, x, x, n, 1)

    def test_stored_launch_is_found_and_nothing_is_launched(self):
        kernel = kernel_with(Bench(TIMES))
        launched_block(kernel)
        hostonly.clear()
        assert self.explained(kernel).found
        assert not self.explained(kernel, 65).found
        assert hostonly.launches() == []

    def test_config_without_a_result_is_a_difference(self):
        with use_store(store_of(tuned_record())):
            found = self.explained(kernel_with(Bench({}), blocks=(16, 32, 64, 128)))
        assert [each.field for each in found.nearest[0].differences] == [
            "config BLOCK=128 num_ctas=1 num_stages=3 num_warps=4"
        ]

    def test_record_of_another_device_is_named(self):
        with use_store(store_of(elsewhere(tuned_record()))):
            text = self.explained(kernel_with(Bench({}))).text
        assert "device.name: stored NVIDIA H100 PCIe" in text

    def test_kernel_with_heuristics_above_is_explained(self):
        kernel = triton.heuristics({"stride": lambda args: 1})(kernel_with(Bench(TIMES)))
        x = torch.empty(64)
        launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64)
        assert launchkit.explain(kernel, grid_of_block, x, x, 64).found

    def test_what_has_no_configs_or_no_identity_is_refused(self):
        x = torch.empty(64)
        with pytest.raises(NotAutotunedError):
            launchkit.explain(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
        with pytest.raises(UnfingerprintableError):
            self.explained(kernel_with(Bench({})), n=[1])
