"""From a manifest's entry back to a launch on disposable arguments. Below warming.py.

Everything that keeps it from working raises CannotReplay, with the reason for a report.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.layers import layers_of, take_apart
from launchkit.dispatch.manifest.describing import kernel_digest, meta_digest
from launchkit.dispatch.manifest.document import Argument, Entry, GridRecord, KernelPlace
from launchkit.dispatch.manifest.worker_main import imported
from launchkit.errors import LaunchkitError, UsageError

HOLLOW_BYTES = 64 * 2**20
"""Where nothing is launched, larger tensors stand on less memory: some strides become 0."""
_CLASSES_BYTES = 256
_LONGEST_INT = 4000

MakeArguments = Callable[[str, "dict[str, Any]"], "Mapping[str, Any] | None"]
"""A user's hook: is given the kernel's name and the disposable arguments by parameter, may fill
tensors in place, and returns those that are to be replaced."""


class CannotReplay(Exception):  # noqa: N818 - no error: it is reported
    """An entry that cannot be launched or compiled here; the text is the reason."""


@dataclass(frozen=True)
class Replay:
    """One entry as a launch: what was launched, and arguments that nobody else uses."""

    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def replay(entry: Entry, *, launched: bool, make: MakeArguments | None = None) -> Replay:
    """Return an entry as a launch.

    ``launched``: tensors have all their memory, filled with random floats and with zeros of other
    dtypes; else the arguments are only compiled for, and large tensors stand on less.

    Raises:
        CannotReplay: the kernel has changed or cannot be imported, an argument cannot be made.
    """
    kernel = _resolve(entry["kernel"])
    args = tuple(_argument(each, launched) for each in entry["args"])
    kwargs = {name: _argument(each, launched) for name, each in entry["kwargs"].items()}
    if make is not None:
        args, kwargs = _made(make, kernel, entry["kernel"]["name"], args, kwargs)
    return Replay(kernel, _grid(entry["grid"]), args, kwargs)


def _resolve(place: KernelPlace) -> Any:
    """Return the kernel at a place, as it was launched.

    Raises:
        CannotReplay: it cannot be imported, or computes something else today.
    """
    found = _imported(place["module"], place["qualname"])
    layers = layers_of(found)
    if place["layer"] >= len(layers):
        raise CannotReplay(f"{place['qualname']} has other decorators than when it was recorded")
    kernel = layers[place["layer"]]
    try:
        jit = take_apart(kernel).jit
    except UsageError as error:
        raise CannotReplay(str(error)) from None
    if place["digest"] not in (None, kernel_digest(kernel, jit)):
        raise CannotReplay("the kernel has changed since it was recorded; record it again")
    return kernel


def _imported(module: str, qualname: str) -> Any:
    name = f"{module}:{qualname}"
    try:
        return imported(name)
    except (Exception, SystemExit) as error:  # a script without a main guard may end itself
        raise CannotReplay(f"{name} cannot be imported: {_said(error)}") from error


def _made(
    make: MakeArguments, kernel: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    names = list(take_apart(kernel).jit.arg_names)
    by_position = dict(zip(names, args, strict=False))
    try:
        changes = dict(make(name, {**by_position, **kwargs}) or {})
    except Exception as error:
        raise CannotReplay(f"the function that makes arguments raised {_said(error)}") from error
    unknown = sorted(changes.keys() - set(names))
    if unknown:
        raise CannotReplay(f"the function that makes arguments gave {unknown}, which the kernel "
                           "does not have")  # fmt: skip
    args = tuple(changes.pop(name, value) for name, value in by_position.items())
    return args, {**kwargs, **changes}


# -- arguments


def _argument(argument: Argument, launched: bool) -> Any:
    raw: Mapping[str, Any] = argument
    try:
        return _MAKERS[raw["kind"]](raw, launched)
    except CannotReplay:
        raise
    except Exception as error:
        raise CannotReplay(f"a {raw['kind']} cannot be made: {_said(error)}") from error


def _value(raw: Mapping[str, Any], launched: bool) -> Any:
    kind, text = raw["type"], raw["value"]
    if kind.startswith("enum:"):
        module, _, name = kind.removeprefix("enum:").rpartition(".")
        return getattr(_imported(module, name), text)
    if kind == "int" and len(text) > _LONGEST_INT:
        raise CannotReplay("an int is too long")
    if kind not in _VALUES:
        raise CannotReplay(f"a value of type {kind} is not known here")
    return _VALUES[kind](text)


def _torch_dtype(text: str) -> torch.dtype:
    dtype = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise CannotReplay(f"this torch has no dtype {text}")
    return dtype


_VALUES: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: {"True": True, "False": False}[text],
    "int": int,
    "float": float,
    "str": str,
    "str-escaped": ast.literal_eval,
    "none": lambda text: None,
    "torch.dtype": _torch_dtype,
    "tl.dtype": tl.dtype,
}


def _tuple(raw: Mapping[str, Any], launched: bool) -> Any:
    return tuple(_argument(each, launched) for each in raw["items"])


def _function(raw: Mapping[str, Any], launched: bool) -> Any:
    return _imported(raw["module"], raw["qualname"])


def _descriptor(raw: Mapping[str, Any], launched: bool) -> Any:
    base = _tensor(raw["base"], launched)
    options = {} if raw["padding"] is None else {"padding": raw["padding"]}
    return TensorDescriptor(
        base, list(raw["shape"]), list(raw["strides"]), list(raw["block_shape"]), **options
    )


def _tensor(raw: Mapping[str, Any], launched: bool) -> torch.Tensor:
    dtype, shape, strides = _torch_dtype(raw["dtype"]), raw["shape"], raw["strides"]
    if len(shape) != len(strides):
        raise CannotReplay("a tensor has another number of strides than of sizes")
    if not launched:
        strides = _hollow(shape, strides, dtype.itemsize)
    span = _span(shape, strides)
    on_cuda = seam.device_source().tensors_on_cuda
    memory = torch.empty(
        span + 2 * _CLASSES_BYTES // dtype.itemsize + 1,
        dtype=dtype,
        device=torch.device("cuda", seam.current_device()) if on_cuda and raw["device"] == "gpu"
        else "cpu",
        pin_memory=on_cuda and raw["device"] == "cpu",
    )  # fmt: skip
    _fill(memory, everything=launched)
    first = _skipped(memory.data_ptr(), dtype.itemsize, raw["alignment"])
    return memory.as_strided(shape, strides, first)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return over how many elements a tensor reaches."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _hollow(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> list[int]:
    """Return strides by which a tensor of this shape needs little memory, the small ones kept."""
    kept = list(strides)
    while _span(shape, kept) * itemsize > HOLLOW_BYTES:
        kept[max(range(len(kept)), key=lambda dim: (shape[dim] - 1) * kept[dim])] = 0
    return kept


def _fill(memory: torch.Tensor, everything: bool) -> None:
    # Zeros are the index that is valid everywhere; random floats keep branches on data apart.
    if not (everything and memory.dtype.is_floating_point):
        memory.zero_()
        return
    generator = torch.Generator(memory.device).manual_seed(0)
    try:
        memory.uniform_(-1, 1, generator=generator)
    except (RuntimeError, NotImplementedError):  # a dtype too small for it, such as fp8
        random = torch.empty(memory.shape, device=memory.device)
        memory.copy_(random.uniform_(-1, 1, generator=generator))


def _skipped(address: int, itemsize: int, alignment: int) -> int:
    """Return how many elements to skip so that a tensor has its alignment class."""
    for count in range(2 * _CLASSES_BYTES // itemsize + 1):
        start = address + count * itemsize
        if math.gcd(start, _CLASSES_BYTES) == alignment:
            return count
    raise CannotReplay(f"no {itemsize}-byte elements can be aligned to {alignment} bytes")


_MAKERS: dict[str, Callable[[Mapping[str, Any], bool], Any]] = {
    "value": _value,
    "tensor": _tensor,
    "tuple": _tuple,
    "function": _function,
    "descriptor": _descriptor,
}


# -- the grid


class _RecordedGrid:
    """A grid function's answers, looked up by the config's values."""

    def __init__(self, record: GridRecord) -> None:
        self._names = record["names"]
        self._answers = record["by_config"]

    def __call__(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        """Return what the recorded function said for the config in ``meta``.

        Raises:
            UsageError: it was not asked for this config.
        """
        digest = meta_digest(self._names, meta)
        if digest is None or digest not in self._answers:
            values = {name: meta.get(name) for name in self._names}
            raise UsageError(
                f"the manifest has no grid for {values}: the config is newer than the recording, "
                "or the grid function failed on it. Record the launch again.",
            )
        return tuple(self._answers[digest])


def _grid(record: GridRecord) -> Any:
    return _RecordedGrid(record) if record["dims"] is None else tuple(record["dims"])


def failure_text(error: Exception, limit: int) -> str:
    """Return, in ``limit`` characters, why an entry could not be replayed, for a report."""
    if isinstance(error, CannotReplay):
        return str(error)
    own = isinstance(error, LaunchkitError)
    return (str(error) if own else f"{type(error).__name__}: {error}".strip())[:limit]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip()[:500]
