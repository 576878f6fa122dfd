"""Clients of a fake config service: quick ones, whose threads tests can wait for."""

from __future__ import annotations

from fake_service import TOKEN, FakeService
from stored import RECORD

from launchkit.service.client.store import ServiceStore
from launchkit.store import Miss

SECRET = b"sixteen bytes and more"
AMPLE_S, SHORT_S = 20.0, 0.2
"""Deadlines: one that a busy machine keeps, and one that is worth waiting for."""


def client(service: FakeService | str, **changes) -> ServiceStore:
    """A client with a token and an ample deadline."""
    url = service if isinstance(service, str) else service.url
    return ServiceStore(url, **{"token": TOKEN, "timeout_s": AMPLE_S, "lease_s": 1.0, **changes})


def reason(store, record=RECORD) -> str:
    """Why a store has no record of an identity; `hit` if it has exactly this one."""
    found = store.get(*record.identity)
    if isinstance(found, Miss):
        return found.reason
    assert found.identity == record.identity
    return "hit"


def settled(store: ServiceStore) -> ServiceStore:
    """Wait until everything is sent."""
    assert store.flush(60.0) == 0
    return store
