"""Config stores: where tuned configs are kept and shared. Imports leaves only."""

from __future__ import annotations

from launchkit.store.base import ConfigStore, MemoryStore, Miss, MissReason, StoreHealth
from launchkit.store.directory import DirectoryStore
from launchkit.store.explaining import Explanation, NearRecord, explain
from launchkit.store.layered import LayeredStore
from launchkit.store.lookup import Found, Policies, Wanted, find
from launchkit.store.pins import PinnedStore
from launchkit.store.places import default_place, open_store
from launchkit.store.shapes import buckets, nearest

__all__ = [
    "ConfigStore",
    "DirectoryStore",
    "Explanation",
    "Found",
    "LayeredStore",
    "MemoryStore",
    "Miss",
    "MissReason",
    "NearRecord",
    "PinnedStore",
    "Policies",
    "StoreHealth",
    "Wanted",
    "buckets",
    "default_place",
    "explain",
    "find",
    "nearest",
    "open_store",
]
