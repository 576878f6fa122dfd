"""Lock files: one choice per key, whole or refused, the same for every process that reads one."""

from __future__ import annotations

import json
import pathlib
import random
import re
from dataclasses import replace

import pytest
from sharing import config, filled, one, timed, tuned, untimed
from stored import GOLDEN, RECORD, get

from launchkit import jsonio
from launchkit.errors import BadDocumentError, BadLockError, StoreError
from launchkit.keys import Toolchain
from launchkit.store import LayeredStore, Miss, PinnedStore, document, open_store, pins

RECORDS = document.parse(GOLDEN, source="golden").records


@pytest.fixture
def lock(tmp_path) -> pathlib.Path:
    path = tmp_path / "launchkit.lock"
    assert pins.write(path, pins.select([*RECORDS, one(1, 2, 3.0)]))
    return path


def test_a_pin_is_the_chosen_config_alone_and_says_that_it_is_pinned(lock) -> None:
    found = get(open_store(str(lock)), RECORD)
    assert found.pinned
    assert found.configs == (RECORD.winner,)
    assert found.identity == RECORD.identity
    assert found.chosen == RECORD.chosen


@pytest.mark.parametrize("form", ["{}", "pins:{}", "pins://{}", "file://{}"])
def test_every_place_of_a_lock_file_opens_it(lock, form) -> None:
    store = open_store(form.format(lock))
    assert isinstance(store, PinnedStore)
    assert store.read_only
    assert len(list(store.records())) == 3
    assert str(lock) in store.describe()
    assert store.examine().records == 3


def test_a_lock_file_of_another_name_needs_the_scheme(lock, tmp_path) -> None:
    other = lock.rename(tmp_path / "pins.json")
    assert isinstance(open_store(f"pins:{other}"), PinnedStore)
    with pytest.raises(StoreError, match="not a directory"):
        open_store(str(other))


def test_a_directory_may_be_called_like_a_lock_file(tmp_path) -> None:
    filled(tmp_path / "x.lock", RECORD)
    assert get(open_store(tmp_path / "x.lock"), RECORD) == RECORD


@pytest.mark.parametrize(
    "place", ["pins:", "pins:/no/such.lock", "/no/such.lock", "pins:a\0b", "pins:."]
)
def test_a_lock_file_that_is_not_there_is_an_error_when_it_is_opened(place) -> None:
    with pytest.raises(StoreError):
        open_store(place)


def test_the_newest_toolchain_is_pinned_or_the_one_that_was_asked_for() -> None:
    versions = ["3.9.0", "3.10.1", "3.10.0", "3.2.0"]
    records = [one(1, block, 3.0, triton=triton) for block, triton in enumerate(versions)]
    for order in (records, records[::-1]):
        (pin,) = pins.select(order)
        assert pin.toolchain == Toolchain("3.10.1")
        (pin,) = pins.select(order, "3.2.0")
        assert pin.toolchain == Toolchain("3.2.0")
    assert pins.select(records, "4.0.0") == []


def test_what_is_put_never_takes_a_pins_place(lock) -> None:
    store = PinnedStore(lock)
    before = get(store, one(1, 2, 3.0))
    faster, new = one(1, 4, 1.0), one(7, 4, 1.0)
    assert store.put_all([faster, new]) == [faster, new]
    assert get(store, faster) == before
    assert get(store, new) == new
    assert [each for each in store.records() if not each.pinned] == [new]
    assert get(PinnedStore(lock), new) == Miss("absent")


def test_another_toolchain_is_a_miss_with_its_reason(lock) -> None:
    other = replace(RECORD, toolchain=Toolchain("9.9.9"))
    assert get(PinnedStore(lock), other) == Miss("toolchain")


def test_an_unknown_toolchain_is_neither_pinned_nor_found(tmp_path) -> None:
    unknown = one(1, 1, 5.0, triton="unknown")
    assert pins.select([unknown]) == []
    pins.write(tmp_path / "x.lock", [replace(unknown, pinned=True)])
    assert get(PinnedStore(tmp_path / "x.lock"), unknown) == Miss("toolchain")


def test_layers_below_a_lock_file_are_written(lock, tmp_path) -> None:
    below = filled(tmp_path / "store")
    store = LayeredStore([PinnedStore(lock), below])
    assert store.put(one(1, 4, 1.0))
    assert get(store, one(1, 4, 1.0)).chosen == config(2)
    assert get(below, one(1, 4, 1.0)).chosen == config(4)


def test_a_lock_file_does_not_depend_on_the_order_of_records(lock, tmp_path) -> None:
    shuffled = random.Random(3).sample([*RECORDS, one(1, 2, 3.0)], 4)
    pins.write(tmp_path / "b.lock", pins.select(shuffled))
    assert (tmp_path / "b.lock").read_bytes() == lock.read_bytes()


def test_a_changed_winner_changes_its_own_lines_and_the_digest(lock, tmp_path) -> None:
    changed = pins.select([*RECORDS, one(1, 4, 3.0)])
    pins.write(tmp_path / "b.lock", changed)
    pairs = zip(
        lock.read_text().splitlines(), (tmp_path / "b.lock").read_text().splitlines(), strict=True
    )
    differing = [(old, new) for old, new in pairs if old != new]
    assert len(differing) == 3
    assert {re.sub(r"[^a-z0-9:]", "", old)[:6] for old, _ in differing} == {"value:", "sha256"}


def test_an_unchanged_lock_file_is_not_written(lock) -> None:
    before = lock.stat().st_mtime_ns, lock.stat().st_ino
    assert not pins.write(lock, pins.select([*RECORDS, one(1, 2, 3.0)]))
    assert (lock.stat().st_mtime_ns, lock.stat().st_ino) == before


def test_times_of_other_configs_are_not_in_it() -> None:
    (pin,) = pins.select([tuned(1, timed(1, 5.0), timed(1, 9.0, "graph"), timed(2, 6.0), chosen=1,
                                chosen_method="graph", seconds=3.0)])  # fmt: skip
    assert pin.configs == (timed(1, 9.0, "graph"),)
    assert pin.seconds is None


def test_an_imported_winner_without_a_time_can_be_pinned(tmp_path) -> None:
    pins.write(tmp_path / "x.lock", pins.select([untimed(1, 2)]))
    assert get(PinnedStore(tmp_path / "x.lock"), untimed(1, 2)).chosen == config(2)


@pytest.mark.parametrize(
    "old_new", [("1024", "2048"), ("H200", "H100"), ("9.984", "9.985"), ("  ", " ")]
)
def test_a_lock_file_that_was_edited_is_refused_unless_white_space_alone_changed(
    lock, old_new
) -> None:
    text = lock.read_text()
    edited = (
        text.replace("128", "1024").replace(*old_new)
        if old_new[0] == "1024"
        else text.replace(*old_new)
    )
    assert edited != text
    lock.write_text(edited)
    if old_new == ("  ", " "):
        assert len(list(PinnedStore(lock).records())) == 3
        return
    with pytest.raises(BadLockError, match=r"digest.*configs pin"):
        PinnedStore(lock)


def relabelled(path: pathlib.Path, change) -> None:
    """Change a lock file and give it the digest that fits."""
    raw = json.loads(path.read_bytes())
    change(raw["documents"])
    raw["sha256"] = jsonio.digest(raw["documents"])
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize(
    "change",
    [
        lambda documents: documents.append(documents[0]),
        lambda documents: documents.append(None),
        lambda documents: documents[0]["records"][0].update(pinned=True),
        lambda documents: documents[0]["records"][0]["configs"].append(
            {**documents[0]["records"][0]["configs"][0], "config": []}
        ),
        lambda documents: documents[0]["kernel"].update(digest="../x"),
        lambda documents: documents[0].update(schema=2),
    ],
)
def test_a_lock_file_that_breaks_a_rule_is_refused_though_its_digest_is_right(lock, change) -> None:
    relabelled(lock, change)
    with pytest.raises(BadLockError):
        PinnedStore(lock)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"null", GOLDEN, b"\xff", b'{"launchkit_lock": true}', b"[" * 100_000,
     b'{"launchkit_lock": 1, "sha256": 1, "documents": {}}', b'{"launchkit_lock": 1}',
     b'{"launchkit_lock": 1, "sha256": "", "documents": []}'],
)  # fmt: skip
def test_what_is_no_lock_file_is_refused(lock, data) -> None:
    lock.write_bytes(data)
    with pytest.raises(BadLockError):
        open_store(lock)


def test_a_later_schema_is_refused_as_such(lock) -> None:
    lock.write_bytes(lock.read_bytes().replace(b'"launchkit_lock": 1', b'"launchkit_lock": 2'))
    with pytest.raises(BadLockError, match="Upgrade launchkit") as caught:
        open_store(lock)
    assert caught.value.newer


def test_every_truncation_is_refused(lock) -> None:
    data = lock.read_bytes()
    for length in range(0, len(data) - 1, 97):
        with pytest.raises(BadDocumentError):
            pins.parse(data[:length], source="x")


@pytest.mark.parametrize("place", ["directory", "nowhere/file/x.lock"])
def test_a_place_that_cannot_be_written_is_an_error(tmp_path, place) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "file").touch()
    with pytest.raises(StoreError, match="Choose another place"):
        pins.write(tmp_path / place, pins.select([RECORD]))
