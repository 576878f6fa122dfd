"""What a worker process runs to die, as one does that is killed for its memory."""

from __future__ import annotations

import os


def die(*_arguments):
    """End this process at once, without a word."""
    os._exit(1)
