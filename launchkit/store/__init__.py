"""Config stores: where tuned configs are kept and shared. Imports leaves only."""

from __future__ import annotations

from launchkit.store.base import ConfigStore, MemoryStore, Miss, MissReason, StoreHealth
from launchkit.store.directory import DirectoryStore
from launchkit.store.layered import LayeredStore
from launchkit.store.places import default_place, open_store

__all__ = [
    "ConfigStore",
    "DirectoryStore",
    "LayeredStore",
    "MemoryStore",
    "Miss",
    "MissReason",
    "StoreHealth",
    "default_place",
    "open_store",
]
