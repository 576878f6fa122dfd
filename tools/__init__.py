"""The command line: imported as ``launchkit.tools``, one module a command. Nothing imports it.

Exit codes: 0 done, 1 a finding, 2 bad use.
"""

from __future__ import annotations

if __name__ != "launchkit.tools":
    raise ImportError(
        f"this package was imported as {__name__!r}, a name that other distributions use too. "
        "Install launchkit-triton and import launchkit.tools instead.",
        name=__name__,
    )
