"""The aligned step's copies in Triton's interpreter."""

from __future__ import annotations

from align_promises import *  # noqa: F403  the tests that a GPU runs too
from state_copy_promises import *  # noqa: F403  the tests that a GPU runs too
