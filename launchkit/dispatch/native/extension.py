"""The C extension: whether this process has it, and why not. Below entries.py."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from launchkit import settings
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.fingerprint import dtype_text
from launchkit.dispatch.grids import Grid
from launchkit.dispatch.native import premises
from launchkit.dispatch.native.fronts import MISS
from launchkit.dispatch.native.guard import TENSORS

_log = logging.getLogger("launchkit")

_PROBED = (torch.float16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool)

_configured: ModuleType | None = None
_op_plans = False
_tensor_reader: str | None = None

DIRECTLY = "directly"
BY_EXCHANGE = "through DLPack's exchange"
BY_METHODS = "through their Python methods"


def obstacle() -> str | None:
    """Return why launches take the Python core in this process, or None if they take the C one."""
    if not settings.current().native:
        return "LAUNCHKIT_NATIVE=0"
    if seam.VERSION not in seam.PROVEN:
        return (
            f"Triton {'.'.join(map(str, seam.VERSION))} is none of the versions it is proven with"
        )
    if not isinstance(vars(torch.compiler).get("_is_compiling_flag"), bool):
        return "this torch does not tell whether it compiles"
    return _import()[1]


@functools.lru_cache(maxsize=1)
def _import() -> tuple[ModuleType | None, str | None]:
    try:
        return importlib.import_module("launchkit.dispatch.native._core"), None
    except ImportError as error:
        return None, f"the extension was not built or does not load ({error})"


def active() -> ModuleType | None:
    """Return the C extension if launches take it now: it was, when launchkit was imported."""
    return _configured if _configured is not None and obstacle() is None else None


def tensor_reader() -> str | None:
    """Return how the C extension reads tensors: DIRECTLY, or in a way that takes longer; None
    where there is no extension."""
    return _tensor_reader


def makes_op_plans() -> bool:
    """Tell whether this torch tells the C extension all that an op plan rests on."""
    return _op_plans


def load() -> ModuleType | None:
    """Return the C extension if this process is to use it; else say once in the log why not."""
    reason = obstacle()
    if reason is None:
        return _import()[0]
    _tell(reason)
    return None


@functools.lru_cache(maxsize=8)
def _tell(reason: str) -> None:
    switched_off = not settings.current().native
    _log.log(
        logging.INFO if switched_off else logging.WARNING,
        "launches take the Python core, which costs some microseconds more: %s. "
        "docs/environment.md says how to build the C core.",
        reason,
    )


def configure(
    extension: ModuleType, adopt: Callable[[Any], Any], refuse: Callable[[Any], Any]
) -> None:
    """Tell the extension what it goes by.

    ``adopt``: returns a kernel's launcher, making it on the first launch. ``refuse``: raises for
    the launcher of a kernel without configs.
    """
    global _configured, _op_plans, _tensor_reader
    tensor, parameter = TENSORS
    exchanges = extension.configure(
        tensor=tensor,
        parameter=parameter,
        triton_dtype=seam.triton_dtype,
        torch_dtype=torch.dtype,
        exchange=getattr(tensor, "__dlpack_c_exchange_api__", None),
        miss=MISS,
        absent=premises.ABSENT,
        compiler=vars(torch.compiler),
        adopt=adopt,
        finish=seam.finish_launch,
        dtype_text=dtype_text,
        refuse=refuse,
    )
    extension.configure_grids(Grid)
    directly = read_tensors_directly(extension)
    _tensor_reader = DIRECTLY if directly else BY_EXCHANGE if exchanges else BY_METHODS
    possible = extension.configure_ops(
        (torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack),
        torch._C.is_grad_enabled,
        torch.Tensor.requires_grad,
        torch._C._dynamo.eval_frame.get_eval_frame_callback,
        torch.device,
    )
    _configured, _op_plans = extension, possible


def read_tensors_directly(extension: ModuleType) -> bool:
    """Let the extension read tensors through libtorch's C interface, if it reads some right.

    torch gives handles, which are at::Tensors of their own; where the same word stands in the
    Python objects, there theirs is. Where torch gives none, DLPack's exchange reads them.
    """
    aoti = getattr(torch._C, "_aoti", None)
    make = getattr(aoti, "unsafe_alloc_void_ptrs_from_tensors", None)
    release = getattr(aoti, "alloc_tensors_by_stealing_from_void_ptrs", None)
    if make is None or release is None:
        return False
    found: list[bool] = []

    def prove() -> None:
        # Whatever torch raises here, tensors are read without this.
        with contextlib.suppress(Exception):
            found.append(_reads_probes(extension, make, release))

    try:
        # Torch's modes and transforms, which may be entered here, are those of a thread.
        thread = threading.Thread(target=prove, name="launchkit-probes", daemon=True)
        thread.start()
    except RuntimeError:  # no thread can start: the interpreter ends
        return False
    thread.join()
    return found == [True]


def _reads_probes(
    extension: ModuleType, make: Callable[..., Any], release: Callable[..., Any]
) -> bool:
    tensors = _probes()
    handles = make(tensors)
    try:
        dtypes = list(dict.fromkeys(tensor.dtype for tensor in tensors))
        probes = []
        for tensor, handle in zip(tensors, handles, strict=True):
            strided = tensor.layout is torch.strided
            address = tensor.data_ptr() if strided else 0
            probes.append((tensor, handle, address, dtypes.index(tensor.dtype), strided))
        found: bool = extension.read_tensors_directly(tuple(probes))
        return found
    finally:
        release(handles)


def _probes() -> list[torch.Tensor]:
    """Return tensors that differ in all that is read of them; the first one is strided."""
    bytes_of = torch.empty(64, dtype=torch.uint8, device="cpu")
    strided = [bytes_of.view(dtype)[1:] for dtype in _PROBED]
    sparse = torch.empty(3, layout=torch.sparse_coo, device="cpu")
    parameter = torch.nn.Parameter(torch.empty(3, dtype=torch.bfloat16, device="cpu"))
    return [bytes_of, *strided, sparse, parameter]
