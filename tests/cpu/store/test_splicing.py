"""Writing into a document leaves what is not concerned as it is, and gives what a whole rewrite gives."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import RECORD, file_of, get, plant, record_for, same_file, set_aside_files

from launchkit.configs import TunedConfig, TunedRecord, identify, merge_records
from launchkit.errors import BadDocumentError
from launchkit.keys import Toolchain
from launchkit.store import DirectoryStore, document, indexed
from launchkit.store.document import ConfigDocument
from launchkit.store.indexed import DocumentIndex
from launchkit.store.splicing import spliced

EXTRA = TunedConfig.measured(identify({"BLOCK": 512}), 1.0, reps=5, method="events")
CHANGED = replace(RECORD, configs=(EXTRA,), chosen=EXTRA.config)


def dumped(*records: TunedRecord) -> bytes:
    return document.dump(ConfigDocument(RECORD.kernel, RECORD.device, records))


def into(data: bytes, *added: TunedRecord) -> bytes | None:
    return spliced(data, DocumentIndex.of(data, source="x"), added, source="x")


def draw(n: int, kind: int) -> TunedRecord:
    """One of a few keys, with one of two toolchains and one of two results."""
    toolchain = Toolchain("3.6.0") if kind & 1 else RECORD.toolchain
    base = CHANGED if kind & 2 else RECORD
    return replace(record_for(n), toolchain=toolchain, configs=base.configs, chosen=base.chosen)


DRAWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=25)


@settings(max_examples=200, deadline=None)
@given(DRAWS, DRAWS.filter(bool))
def test_any_records_merged_give_what_rewriting_the_whole_document_gives(before, added) -> None:
    stored: dict[object, TunedRecord] = {}
    for n, kind in before:
        stored.setdefault(draw(n, kind).identity, draw(n, kind))
    expected = dict(stored)
    for n, kind in added:
        record = draw(n, kind)
        old = expected.get(record.identity)
        expected[record.identity] = record if old is None else merge_records(old, record)
    data = into(dumped(*stored.values()), *(draw(*each) for each in added))
    assert data == (None if expected == stored else dumped(*expected.values()))


def test_a_document_begins_with_its_first_records() -> None:
    records = [RECORD, record_for(1), record_for(2)]
    assert spliced(b"", None, records, source="x") == dumped(*records)


@pytest.mark.parametrize("spelling", ["compact", "shuffled", "ascii", "wide"])
def test_a_document_of_another_spelling_keeps_every_record(spelling) -> None:
    records = [record_for(n) for n in range(8)]
    raw = json.loads(dumped(*records))
    if spelling == "shuffled":
        random.Random(1).shuffle(raw["records"])
    wide = {"separators": (" ,\n\n", " :\t")} if spelling == "wide" else {}
    data = json.dumps(raw, ensure_ascii=spelling == "ascii", **wide).encode()
    merged = document.parse(into(data, RECORD, replace(CHANGED, key=records[3].key)), source="x")
    assert {each.key for each in merged.records} == {each.key for each in [*records, RECORD]}
    assert set(records[:3] + records[4:]) < set(merged.records)


def test_a_record_of_another_key_with_the_same_mark_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(indexed, "_mark", lambda digest: 7)
    records = [record_for(n) for n in range(5)]
    merged = into(dumped(*records), RECORD, replace(CHANGED, key=records[2].key))
    found = document.parse(merged, source="x").records
    assert len(found) == 6
    assert set(records[:2] + records[3:]) < set(found)


def test_a_broken_record_is_nobodys_loss_but_its_own(store) -> None:
    first, second, third = same_file(RECORD, 3)
    store.put_all([first, second])
    raw = json.loads(file_of(store, first).read_bytes())
    broken = document.record_object(second)["key"]
    (place,) = [each for each in raw["records"] if each["key"] == broken]
    place["configs"][0]["method"] = 7
    plant(store, json.dumps(raw).encode(), first)
    later = DirectoryStore(store.path)
    assert get(later, first) == first
    assert later.put(third)
    assert not set_aside_files(store)
    assert [get(later, each) for each in (first, third)] == [first, third]
    assert later.put(second)  # its own place was broken: that file goes aside, with all that it has
    assert get(later, second) == second
    (aside,) = set_aside_files(store)
    assert {len(json.loads(aside.read_bytes())["records"])} == {3}


def test_a_record_that_stands_twice_is_refused() -> None:
    raw = json.loads(dumped(RECORD, record_for(1)))
    data = json.dumps(raw | {"records": raw["records"] + raw["records"]}).encode()
    with pytest.raises(BadDocumentError, match="stands twice"):
        into(data, RECORD)
