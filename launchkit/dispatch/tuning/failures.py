"""Why a config failed, as stored text, and whether the process can go on. Above options.py."""

from __future__ import annotations

import torch

from launchkit.configs import Resource, TunedConfig
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.tuning.options import executes_on_cuda
from launchkit.errors import TuningStoppedError

MAX_REASON = 2000
"""Characters of a stored reason; compilers write whole programs into theirs."""

# Triton's words for what a config lacked, as in OutOfResources.name.
_RESOURCES = {"shared memory": "shared_bytes", "registers": "registers", "threads": "threads"}


class CaptureFailedError(Exception):
    """A launch could not be captured into a CUDA graph; never leaves the tuning."""


class BrokenContextError(Exception):
    """A config broke the CUDA context; never leaves the tuning.

    ``stopped`` is what to raise, ``tuned`` the config's result.
    """

    def __init__(self, stopped: TuningStoppedError, tuned: TunedConfig) -> None:
        super().__init__(str(stopped))
        self.stopped = stopped
        self.tuned = tuned


def reason_of(error: BaseException) -> str:
    """Return ``Class: message``, and at its end what ``TunedConfig.needed`` reads."""
    text = f"{type(error).__name__}: {_message(error)}"
    if len(text) > MAX_REASON:
        text = f"{text[: MAX_REASON // 2]} ... {text[-MAX_REASON // 2 :]}"
    resource = _lacked(error)
    return text if resource is None else f"{text} {resource.text}"


def _message(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - a compiler's exception may fail to word itself
        return "(it has no message)"


def _lacked(error: BaseException) -> Resource | None:
    if not isinstance(error, seam.CONFIG_ERRORS):
        return None
    try:  # OutOfResources has these
        required, limit = int(getattr(error, "required", "")), int(getattr(error, "limit", ""))
    except (TypeError, ValueError):
        return None
    word = str(getattr(error, "name", "")).strip()
    return Resource(_RESOURCES.get(word, word.replace(" ", "_").lower()), required, limit)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory was short, on a GPU or on the host, which says nothing about a config."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    # What torch's allocator of host memory raises has no class of its own.
    return type(error) is RuntimeError and "DefaultCPUAllocator" in str(error)


def broken_context() -> str | None:
    """Return what CUDA says where it does not recover from the last error, or None.

    Such an error is reported again by every later call; another one is reported once.
    """
    if not executes_on_cuda() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    said = None
    for _ in range(2):
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            said = _message(error).partition("\n")[0]
        else:
            return None
    return said
