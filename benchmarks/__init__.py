"""Benchmarks that ship with launchkit: imported as ``launchkit.benchmarks``, run by its commands.

``launchkit bench NAME`` is ``tools/bench_NAME.py``, which calls ``measure`` in ``NAME/bench.py``, or
in ``NAME.py`` where one module is enough; ``bench import``, which is no name in Python, is
``captures/bench.py``. What several of them need stands here; what scans are compared with, in
``baseline``.

Rank: above launchkit and its kernels. Needs torch and triton.
"""

from __future__ import annotations

if __name__ != "launchkit.benchmarks":
    raise ImportError(
        f"this package was imported as {__name__!r}, a name that other distributions use too. "
        "Install launchkit-triton and import launchkit.benchmarks instead.",
        name=__name__,
    )
