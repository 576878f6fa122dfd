"""Records to store, stores of them, and where a DirectoryStore keeps them."""

from __future__ import annotations

import pathlib
from dataclasses import replace

from launchkit.configs import TunedRecord, config_text
from launchkit.keys import LaunchKey, encode_value
from launchkit.store import ConfigStore, DirectoryStore, MemoryStore, Miss, document

GOLDEN = (pathlib.Path(__file__).parent.parent / "data" / "config_document_v1.json").read_bytes()
RECORD = next(
    each for each in document.parse(GOLDEN, source="golden").records if len(each.configs) == 3
)


def record_for(n: int, **changes) -> TunedRecord:
    """A record of another key than RECORD's."""
    return replace(RECORD, key=LaunchKey((encode_value("n", n),), RECORD.key.dtypes), **changes)


def same_file(record: TunedRecord, count: int) -> list[TunedRecord]:
    """Records of other keys that share the file of ``record``."""
    made = (record_for(n) for n in range(10_000))
    found = (each for each in made if each.key.digest[:2] == record.key.digest[:2])
    return [next(found) for _ in range(count)]


def store_of(*records: TunedRecord) -> MemoryStore:
    """A store in memory that holds the records."""
    store = MemoryStore()
    for record in records:
        store.put(record)
    return store


def get(store: ConfigStore, record: TunedRecord) -> TunedRecord | Miss:
    """What the store answers for the identity of ``record``."""
    return store.get(*record.identity)


def file_of(store: DirectoryStore, record: TunedRecord) -> pathlib.Path:
    """Where the store keeps ``record``."""
    place = store.path / "v1" / record.device.slug / record.kernel.slug
    return place / f"{record.key.digest[:2]}.json"


def set_aside_files(store: DirectoryStore) -> list[pathlib.Path]:
    """The files that were set aside, sorted."""
    return sorted(store.path.rglob("*.bad-*"))


def plant(store: DirectoryStore, data: bytes, record: TunedRecord = RECORD) -> pathlib.Path:
    """Write ``data`` where the store keeps ``record``."""
    path = file_of(store, record)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def errors_by_config(store: ConfigStore) -> dict[str, str | None]:
    """Why each config of the one record was no winner, by its first value; None: it was timed."""
    (record,) = store.records()
    return {config_text(each.config).split()[0]: each.error for each in record.configs}
