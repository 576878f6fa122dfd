"""The whole scan in Triton's interpreter: the tensors that it reads."""

from __future__ import annotations

from ssd_promises_inputs import *  # noqa: F403  the tests that a GPU runs too
