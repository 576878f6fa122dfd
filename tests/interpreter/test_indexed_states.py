"""Initial states that stay in their cache, in Triton's interpreter."""

from __future__ import annotations

from indexed_promises import *  # noqa: F403  the tests that a GPU runs too
