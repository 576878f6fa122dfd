"""Stored checkpoints in Triton's interpreter."""

from __future__ import annotations

from checkpoint_promises import *  # noqa: F403  the tests that a GPU runs too
