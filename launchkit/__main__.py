"""``python -m launchkit`` and the ``launchkit`` command: the one import of the tools."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    from launchkit.tools.cli import main as run

    run()


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[func-returns-value]
