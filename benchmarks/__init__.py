"""Benchmarks that ship with launchkit: imported as ``launchkit.benchmarks``, run by its commands.

Rank: above launchkit and its kernels. Needs torch and triton.
"""

from __future__ import annotations

if __name__ != "launchkit.benchmarks":
    raise ImportError(
        f"this package was imported as {__name__!r}, a name that other distributions use too. "
        "Install launchkit-triton and import launchkit.benchmarks instead.",
        name=__name__,
    )
