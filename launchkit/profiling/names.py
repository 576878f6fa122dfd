"""Names under which recordings tell of themselves, for who writes and who reads them. A leaf."""

from __future__ import annotations

import re

DOMAIN = "launchkit"
"""The NVTX domain of launchkit's ranges."""

REPLAY_CATEGORY = "op replay"
"""Category of the ranges that are replays of planned ops."""

_TRACED = re.compile(r"launchkit:(.+?)(?: \[(?:layer=(-?\d+))? ?(?:op=(.+))?\])?", re.DOTALL)


def traced_name(name: str, layer: int | None, op: str | None) -> str:
    """Return a range as the one text that an annotation of PyTorch has.

    >>> traced_name("mixer", 3, "ssd")
    'launchkit:mixer [layer=3 op=ssd]'
    """
    said = [f"layer={layer}"] if layer is not None else []
    said += [f"op={op}"] if op is not None else []
    brackets = f" [{' '.join(said)}]" if said or name.endswith("]") else ""
    return f"{DOMAIN}:{name}{brackets}"


def untraced(text: str) -> tuple[str, str | None, str | None] | None:
    """Return name, layer and op of what ``traced_name`` made; None for another text."""
    found = _TRACED.fullmatch(text)
    return found and (found[1], found[2], found[3])
