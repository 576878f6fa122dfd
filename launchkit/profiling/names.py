"""Names under which recordings tell of themselves, for who writes and who reads them. A leaf."""

from __future__ import annotations

DOMAIN = "launchkit"
"""The NVTX domain of launchkit's ranges."""

REPLAY_CATEGORY = "op replay"
"""Category of the ranges that are replays of planned ops."""
