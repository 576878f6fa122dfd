"""Which tool listens to NVTX ranges, and through what they reach it. A leaf: no torch.

Some releases of the Python package nvtx and of Nsight Systems do not fit: the tool is attached and
gets nothing (nvtx 0.2.12 and later under Nsight Systems 2022.4 and 2023.4). Ranges then go through
torch, whose own NVTX such tools hear.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib import metadata
from types import ModuleType
from typing import Protocol

import nvtx

from launchkit import settings

_log = logging.getLogger("launchkit")

# Set by a tool for the processes that it starts: the library that NVTX hands its ranges to.
_INJECTIONS = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH")


class Domain(Protocol):
    """What is used of ``nvtx.Domain``."""

    def get_event_attributes(self, message: str, category: str, payload: int | None) -> object:
        """Return what ``push_range`` takes."""

    def push_range(self, attributes: object) -> object:
        """Begin a range on this thread."""

    def pop_range(self) -> object:
        """End the one that was begun last."""


def listening_domain(name: str) -> Domain | None:
    """Return the NVTX domain if a tool was attached to the process and wants it."""
    domain = nvtx.get_domain(name) if nvtx.enabled() else None
    return domain if isinstance(domain, nvtx.Domain) else None


def drops_python_ranges(name: str) -> bool:
    """Tell whether a tool is attached to this process that gets no ranges from Python."""
    attached = settings.foreign_variables(_INJECTIONS)
    return nvtx.enabled() and bool(attached) and listening_domain(name) is None


class TorchDomain:
    """Torch's NVTX in the place of a domain: ranges have their names and nothing else."""

    def __init__(self, module: ModuleType) -> None:
        self.push_range: Callable[[object], object] = module.range_push
        self.pop_range: Callable[[], object] = module.range_pop

    def get_event_attributes(self, message: str, category: str, payload: int | None) -> object:
        """Return what ``push_range`` takes: the name."""
        return message


def torch_domain() -> TorchDomain | None:
    """Return torch's NVTX once torch is imported, and say what was found; None: it has none."""
    module = sys.modules.get("torch.cuda.nvtx")
    # A torch without CUDA has a stub there, which raises.
    if module is None or not isinstance(getattr(module, "_nvtx", None), ModuleType):
        _log.warning(
            "this torch has no NVTX either (it was built without CUDA): the attached tool will "
            "show no ranges of launchkit"
        )
        return None
    return TorchDomain(module)


def warn_of_dropped_ranges() -> None:
    """Say that the attached tool gets no ranges from Python, and what helps."""
    _log.warning(
        "a profiling tool is attached, but gets no ranges from the Python package nvtx %s: the two "
        "do not fit, or the tool does not trace NVTX. Once torch is imported, ranges go through "
        "torch.cuda.nvtx, with their names only (no domain, category and layer). For all of them "
        "use a newer Nsight Systems, or pip install 'nvtx<0.2.12'.",
        metadata.version("nvtx"),
    )
