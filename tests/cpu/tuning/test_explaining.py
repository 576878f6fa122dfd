"""Why a launch found no stored config: the nearest records, and the fields that differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lookups import A100, DTYPES, EDITED, H100, H200, KERNEL, key, record, wanted
from stored import store_of

from launchkit import jsonio
from launchkit.keys import KernelId, encode_value
from launchkit.store import MemoryStore, explain
from launchkit.store.explaining import explain_fields


def differing(stored, configs=(), **want):
    """The fields in which the nearest record differs: name → (stored, wanted)."""
    found = explain(store_of(stored), wanted(**want), configs=configs).nearest[0].differences
    return {each.field: (each.stored, each.wanted) for each in found}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (record(n=128), {"key n": ("128 (int)", "64 (int)")}),
        (record(n="64"), {"key n": ("'64'", "64 (int)")}),
        (record(n=True), {"key n": ("True (bool)", "64 (int)")}),
        (record(made=key(64, m=2)), {"key m": ("2 (int)", "nothing")}),
        (record(triton="3.9.0"), {"toolchain.triton": ("3.9.0", "3.6.0")}),
        (record(kernel=EDITED), {"kernel.digest": ("cd" * 6, "ab" * 6)}),
        (
            record(device=H100),
            {"device.name": (H100.name, H200.name), "device.memory_gib": ("80", "140")},
        ),
        (
            record(made=key(64, dtypes=(("x_ptr", "torch.float32"), DTYPES[1]))),
            {"dtype x_ptr": ("torch.float32", "torch.float16")},
        ),
        (
            record(made=key(64, dtypes=(("x_ptr", None), ("y_ptr", None), DTYPES[1]))),
            {"dtype x_ptr": ("none", "torch.float16"), "dtype y_ptr": ("none", "nothing")},
        ),
        (record(), {}),
    ],
    ids=str,
)
def test_every_field_that_differs_is_named_with_both_values(stored, expected):
    assert differing(stored) == expected


def test_other_architecture_names_each_field_of_the_device():
    assert {"device.arch", "device.multiprocessors", "device.shared_bytes"} <= set(
        differing(record(device=A100))
    )


def test_spelling_of_a_product_is_no_difference():
    assert differing(record(device=replace(H200, name="nvidia-h200"))) == {}


def test_config_without_a_result_is_named():
    known = record().configs[0].config
    other = (encode_value("BLOCK", 4096),)
    assert differing(record(), configs=[known, other]) == {
        "config BLOCK=4096": ("no result", "one")
    }
    assert "config list" in differing(record(), configs=[other])


def test_pinned_config_differs_only_where_it_is_no_longer_live():
    pin = replace(record(), pinned=True)
    live = [(encode_value("BLOCK", 4096),), pin.chosen]
    assert differing(pin, configs=live) == {}
    assert differing(pin, configs=live[:1]) == {
        "config list": (f"pinned {pin.winner.text}", "one of the live configs")
    }


def test_hints_say_what_a_difference_means():
    spelled = replace(H200, name="NVIDIA GeForce H200")
    text = explain(store_of(record(device=spelled)), wanted()).text
    assert "another spelling" in text
    assert "another spelling" not in explain(store_of(record(device=H100)), wanted()).text
    assert "source" in explain(store_of(record(kernel=EDITED)), wanted()).text
    unknown = explain(store_of(record(triton="unknown")), wanted(triton="unknown"))
    assert "equals no other" in unknown.text


def test_nearest_records_come_first_and_no_more_than_asked_for():
    stored = [record(n=n) for n in (4096, 1, 70, 60, 2**40)] + [record(kernel=EDITED, n=64)]
    found = explain(store_of(*stored), wanted(), limit=3)
    assert found.records == 6
    assert [near.record.key.text for near in found.nearest][1:] == [
        key(60).text,
        key(70).text,
    ]
    assert found.nearest[0].record.kernel == EDITED


def test_one_field_is_nearer_than_two():
    one, two = record(n=4096), record(n=65, triton="3.9.0")
    assert explain(store_of(two, one), wanted()).nearest[0].record == one


def test_record_that_is_there_is_said_to_be():
    found = explain(store_of(record(), record(n=3)), wanted())
    assert found.found
    assert "differs in nothing" in found.text
    assert str(found) == found.text
    assert not explain(store_of(record(n=3)), wanted()).found


def test_explanation_has_the_identity_that_a_lookup_takes():
    store = store_of(record(), record(n=3))
    assert store.get(*explain(store, wanted()).identity) == record()
    assert explain_fields(store, KERNEL.name, {"key n": "3 (int)"}).identity is None


def test_kernel_of_another_module_is_named_where_there_is_none_of_this_name():
    moved = KernelId("other.package.kernel", KERNEL.digest)
    found = explain(store_of(record(kernel=moved)), wanted())
    assert found.similar == ("other.package.kernel",)
    assert "other.package.kernel" in found.text


def test_empty_store_says_that_nothing_is_stored_and_where():
    text = explain(MemoryStore(), wanted()).text
    assert "nothing is stored" in text
    assert "memory of this process" in text
    assert KERNEL.name in text


@pytest.mark.parametrize(
    "n", [10**400, -(10**400), "1e999", "é\n", float("nan"), float("inf")], ids=repr
)
def test_odd_values_are_explained(n):
    found = explain(store_of(record(n=n), record(n=1)), wanted())
    assert jsonio.dumps(found.as_dict())
    assert found.text
