"""The optional cross-check: do all configs compute the same? A leaf of tuning.

Each config is launched once more on the arguments as they were, and what it wrote is compared with
what the others wrote. Those that differ from most are excluded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

MAX_GROUPS = 4
"""Unlike outputs that are kept; a config that differs from all of them is the only one of its kind."""

CHUNK = 2**24
"""Elements compared at a time, which bounds the memory that a comparison takes."""

Outputs = dict[str, list[torch.Tensor]]
"""What was written, by the name of the argument."""


@dataclass
class _Group:
    """Configs that wrote the same, and what that is."""

    outputs: Outputs
    members: list[Any] = field(default_factory=list)
    weight: int = 0


class OutputCheck:
    """Compares what configs wrote; ``tolerance`` is (relative, absolute) or None.

    Without one, floats of a type with machine epsilon e may differ by sqrt(e) of the value plus
    sqrt(e) of the mean magnitude: configs add up in unlike orders, and what is looked for is a
    broken config. All else must be equal. NaN equals NaN.
    """

    def __init__(self, tolerance: tuple[float, float] | None = None) -> None:
        self._tolerance = tolerance
        self._groups: list[_Group] = []
        self._alone: list[tuple[Any, str]] = []

    def add(self, config: Any, outputs: Outputs, weight: int = 1) -> None:
        """Take what a config wrote; ``weight``: how many configs are known to agree with it."""
        for group in self._groups:
            if self._difference(outputs, group.outputs) is None:
                group.members.append(config)
                group.weight += weight
                return
        if len(self._groups) < MAX_GROUPS:
            kept = {name: [t.clone() for t in tensors] for name, tensors in outputs.items()}
            self._groups.append(_Group(kept, [config], weight))
        else:
            text = self._difference(outputs, self._groups[0].outputs)
            self._alone.append((config, text or "its outputs differ"))

    def outliers(self) -> list[tuple[Any, str]]:
        """Return the configs that differ from most, or from the first where none are most."""
        if not self._groups:
            return []
        best = max(self._groups, key=lambda group: group.weight)  # the first of equals
        found = list(self._alone)
        for group in self._groups:
            if group is not best:
                text = self._difference(group.outputs, best.outputs) or "its outputs differ"
                found.extend((config, text) for config in group.members)
        return found

    def _difference(self, outputs: Outputs, expected: Outputs) -> str | None:
        """Return what differs, or None."""
        if outputs.keys() != expected.keys():
            return f"it writes {', '.join(outputs)}; others write {', '.join(expected)}"
        for name, tensors in outputs.items():
            for tensor, other in zip(tensors, expected[name], strict=True):
                text = difference(tensor, other, self._tolerance)
                if text is not None:
                    return f"{name} differs in {text}"
        return None


def difference(
    tensor: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float] | None
) -> str | None:
    """Return how many elements differ and by how much at most, or None."""
    ours, theirs = _comparable(tensor), _comparable(expected)
    relative, absolute = _tolerances(tensor.dtype, theirs, tolerance)
    count, largest = 0, 0.0
    for start in range(0, ours.numel(), CHUNK):
        one, other = ours[start : start + CHUNK], theirs[start : start + CHUNK]
        far = ~torch.isclose(one, other, rtol=relative, atol=absolute, equal_nan=True)
        wrong = int(far.sum())
        if wrong:
            count += wrong
            gap = (one[far].double() - other[far].double()).abs()
            largest = max(largest, float(gap.nan_to_num(nan=math.inf).max()))
    if not count:
        return None
    return f"{count} of {ours.numel()} elements, by up to {largest:.3g}"


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in one row, in a type that torch can compare."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        return torch.view_as_real(flat.resolve_conj()).reshape(-1)
    if flat.dtype == torch.bool:
        # Another byte than 0 and 1 is neither true nor false: compare the bytes.
        return flat.view(torch.uint8)
    if flat.is_floating_point() and flat.element_size() == 1:
        return flat.float()
    if not flat.is_floating_point() and flat.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return flat.view(getattr(torch, str(flat.dtype).replace("torch.u", "")))
    return flat


def _tolerances(
    dtype: torch.dtype, expected: torch.Tensor, tolerance: tuple[float, float] | None
) -> tuple[float, float]:
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0, 0.0
    if tolerance is not None:
        return tolerance
    share = math.sqrt(torch.finfo(dtype).eps)
    sample = expected[:CHUNK]
    finite = sample[torch.isfinite(sample)]
    magnitude = float(finite.abs().mean(dtype=torch.float64)) if finite.numel() else 0.0
    return share, share * magnitude
