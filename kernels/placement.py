"""Where a kernel may run and on which device. Shared by every wrapper; knows no kernel.

The kernels of this package are decorated when their module is imported, and Triton decides
there whether they run in its CPU interpreter. ``INTERPRETED`` is read at the same moment.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from triton.language.extra.cuda import gdc_wait

from launchkit import hostonly
from launchkit.errors import UsageError

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
"""Whether this package's kernels run in Triton's CPU interpreter (TRITON_INTERPRET=1)."""

_CAN_WAIT = "_semantic" in inspect.signature(gdc_wait).parameters

_NO_GUARD: AbstractContextManager[Any] = nullcontext()

_arch_of: dict[int, int] = {}


def require_products(op: str, *operands: torch.Tensor) -> None:
    """Raise UsageError if the interpreter cannot multiply ``operands``: it takes bf16 as bits."""
    if INTERPRETED and any(operand.dtype == torch.bfloat16 for operand in operands):
        raise UsageError(
            f"{op}: Triton's interpreter multiplies the bit patterns of bfloat16, not its values. "
            "Pass float32 or float16 there; a GPU takes bfloat16.",
            op=op,
        )


def require_launchable(op: str, tensor: torch.Tensor) -> None:
    """Raise UsageError if a kernel cannot run on ``tensor``'s device in this process.

    GPU tensors always can; CPU tensors only in the interpreter or in host-only mode.
    """
    if tensor.is_cuda or INTERPRETED or hostonly.is_active():
        return
    raise UsageError(
        f"{op}: the tensors are on {tensor.device}, where no GPU kernel can run. Move them to a "
        "GPU, set TRITON_INTERPRET=1 before importing triton to run the kernel's arithmetic on "
        "the CPU, or call launchkit.hostonly.activate() to launch without executing.",
        op=op,
        device=str(tensor.device),
    )


def device_guard(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """Return a context in which ``tensor``'s GPU is current; it does nothing if it already is.

    Triton launches on the current device, so a guard may be left out only in that case.
    """
    if tensor.is_cuda and tensor.device.index != torch.cuda.current_device():
        return torch.cuda.device(tensor.device)
    return _NO_GUARD


def live_arch() -> int | None:
    """Return the compute capability, times ten, of the GPU that is current; None without one.

    In host-only mode that is the pretended GPU's. None in the interpreter and on AMD GPUs,
    whose capabilities mean something else. Asked while pruning, never at import.
    """
    if hostonly.is_active():
        return hostonly.current_arch()
    if INTERPRETED or torch.version.hip or not torch.cuda.is_available():
        return None
    device = torch.cuda.current_device()
    if device not in _arch_of:
        major, minor = torch.cuda.get_device_capability(device)
        _arch_of[device] = 10 * major + minor
    return _arch_of[device]


def may_start_early() -> bool:
    """Whether launches may start before their predecessor ends (``launch_pdl``), on this GPU.

    It takes compute capability 9.0, and a driver of CUDA 12.3 to capture such a launch in a graph.
    Triton 3.4 has the functions for it, and cannot call them.
    """
    arch = live_arch()
    if arch is None or arch < 90 or not _CAN_WAIT:
        return False
    return hostonly.is_active() or _driver() >= 12030


@functools.cache
def _driver() -> int:
    """Return the CUDA version of the driver, 12030 for 12.3; 0 without one. torch does not say."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value
