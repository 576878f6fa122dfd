"""Watching one call of an op: launches, allocations, what forbids a plan. Below op_making.py."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from launchkit.dispatch import triton_seam as seam

_aten = torch.ops.aten
_ALLOCATING = {
    _aten.empty.memory_format,
    _aten.empty_strided.default,
    _aten.empty_like.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
}

# Packages whose C functions compute from their arguments alone, or launch where it is seen. Not
# among them: time, random, os and whatever else makes a call differ from the one before it.
_KNOWN_PACKAGES = frozenset(
    (
        "_abc", "_functools", "_imp", "_operator", "_struct", "_thread", "_typing", "_weakref",
        "builtins", "collections", "contextlib", "enum", "functools", "inspect", "itertools", "launchkit",
        "math", "nvtx", "operator", "pybind11_builtins", "sys", "torch", "triton", "types",
        "typing",
    )
)  # fmt: skip


def _torch_functions() -> tuple[Any, ...]:
    names = ("_cuda_synchronize", "_cuda_setStream", "_cuda_sleep", "_accelerator_setStream")
    found = [getattr(torch._C, name, None) for name in names]
    return tuple(function for function in found if function is not None)


def _torch_types() -> tuple[type, ...]:
    owners = [(torch, "Stream"), (torch, "Event")]
    found = [getattr(owner, name, None) for owner, name in owners]
    found += [getattr(torch._C, name, None) for name in ("_CudaStreamBase", "_CudaEventBase")]
    return tuple(each for each in found if isinstance(each, type))


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each torch operator of a thread: keeps what was allocated, refuses what computes."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is watched while Dynamo looks at frames, and its guard costs 10 us an operator.
        return False

    def __init__(self, refuse: Callable[[str], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._refuse = refuse
        self._index: dict[int, int] = {}
        self._held: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        """What was allocated, in order."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _ALLOCATING:
            self._index[id(out)] = len(self.tensors)
            self.tensors.append(out)
        elif func is _aten.detach.default and id(args[0]) in self._index:
            # torch hands a factory's result out as an alias that covers all of it.
            self._index[id(out)] = self._index[id(args[0])]
        elif not _is_view(func):
            self._refuse(f"torch's {func} runs in it")
        self._held.append(out)  # so that no id stands for two tensors
        return out

    def find(self, tensor: Any) -> int | None:
        """Return the number of the allocation that an object is, or None."""
        return self._index.get(id(tensor))

    @property
    def names(self) -> list[tuple[Any, int]]:
        """Return (object, number of its allocation) for every object that stands for one."""
        return [
            (held, self._index[id(held)])
            for held in [*self.tensors, *self._held]
            if id(held) in self._index
        ]

    def leave(self) -> None:
        """Stop looking now, in the middle of the op."""
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _is_view(func: Any) -> bool:
    aliases = [returned.alias_info for returned in func._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


class Watched:
    """One watched call: ``recording`` and ``allocations`` afterwards, ``stream`` as it began."""

    def __init__(self, extension: ModuleType) -> None:
        self.recording: Any = extension.Recording(
            self._leave, seam.launch_codes(), _torch_functions(), _torch_types(), _KNOWN_PACKAGES
        )
        self.allocations = Allocations(self.recording.refuse)
        self.device = seam.current_device()
        self.stream = seam.current_stream(self.device)

    def _leave(self) -> None:
        self.allocations.leave()

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call the function and watch this thread meanwhile."""
        allocations, recording = self.allocations, self.recording
        # A collection runs callbacks and finalizers of others, which would count as the op's calls.
        collects = gc.isenabled()
        gc.disable()
        allocations.__enter__()  # type: ignore[no-untyped-call]
        recording.start()
        try:
            return function(*args, **kwargs)
        finally:
            recording.stop()
            allocations.leave()
            if collects:
                gc.enable()


def is_watchable() -> bool:
    """Tell whether this thread has no profiler of its own, whose place a recording would take."""
    return sys.getprofile() is None
