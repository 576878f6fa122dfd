"""The manifest's document: what was written comes back, and nothing else is read."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchkit import jsonio
from launchkit.dispatch.manifest.document import (
    LIMIT_BYTES,
    Manifest,
    argument_text,
    dump,
    entry_text,
    parse,
    read_manifest,
)
from launchkit.errors import BadDocumentError

DIGEST = "ab" * 32


def tensor(**changes):
    return {
        "kind": "tensor", "dtype": "torch.float16", "shape": [3, 5], "strides": [5, 1],
        "alignment": 16, "device": "gpu", **changes,
    }  # fmt: skip


def value(kind="int", text="7"):
    return {"kind": "value", "type": kind, "value": text}


def entry(kind="0123456789abcdef", digest=DIGEST, **kernel):
    return {
        "kind": kind,
        "kernel": {"module": "a.b", "qualname": "kernel", "layer": 0, "name": "k",
                   "digest": digest, **kernel},
        "args": [tensor(), value(), {"kind": "tuple", "items": [tensor(), value()]}],
        "kwargs": {
            "f": {"kind": "function", "module": "a", "qualname": "f"},
            "d": {"kind": "descriptor", "base": tensor(), "shape": [3, 5], "strides": [5, 1],
                  "block_shape": [1, 8], "padding": "zero"},
        },
        "grid": {"dims": None, "names": ["B"], "by_config": {"0" * 16: [1, 2, 3]}},
    }  # fmt: skip


def document(**changes):
    return {
        "schema": 1, "document": "launchkit manifest", "entries": [entry()],
        "unreplayable": [{"kernel": "k", "reason": "because"}], "dropped": 2, **changes,
    }  # fmt: skip


def read(raw):
    return parse(jsonio.dumps(raw), source="here")


def refused(raw):
    with pytest.raises(BadDocumentError) as caught:
        read(raw)
    return str(caught.value)


def test_what_was_written_comes_back():
    found = read(document())
    assert found == Manifest((entry(),), ({"kernel": "k", "reason": "because"},), 2)
    assert parse(dump(found), source="again") == found


def test_every_truncation_is_refused():
    data = jsonio.dumps(document()).strip()
    for length in range(len(data)):
        with pytest.raises(BadDocumentError):
            parse(data[:length], source="cut")


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 0}, {"schema": "1"}, {"schema": True}, {"document": "something else"},
        {"entries": {}}, {"entries": [{}]}, {"dropped": -1}, {"dropped": 1.0}, {"more": 1},
        {"unreplayable": [{"kernel": "", "reason": "x"}]},
    ],
    ids=str,
)  # fmt: skip
def test_other_documents_are_refused(changes):
    refused(document(**changes))


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        (("kind",), "0123"), (("kind",), "0123456789ABCDEF"), (("kernel", "module"), "a/../b"),
        (("kernel", "module"), ""), (("kernel", "module"), "a..b"), (("kernel", "layer"), -1),
        (("kernel", "qualname"), "f.<locals>.g"), (("kernel", "digest"), "xyz"),
        (("args", 0, "shape"), [-1]), (("args", 0, "shape"), [2**63]), (("args", 0, "alignment"), 3),
        (("args", 0, "shape"), ["3"]), (("args", 0, "device"), "cuda:1"), (("args", 0, "kind"), "x"),
        (("args", 0, "shape"), [1] * 65), (("grid", "dims"), []), (("grid", "dims"), [1, 1, 1, 1]),
        (("grid", "by_config"), {"x": [1]}), (("args", 1, "value"), 7), (("args", 1, "more"), 7),
    ],
    ids=str,
)  # fmt: skip
def test_entries_that_cannot_be_are_refused(path, bad):
    raw = document()
    place = raw["entries"][0]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = bad
    refused(raw)


def test_newer_schema_says_so():
    with pytest.raises(BadDocumentError) as caught:
        read(document(schema=2, later="field"))
    assert caught.value.newer


def test_deep_nesting_is_refused():
    argument = value()
    for _ in range(60):
        argument = {"kind": "tuple", "items": [argument]}
    raw = document(entries=[{**entry(), "args": [argument]}])
    assert "nested" in refused(raw)


def test_file_above_the_limit_is_not_read(tmp_path):
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(LIMIT_BYTES + 1)
    with pytest.raises(BadDocumentError, match="bytes"):
        read_manifest(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_a_bad_document(data):
    with pytest.raises(BadDocumentError):
        parse(data, source="fuzz")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.data())
def test_any_change_of_a_manifest_is_read_or_a_bad_document(data):
    """Whatever stands at one place of it: what is read can be written and read again."""
    raw = copy.deepcopy(document())
    place = raw
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = inner
    try:
        found = parse(jsonio.dumps(raw), source="fuzz")
    except BadDocumentError:
        return
    assert parse(dump(found), source="again") == found


# -- merging


def test_merging_keeps_each_kind_once_and_the_order():
    first, second, third = entry("0" * 16), entry("1" * 16), entry("2" * 16)
    merged = Manifest((first, second)).merged(Manifest((second, third)), limit=10)
    assert merged.entries == (first, second, third)


def test_merging_beyond_the_limit_counts():
    kinds = [entry(f"{i:016x}") for i in range(5)]
    merged = Manifest(tuple(kinds[:3]), dropped=1).merged(Manifest(tuple(kinds[3:])), limit=3)
    assert merged == Manifest(tuple(kinds[:3]), dropped=3)


def test_a_changed_kernel_replaces_its_entries_and_no_others():
    old, other = entry("0" * 16), entry("1" * 16, qualname="other")
    new = entry("2" * 16, digest="cd" * 32)
    assert Manifest((old, other)).merged(Manifest((new,)), limit=9).entries == (other, new)


def test_unreplayable_launches_are_listed_once():
    listed = {"kernel": "k", "reason": "because"}
    merged = Manifest(unreplayable=(listed,)).merged(Manifest(unreplayable=(listed,)), limit=9)
    assert merged.unreplayable == (listed,)


# -- for people


def test_entry_is_readable_in_a_line():
    assert entry_text(entry()) == (
        "k(float16[3, 5], 7, (float16[3, 5], 7), f=f, d=descriptor of float16[3, 5] by [1, 8])"
    )


def test_an_odd_alignment_is_named():
    assert argument_text(tensor(alignment=4)) == "float16[3, 5] at 4 bytes"
