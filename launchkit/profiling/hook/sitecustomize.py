"""Started by Python in each process of ``launchkit profile``: begins its capture there.

The folder of this file stands first in PYTHONPATH then. A sitecustomize that the program has
itself is imported as without this one.
"""

import importlib
import os
import sys


def _chain() -> None:
    """Import the sitecustomize behind this one, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    kept = list(sys.path)
    sys.path[:] = [each for each in kept if os.path.abspath(each or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own
    finally:
        sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != here]


def _begin() -> None:
    try:
        from launchkit.profiling.session import begin
    except ImportError:
        return  # another environment's Python, which has no launchkit
    begin()


_chain()
_begin()
