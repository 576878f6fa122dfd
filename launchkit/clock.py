"""The only source of time. A leaf; tests replace ``now_ns`` and ``utc_now`` here."""

from __future__ import annotations

import datetime
import time

now_ns = time.perf_counter_ns


def utc_now() -> datetime.datetime:
    """Return the current time in UTC, for file names and reports."""
    return datetime.datetime.now(datetime.timezone.utc)
