"""Kernels that ship with launchkit: import them as ``launchkit.kernels``.

Rank: above launchkit, which never imports from here. Needs torch and triton.
"""

from __future__ import annotations

if __name__ != "launchkit.kernels":
    raise ImportError(
        f"this package was imported as {__name__!r}, a name that other distributions use too. "
        "Install launchkit-triton and import launchkit.kernels instead.",
        name=__name__,
    )
