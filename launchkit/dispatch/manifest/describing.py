"""From a launch to a manifest's entry: its kernel's place, arguments, kind. Below recording.py.

Nothing of a tensor is read but its form. What cannot be described raises Indescribable, with the
reason that the manifest lists.
"""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from launchkit import jsonio
from launchkit.configs import config_digest
from launchkit.dispatch import fingerprint
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.layers import KernelParts, declared_name, layers_of, shown_name
from launchkit.dispatch.manifest.document import (
    Argument,
    GridRecord,
    KernelPlace,
    TensorArgument,
)
from launchkit.errors import UnfingerprintableError
from launchkit.keys import encode_value

_ALIGNMENT_BYTES = 256
"""The coarsest alignment that is told apart; Triton itself asks for 16."""
_DEPTH = 8


class Indescribable(Exception):  # noqa: N818 - no error: it is listed
    """A launch that cannot be replayed; the text is the reason."""


def locate(kernel: Any, parts: KernelParts) -> KernelPlace:
    """Return where a kernel can be imported from.

    Raises Indescribable where it cannot be: made inside a function, or in a script.
    """
    jit = parts.jit
    module = _importable(jit.fn.__module__)
    home = sys.modules.get(jit.fn.__module__)
    for qualname in _names(home, jit.fn.__qualname__):
        layers = layers_of(_inside(home, qualname))
        found = [index for index, layer in enumerate(layers) if layer is kernel]
        if found:
            return {
                "module": module,
                "qualname": qualname,
                "layer": found[0],
                "name": shown_name(kernel),
                "digest": kernel_digest(kernel, jit),
            }
    raise Indescribable(
        f"no name of the module {module} stands for this kernel, as where one is made inside a "
        "function; give it a name in a module"
    )


def kernel_digest(kernel: Any, jit: Any) -> str | None:
    """Return the digest of a kernel's identity, or None if it has none."""
    try:
        return fingerprint.kernel_id(jit, declared_name(kernel)).digest
    except UnfingerprintableError:
        return None


def _importable(module: str) -> str:
    if module != "__main__":
        return module
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None:
        raise Indescribable(
            "it is in the script that was run, which cannot be imported; move it into a module"
        )
    return str(spec.name)


def _names(home: Any, qualname: str) -> Iterator[str]:
    """Yield what a kernel may be called in its module: as its function, or by another name."""
    if "<" not in qualname:
        yield qualname
    for name, value in list(vars(home).items()) if home is not None else ():
        if hasattr(value, "fn") and name.isidentifier():
            yield name


def _inside(home: Any, qualname: str) -> Any:
    value = home
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return value


# -- arguments


def describe_argument(value: Any, depth: int = 0) -> Argument:
    """Return an argument's description.

    Raises Indescribable for what cannot be made again in another process.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if type(value) is tuple and depth < _DEPTH:
        return {"kind": "tuple", "items": [describe_argument(each, depth + 1) for each in value]}
    if isinstance(value, seam.JITFunction):
        return _function(value)
    if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
        return _descriptor(value)
    if isinstance(value, enum.Enum) and type(value).__module__ == "__main__":
        raise Indescribable(f"{value!r} is of a class in the script that was run")
    try:
        encoded = encode_value("value", value)
    except UnfingerprintableError:
        raise Indescribable(
            f"an argument of type {type(value).__module__}.{type(value).__qualname__} cannot be "
            "made again in another process"
        ) from None
    return {"kind": "value", "type": encoded.type, "value": encoded.value}


def _tensor(value: torch.Tensor) -> TensorArgument:
    if value.layout is not torch.strided:
        raise Indescribable(f"a tensor of layout {value.layout} has no strides")
    on_gpu = value.is_cuda or not seam.device_source().tensors_on_cuda
    address = value.data_ptr()
    alignment = min(address & -address, _ALIGNMENT_BYTES) if address else _ALIGNMENT_BYTES
    return cast(
        "TensorArgument",
        {
            "kind": "tensor",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "strides": list(value.stride()),
            "alignment": alignment,
            "device": "gpu" if on_gpu else "cpu",
        },
    )


def _function(value: Any) -> Argument:
    module, qualname = _importable(value.fn.__module__), value.fn.__qualname__
    if "<" in qualname or _inside(sys.modules.get(value.fn.__module__), qualname) is not value:
        raise Indescribable(f"the function {qualname} that is an argument cannot be imported")
    return {"kind": "function", "module": module, "qualname": qualname}


def _descriptor(value: Any) -> Argument:
    if type(value) is not TensorDescriptor or getattr(value, "round_f32_to_tf32", False):
        raise Indescribable(f"a tensor descriptor of class {type(value).__qualname__}, or that "
                            "rounds, cannot be made again")  # fmt: skip
    sizes = [[int(each) for each in field]
             for field in (value.shape, value.strides, value.block_shape)]  # fmt: skip
    return {
        "kind": "descriptor",
        "base": _tensor(value.base),
        "shape": sizes[0],
        "strides": sizes[1],
        "block_shape": sizes[2],
        "padding": getattr(value, "padding", None),
    }


# -- the kind: what Triton compiles for and what a config is chosen by, and nothing else


def launch_kind(
    parts: KernelParts, args: Sequence[tuple[Any, Argument]], kwargs: Mapping[str, Any]
) -> str:
    """Return 16 hex digits: equal ones compile and tune alike.

    ``args`` and ``kwargs`` hold (value, description) pairs.
    """
    params = {param.name: param for param in parts.jit.params}
    exact = set() if parts.autotuner is None else set(parts.autotuner.keys)
    exact |= {name for name, param in params.items() if param.is_constexpr}
    named = dict(zip(params, args, strict=False)) | dict(kwargs)
    classes = {
        name: _class(value, description, name in exact or name not in params)
        for name, (value, description) in named.items()
    }
    return jsonio.digest(classes)[:16]


def _class(value: Any, description: Argument, exact: bool) -> Any:
    kind = description["kind"]
    if kind == "tensor":
        return _tensor_class(description)
    if description["kind"] == "descriptor":
        base = _tensor_class(description["base"])
        return [kind, base, description["block_shape"], description["padding"]]
    if description["kind"] == "tuple":
        items = zip(value, description["items"], strict=True)
        return [_class(each, described, exact) for each, described in items]
    if exact or type(value) not in (int, float):
        return dict(description)
    return "float" if type(value) is float else _int_class(value)


def _tensor_class(tensor: Any) -> list[Any]:
    return ["tensor", tensor["dtype"], tensor["alignment"] >= 16, tensor["device"]]


def _int_class(value: int) -> list[Any]:
    width = "i32" if -(2**31) <= value < 2**31 else "i64" if -(2**63) <= value < 2**63 else "u64"
    return [width, value == 1, value % 16 == 0]


# -- the grid


def describe_grid(
    parts: KernelParts, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> GridRecord:
    """Return a grid, or what a grid function says for these arguments and each config."""
    if not callable(grid):
        return {"dims": _dims(grid), "names": [], "by_config": {}}
    bound = fingerprint.bind(parts.jit, args, kwargs)
    if parts.autotuner is None:
        return {"dims": _answer(grid, {**bound, **kwargs}), "names": [], "by_config": {}}
    configs = parts.autotuner.configs
    names = sorted({name for config in configs for name in config.kwargs})
    by_config = {}
    for config in configs:
        meta = {**bound, **config.all_kwargs()}
        digest = meta_digest(names, meta)
        dims = _answer(grid, _with_heuristics(parts, meta))
        if digest is not None and dims is not None:
            by_config[digest] = dims
    return {"dims": None, "names": names, "by_config": by_config}


def meta_digest(names: Sequence[str], values: Mapping[str, Any]) -> str | None:
    """Return what stands for a config's values of ``names`` in a grid's record; None for odd ones.

    ``values`` are what a grid function is given: a name that a config leaves out has its default.
    """
    try:
        encoded = [encode_value(name, values[name]) for name in names if name in values]
    except UnfingerprintableError:
        return None
    return config_digest(encoded)


def _with_heuristics(parts: KernelParts, meta: dict[str, Any]) -> dict[str, Any]:
    try:
        for layer in parts.inner_heuristics:
            for name, heuristic in layer.values.items():
                meta[name] = heuristic(dict(meta))
    except Exception:  # noqa: BLE001 - of a config that is not launched; the grid may not need it
        pass
    return meta


def _answer(grid: Any, meta: dict[str, Any]) -> list[int] | None:
    try:
        return _dims(grid(meta))
    except Exception:  # noqa: BLE001 - a function of the user's, asked about a config never launched
        return None


def _dims(grid: Any) -> list[int]:
    try:
        dims = [operator.index(each) for each in grid]
    except TypeError:
        raise Indescribable(f"the grid {grid!r} is no tuple of ints") from None
    if not 1 <= len(dims) <= 3 or any(not 0 <= each < 2**63 for each in dims):
        raise Indescribable(f"the grid {dims} is none that can be launched")
    return dims
