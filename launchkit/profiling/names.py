"""Names under which recordings tell of themselves, for who writes and who reads them. A leaf."""

from __future__ import annotations

import re

DOMAIN = "launchkit"
"""The NVTX domain of launchkit's ranges."""

REPLAY_CATEGORY = "op replay"
"""Category of the ranges that are replays of planned ops."""

_SAID = re.compile(r"(?:layer=(-?[0-9]+))? ?(?:op=([^\[]+))?\]", re.DOTALL)


def traced_name(name: str, layer: int | None, op: str | None) -> str:
    """Return a range as the one text that an annotation of PyTorch has.

    >>> traced_name("mixer", 3, "ssd")
    'launchkit:mixer [layer=3 op=ssd]'
    """
    said = [f"layer={layer}"] if layer is not None else []
    # The last bracket of the text must be the one that is put there.
    said += [f"op={op.replace('%', '%25').replace('[', '%5B')}"] if op is not None else []
    brackets = f" [{' '.join(said)}]" if said or name.endswith("]") else ""
    return f"{DOMAIN}:{name}{brackets}"


def untraced(text: str) -> tuple[str, str | None, str | None] | None:
    """Return name, layer and op of what ``traced_name`` made; None for another text."""
    domain, _, body = text.partition(":")
    if domain != DOMAIN or not body:
        return None
    name, _, said = body.rpartition(" [")
    found = _SAID.fullmatch(said) if name else None
    if found is None:
        return body, None, None
    op = found[2] and found[2].replace("%5B", "[").replace("%25", "%")
    return name, found[1], op
