"""Which stored record answers a launch under which policies."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookups import A100, DTYPES, EDITED, H100, H200, PCIE, key, record, wanted
from stored import store_of

from launchkit.errors import UsageError
from launchkit.keys import KeyValue, LaunchKey
from launchkit.store import (
    DirectoryStore,
    LayeredStore,
    MemoryStore,
    Miss,
    Policies,
    buckets,
    find,
    nearest,
)

ANY = Policies(device="compatible", toolchain="any")


def answer(policies, *records, **want):
    """The record that is found, and what is inexact about it; or why none is."""
    found = find(store_of(*records), wanted(**want), policies)
    return found.reason if isinstance(found, Miss) else (found.record, found.inexact)


def test_exact_record_is_found_as_exact():
    assert answer(Policies(), record()) == (record(), ())


@pytest.mark.parametrize("other", [record(device=H100), record(triton="3.6.1"), record(n=65)])
def test_everything_is_exact_by_default(other):
    assert isinstance(answer(Policies(), other), str)


@pytest.mark.parametrize("device", [H100, PCIE])
def test_compatible_device_answers_where_the_policy_says_so(device):
    assert answer(Policies(device="compatible"), record(device=device)) == (
        record(device=device),
        ("device",),
    )


@pytest.mark.parametrize(
    "policies", [ANY, Policies(device="compatible", shapes={"n": nearest(within=1e9)})], ids=str
)
@pytest.mark.parametrize(
    "other",
    [record(device=A100), record(kernel=EDITED), record(made=key(dtypes=(DTYPES[1],)))],
    ids=["other architecture", "other source", "other dtypes"],
)
def test_no_policy_takes_what_is_for_something_else(policies, other):
    assert isinstance(answer(policies, other), str)


@pytest.mark.parametrize(
    ("policy", "version", "expected"),
    [
        ("exact", "3.6.1", False), ("exact", "3.9.0", False), ("minor", "3.6.1", True),
        ("minor", "3.6.0+git1", True), ("minor", "3.9.0", False), ("minor", "4.6.0", False),
        ("minor", "3.60.0", False), ("any", "3.9.0", True), ("any", "unknown", True),
        ("minor", "unknown", False), ("minor", "trunk", False), ("any", "trunk", True),
    ],
)  # fmt: skip
def test_toolchain_policy_decides_which_versions_answer(policy, version, expected):
    found = answer(Policies(toolchain=policy), record(triton=version))
    assert found == ((record(triton=version), ("toolchain",)) if expected else "toolchain")


def test_unknown_version_that_is_wanted_is_of_no_minor_release():
    found = answer(Policies(toolchain="minor"), record(triton="trunk"), triton="unknown")
    assert found == "toolchain"


def test_miss_keeps_the_stores_reason():
    assert answer(ANY) == "absent"
    assert answer(Policies(toolchain="minor"), record(triton="2.0.0")) == "toolchain"


def test_order_of_preference_whatever_the_order_of_storing():
    shapes = {"n": nearest(within=4)}
    policies = Policies("compatible", "any", shapes)
    ordered = [
        record(),
        record(triton="3.6.1"),
        record(triton="3.9.0"),
        record(device=H100),
        record(device=PCIE),
        record(n=65),
        record(n=128),
    ]
    for best in range(len(ordered)):
        rest = ordered[best:]
        for stored in (rest, rest[::-1]):
            assert answer(policies, *stored)[0] == ordered[best]


def test_inexact_kinds_are_named_together():
    policies = Policies("compatible", "any", {"n": nearest(within=2)})
    assert answer(policies, record(n=100, device=PCIE, triton="3.9.0"))[1] == (
        "device",
        "toolchain",
        "shape",
    )


# -- shapes


@pytest.mark.parametrize("order", list(permutations([16, 8192, 4096])))
def test_nearest_really_is_the_nearest(order):
    policies = Policies(shapes={"n": nearest(within=1000)})
    stored = [record(n=n) for n in order]
    assert answer(policies, *stored, n=8000)[0] == record(n=8192)
    assert answer(policies, *stored, n=17)[0] == record(n=16)
    assert answer(policies, *stored, n=300)[0] == record(n=4096)  # by ratio: 13.7 against 18.8


@pytest.mark.parametrize(
    ("stored", "expected"), [(500, True), (499, False), (2000, True), (2001, False), (1000, True)]
)
def test_nearest_has_a_limit(stored, expected):
    found = answer(Policies(shapes={"n": nearest(within=2)}), record(n=stored), n=1000)
    assert (found != "absent") is expected


@pytest.mark.parametrize(
    ("wanted_n", "stored_n", "expected"),
    [
        (1, 0, True), (2, 1, False), (2, 16, True), (16, 2, True), (16, 17, False),
        (17, 256, True), (257, 256, False), (257, 300, False), (300, 300, True), (-3, 1, True),
    ],
)  # fmt: skip
def test_bucket_ends_at_its_edge(wanted_n, stored_n, expected):
    policies = Policies(shapes={"n": buckets(1, 16, 256)})
    assert (answer(policies, record(n=stored_n), n=wanted_n) != "absent") is expected


def test_nearest_of_a_bucket_answers():
    stored = [record(n=n) for n in (20, 200, 60)]
    assert answer(Policies(shapes={"n": buckets(16, 256)}), *stored, n=50)[0] == record(n=60)


@pytest.mark.parametrize("value", [True, "64", None, 64.0, math.nan, (64,)], ids=repr)
def test_shape_takes_no_value_of_another_type(value):
    policies = Policies(shapes={"n": nearest(within=100)})
    assert answer(policies, record(n=64), n=value) == "absent"
    assert answer(policies, record(n=value), n=64) == "absent"


@pytest.mark.parametrize("value", [True, "64", None, (64,)], ids=repr)
def test_values_that_are_no_numbers_stay_exact_under_a_shape(value):
    policies = Policies(shapes={"n": nearest(within=100)})
    other = {True: False, "64": "65", None: 1, (64,): (65,)}[value]
    assert answer(policies, record(n=value), n=other) == "absent"
    assert answer(policies, record(n=value), n=value) == (record(n=value), ())


@pytest.mark.parametrize(
    ("one", "other"), [(0, 1), (1, 0), (-1, 1), (0.0, 5e-324), (math.inf, 1.0)]
)
def test_zero_and_unlike_signs_have_no_ratio(one, other):
    policies = Policies(shapes={"n": nearest(within=1e300)})
    assert answer(policies, record(n=one), n=other) == "absent"


def test_argument_without_a_shape_stays_exact():
    policies = Policies(shapes={"n": nearest(within=4)})
    near = key(128, m=7)
    assert answer(policies, record(made=near), made=key(64, m=7)) == (record(made=near), ("shape",))
    assert answer(policies, record(made=near), made=key(64, m=8)) == "absent"
    assert answer(policies, record(made=near), made=key(64)) == "absent"


def test_distances_of_several_arguments_add_up():
    policies = Policies(shapes={"n": nearest(within=16), "m": nearest(within=16)})
    both, one = record(made=key(96, m=96)), record(made=key(64, m=128))
    assert answer(policies, both, one, made=key(64, m=64))[0] == one


def test_number_that_a_document_spells_badly_is_no_number():
    odd = LaunchKey((KeyValue("n", "int", "sixty-four"),), DTYPES)
    policies = Policies(shapes={"n": nearest(within=100)})
    assert answer(policies, record(made=odd)) == "absent"


def test_number_too_large_for_a_float_has_a_ratio():
    policies = Policies(shapes={"n": nearest(within=2)})
    assert answer(policies, record(n=10**400), n=10**400 + 1)[1] == ("shape",)


@given(st.lists(st.integers(1, 10**6), min_size=1, unique=True), st.integers(1, 10**6))
def test_nearest_agrees_with_a_plain_search(values, n):
    ratio = {value: max(value, n) / min(value, n) for value in values}
    found = answer(Policies(shapes={"n": nearest(within=3)}), *[record(n=v) for v in values], n=n)
    if min(ratio.values()) > 3:
        assert found == "absent"
    else:
        chosen = int(found[0].key.values[0].value)
        assert ratio[chosen] == pytest.approx(min(ratio.values()), rel=1e-12)


@pytest.mark.parametrize("edges", [(), (1, 1), (2, 1), (math.inf,), (math.nan,), ("1",), (True, 2)])
def test_edges_that_cannot_be_are_refused(edges):
    with pytest.raises(UsageError, match="rising order"):
        buckets(*edges)


@pytest.mark.parametrize("within", [0.5, 0, -2, math.inf, math.nan, "2", None, True])
def test_factor_that_cannot_be_is_refused(within):
    with pytest.raises(UsageError, match="at least 1"):
        nearest(within=within)


@pytest.mark.parametrize("bad", [{"device": "any"}, {"toolchain": "compatible"}, {"device": None}])
def test_policy_that_does_not_exist_is_refused(bad):
    with pytest.raises(UsageError, match="Choose"):
        Policies(**bad)


# -- stores


def test_layer_is_named(tmp_path):
    upper, lower = DirectoryStore(tmp_path / "a"), MemoryStore()
    lower.put(record(device=H100))
    store = LayeredStore([upper, lower])
    assert find(store, wanted(), ANY).layer == lower.describe()
    upper.put(record())
    assert find(store, wanted(), ANY).layer == upper.describe()
    assert find(upper, wanted(), Policies()).layer == upper.describe()


class Odd(MemoryStore):
    """A store that answers a question that nobody asked."""

    def __init__(self, answer):
        super().__init__()
        self._answer = answer

    def get(self, kernel, device, toolchain, key):
        return self._answer


@pytest.mark.parametrize("odd", [None, "text", record(n=65), record(device=H100)], ids=type)
def test_answer_to_another_question_is_a_miss(odd):
    assert isinstance(find(Odd(odd), wanted(), Policies()), Miss)


def test_policies_without_shapes_read_records_of_the_key_alone(monkeypatch):
    store, asked = store_of(record(n=1)), []
    listing = store.records_of
    monkeypatch.setattr(store, "records_of", lambda *what: asked.append(what) or listing(*what))
    for policies in (Policies(), ANY):
        assert isinstance(find(store, wanted(device=H200), policies), Miss)
    assert asked == [(wanted().kernel.name, wanted().key)] * 2


@pytest.mark.parametrize("name", ["nvidia h200", "H200", "NVIDIA_H200"])
def test_other_spelling_of_the_device_is_exact(name):
    spelled = record(device=replace(H200, name=name))
    assert answer(Policies(), spelled) == (spelled, ())
