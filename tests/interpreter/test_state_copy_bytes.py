"""Copies between addresses in Triton's interpreter."""

from __future__ import annotations

from copy_bytes_promises import *  # noqa: F403  the tests that a GPU runs too
