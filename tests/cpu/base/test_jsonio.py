"""jsonio: what it writes is canonical, what it does not understand it refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import sys
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchkit import jsonio
from launchkit.errors import BadDocumentError, UsageError

LIMIT = 2**20


def parse(data: bytes) -> object:
    return jsonio.loads(data, source="here.json", limit_bytes=LIMIT)


@dataclasses.dataclass
class Measured:
    time_us: float


def test_dumps_is_sorted_indented_and_ends_with_a_newline() -> None:
    assert jsonio.dumps({"b": 1, "a": [True]}) == b'{\n  "a": [\n    true\n  ],\n  "b": 1\n}\n'


def test_dumps_compact_does_not_depend_on_insertion_order() -> None:
    one = jsonio.dumps_compact({"b": 1, "a": "é"})
    assert one == jsonio.dumps_compact({"a": "é", "b": 1}) == '{"a":"é","b":1}'.encode()


@pytest.mark.parametrize(
    "obj",
    [
        float("nan"),
        {"a": [float("inf")]},
        [2**64],
        -(2**63) - 1,
        object(),
        {1: 2},
        "\ud800",
        {3},
        Measured(float("nan")),
    ],
)
def test_what_json_cannot_hold_is_refused_not_changed(obj: object) -> None:
    with pytest.raises(UsageError):
        jsonio.dumps(obj)
    with pytest.raises(UsageError):
        jsonio.dumps_compact(obj)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_every_json_value_comes_back_equal(obj: object) -> None:
    assert parse(jsonio.dumps(obj)) == obj
    assert parse(jsonio.dumps_compact(obj)) == obj


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"{", "not valid"),
        (b"[1] 2", "not valid"),
        (b"[NaN]", "not valid"),
        (b"[Infinity]", "not valid"),
        (b"[-Infinity]", "not valid"),
        (b"[1e999]", "not valid"),
        (b'["\\ud800"]', "not valid"),
        (b'["\xff"]', "not valid"),
        (b"\xef\xbb\xbf[]", "not valid"),
        ('{"a": 1}'.encode("utf-16"), "not valid"),
        ('{"a": 1}'.encode("utf-32"), "not valid"),
        (b"[" * 100_000, "not valid"),
        (b"[" * 100_000 + b"]" * 100_000, "not valid"),
        (b'{"a":' * 100_000, "not valid"),
        (b'{"a": 1, "b": {"c": 1, "c": 1}}', "'c' stands twice"),
        (b'{"a": 1, "\\u0061": 2}', "'a' stands twice"),
        (b" " * LIMIT + b"1", "more than"),
    ],
)
def test_bad_json_is_a_bad_document_that_says_why(data: bytes, word: str) -> None:
    with pytest.raises(BadDocumentError, match=word) as caught:
        parse(data)
    assert caught.value.fields["source"] == "here.json"
    assert not caught.value.newer


def test_a_very_long_number_is_no_crash() -> None:
    assert parse(b"1" + b"0" * 300) == 1e300
    with pytest.raises(BadDocumentError):
        parse(b"9" * 5000)


def test_deep_nesting_below_a_deep_caller_is_parsed_or_bad_but_no_crash() -> None:
    def descend(levels: int) -> object:
        return parse(b"[" * 900 + b"]" * 900) if levels == 0 else descend(levels - 1)

    free = sys.getrecursionlimit() - len(inspect.stack())
    for levels in (0, free // 2, free - 100):
        with contextlib.suppress(BadDocumentError):
            assert isinstance(descend(levels), list)


@given(st.binary(max_size=200))
def test_random_bytes_parse_or_are_bad(data: bytes) -> None:
    with contextlib.suppress(BadDocumentError):
        assert jsonio.loads(jsonio.dumps(parse(data)), source="x", limit_bytes=LIMIT) == parse(data)


def test_read_limited_reserves_what_the_file_has_not_what_it_may_have(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    tracemalloc.start()
    try:
        assert jsonio.read_limited(tmp_path / "a", 1 << 30) == b"x"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_read_limited_returns_the_content(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert jsonio.read_limited(tmp_path / "a", 100) == b"x" * 100
    with pytest.raises(BadDocumentError, match="100 bytes, more than 99"):
        jsonio.read_limited(tmp_path / "a", 99)


def test_a_huge_file_is_not_read(tmp_path, monkeypatch) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(2**30)
    opened = []
    monkeypatch.setattr(os, "open", lambda *args, **kwargs: opened.append(args))
    with pytest.raises(BadDocumentError, match="more than"):
        jsonio.read_limited(tmp_path / "huge", LIMIT)
    assert not opened


def test_a_fifo_or_directory_or_device_is_not_read(tmp_path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero"):
        with pytest.raises(BadDocumentError, match=r"not a regular file\. Look at what it is"):
            jsonio.read_limited(path, LIMIT)


def test_an_absent_file_is_an_os_error(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        jsonio.read_limited(tmp_path / "absent", LIMIT)


def test_exact_spelling_keeps_every_digit_and_the_order_of_keys() -> None:
    text = b'{"b":1795968447413515.445,"a":[1,null,true,"\\u0000"]}'
    value, _ = jsonio.tolerant_decoder()(text.decode(), 0)
    assert jsonio.dumps_exact(value) == text


@pytest.mark.parametrize("value", [2**70, Decimal("NaN"), object(), {1: 2}, "\ud800"])
def test_exact_spelling_refuses_what_json_cannot_hold(value) -> None:
    with pytest.raises(UsageError):
        jsonio.dumps_exact(value)
