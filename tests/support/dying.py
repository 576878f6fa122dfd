"""What a worker process runs to fail: it dies, or raises what the test wants."""

from __future__ import annotations

import os


def die(*_arguments):
    """End this process at once, without a word."""
    os._exit(1)


def throw(kind, arguments, *_arguments):
    """Raise an error of this class."""
    raise kind(*arguments)


def throw_made(error):
    """Raise this error, which came here by pickling."""
    raise error


class Unsendable(Exception):
    """An error that can be pickled but not read back: its __init__ takes other arguments."""

    def __init__(self, left, right):
        super().__init__(f"{left} and {right}")
