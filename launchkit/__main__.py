"""``python -m launchkit`` and the ``launchkit`` command: the one import of the tools."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from launchkit.tools.cli import main as run
    except ModuleNotFoundError as error:
        if error.name != "launchkit.tools":
            raise
        sys.exit("launchkit: this is a source checkout, not an installation. Install it, and start "
                 "Python from another folder or use the launchkit command.")  # fmt: skip
    run()


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[func-returns-value]
