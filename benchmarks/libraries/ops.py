"""Operators of other people's libraries, as they come from PyPI, each with inputs of one size.

Needs ``liger-kernel`` and ``flash-linear-attention``; imports them when an operator is made.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from triton.runtime.autotuner import Autotuner

Tensors = tuple[torch.Tensor, ...]

BATCH, TOKENS, HEADS, WIDTH = 1, 256, 4, 64
"""Small: what is measured is the host."""


@dataclass(frozen=True)
class PreparedOperator:
    """One operator with its inputs."""

    inputs: Tensors
    """Those that get a gradient; empty for an operator that is used without."""
    forward: Callable[[], Tensors]

    def __call__(self) -> Tensors:
        """Run forward and, where there are gradients, backward; return outputs and gradients."""
        outputs = self.forward()
        if not self.inputs:
            return outputs
        ones = [torch.ones_like(output) for output in outputs]
        return (*outputs, *torch.autograd.grad(outputs, self.inputs, ones))


@dataclass(frozen=True)
class LibraryOperator:
    """An operator by name; ``prepare(device)`` makes it, with inputs from a fixed seed."""

    name: str
    library: str
    make: Callable[[_Inputs], PreparedOperator]

    def prepare(self, device: str) -> PreparedOperator:
        """Return the operator with fresh inputs, the same each time."""
        return self.make(_Inputs(device))


class _Inputs:
    def __init__(self, device: str) -> None:
        self._device = device
        self._generator = torch.Generator().manual_seed(7)

    def random(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        values = torch.randn(*shape, generator=self._generator) * scale
        return values.to(torch.bfloat16).to(self._device).requires_grad_()

    def fixed(self, *shape: int) -> torch.Tensor:
        return self.random(*shape).detach()

    def heads(self, count: int) -> list[torch.Tensor]:
        return [self.random(BATCH, TOKENS, HEADS, WIDTH, scale=0.5) for _ in range(count)]

    def gates(self, *shape: int) -> torch.Tensor:
        values = torch.nn.functional.logsigmoid(torch.randn(*shape, generator=self._generator))
        return values.to(self._device).requires_grad_()

    def targets(self, count: int, classes: int) -> torch.Tensor:
        found = torch.randint(classes, (count,), generator=self._generator)
        return found.to(self._device)


# -- liger-kernel: plain kernels


def _rms_norm(new: _Inputs) -> PreparedOperator:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as Function

    x, weight = new.random(TOKENS, 1024), new.random(1024)
    return PreparedOperator(
        (x, weight), lambda: (Function.apply(x, weight, 1e-6, 0.0, "llama", False),)
    )


def _layer_norm(new: _Inputs) -> PreparedOperator:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction as Function

    inputs = new.random(TOKENS, 1024), new.random(1024), new.random(1024)
    return PreparedOperator(inputs, lambda: (Function.apply(*inputs, 1e-6),))


def _swiglu(new: _Inputs) -> PreparedOperator:
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction as Function

    inputs = new.random(TOKENS, 1024), new.random(TOKENS, 1024)
    return PreparedOperator(inputs, lambda: (Function.apply(*inputs),))


def _geglu(new: _Inputs) -> PreparedOperator:
    from liger_kernel.ops.geglu import LigerGELUMulFunction as Function

    inputs = new.random(TOKENS, 1024), new.random(TOKENS, 1024)
    return PreparedOperator(inputs, lambda: (Function.apply(*inputs),))


def _rope(new: _Inputs) -> PreparedOperator:
    from liger_kernel.ops.rope import LigerRopeFunction as Function

    q, k = (new.random(BATCH, HEADS, TOKENS, WIDTH) for _ in range(2))
    cos, sin = new.fixed(1, TOKENS, WIDTH), new.fixed(1, TOKENS, WIDTH)

    def forward() -> Tensors:
        # It rotates in place.
        rotated: Tensors = Function.apply(q.clone(), k.clone(), cos, sin)
        return rotated

    return PreparedOperator((q, k), forward)


def _cross_entropy(new: _Inputs) -> PreparedOperator:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as Function

    logits, target = new.random(TOKENS, 2048), new.targets(TOKENS, 2048)
    # It writes the gradient over its input.
    return PreparedOperator((logits,), lambda: (Function.apply(logits.clone(), target, None)[0],))


# -- flash-linear-attention: autotuned kernels, most below heuristics


def _chunk_gated_delta_rule(new: _Inputs) -> PreparedOperator:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k, v = new.heads(3)
    g, beta = new.gates(BATCH, TOKENS, HEADS), new.random(BATCH, TOKENS, HEADS, scale=0.1)
    options = {"use_qk_l2norm_in_kernel": True}
    return PreparedOperator(
        (q, k, v, g, beta), lambda: chunk_gated_delta_rule(q, k, v, g, beta, **options)[:1]
    )


def _chunk_delta_rule(new: _Inputs) -> PreparedOperator:
    from fla.ops.delta_rule import chunk_delta_rule

    q, k, v = new.heads(3)
    beta = new.random(BATCH, TOKENS, HEADS, scale=0.1)
    options = {"use_qk_l2norm_in_kernel": True}
    return PreparedOperator((q, k, v, beta), lambda: chunk_delta_rule(q, k, v, beta, **options)[:1])


def _chunk_gla(new: _Inputs) -> PreparedOperator:
    from fla.ops.gla import chunk_gla

    q, k, v = new.heads(3)
    g = new.gates(BATCH, TOKENS, HEADS, WIDTH)
    return PreparedOperator((q, k, v, g), lambda: chunk_gla(q, k, v, g)[:1])


def _chunk_simple_gla(new: _Inputs) -> PreparedOperator:
    from fla.ops.simple_gla import chunk_simple_gla

    q, k, v = new.heads(3)
    g = new.gates(BATCH, TOKENS, HEADS)
    return PreparedOperator((q, k, v, g), lambda: chunk_simple_gla(q, k, v, g)[:1])


def _chunk_retention(new: _Inputs) -> PreparedOperator:
    from fla.ops.retention import chunk_retention

    q, k, v = new.heads(3)
    return PreparedOperator((q, k, v), lambda: chunk_retention(q, k, v)[:1])


def _fused_recurrent_gated_delta_rule(new: _Inputs) -> PreparedOperator:
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    q, k, v = (each[:, :1].detach().contiguous() for each in new.heads(3))
    g, beta = new.gates(BATCH, 1, HEADS).detach(), new.fixed(BATCH, 1, HEADS)
    return PreparedOperator((), lambda: fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta)[:1])


def _l2norm(new: _Inputs) -> PreparedOperator:
    try:
        from fla.modules.norm.l2norm import l2norm
    except ModuleNotFoundError:  # before 0.6
        from fla.modules.l2norm import l2norm

    x = new.random(TOKENS, HEADS, WIDTH)
    return PreparedOperator((x,), lambda: (l2norm(x),))


_LIGER, _FLA = "liger-kernel", "flash-linear-attention"
OPERATORS = {
    operator.name: operator
    for operator in (
        LibraryOperator("rms_norm", _LIGER, _rms_norm),
        LibraryOperator("layer_norm", _LIGER, _layer_norm),
        LibraryOperator("swiglu", _LIGER, _swiglu),
        LibraryOperator("geglu", _LIGER, _geglu),
        LibraryOperator("rope", _LIGER, _rope),
        LibraryOperator("cross_entropy", _LIGER, _cross_entropy),
        LibraryOperator("chunk_gated_delta_rule", _FLA, _chunk_gated_delta_rule),
        LibraryOperator("chunk_delta_rule", _FLA, _chunk_delta_rule),
        LibraryOperator("chunk_gla", _FLA, _chunk_gla),
        LibraryOperator("chunk_simple_gla", _FLA, _chunk_simple_gla),
        LibraryOperator("chunk_retention", _FLA, _chunk_retention),
        LibraryOperator(
            "fused_recurrent_gated_delta_rule", _FLA, _fused_recurrent_gated_delta_rule
        ),
        LibraryOperator("l2norm", _FLA, _l2norm),
    )
}


def pin_configs() -> int:
    """Leave each autotuned kernel of the libraries its first config; return how many there are.

    Which config is the fastest does not matter here, and tuning takes minutes.
    """
    tuners = {id(tuner): tuner for module in _library_modules() for tuner in _tuners(module)}
    for tuner in tuners.values():
        del tuner.configs[1:]
    return len(tuners)


def _library_modules() -> list[Any]:
    parts = ("fla", "liger_kernel")
    return [module for name, module in sys.modules.items() if name.split(".")[0] in parts]


def _tuners(module: Any) -> Iterator[Any]:
    for value in list(vars(module).values()):
        while hasattr(value, "fn") and hasattr(value, "run"):
            if isinstance(value, Autotuner):
                yield value
            value = value.fn


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """Let torch name a GPU while host-only mode is active: the libraries ask it on import."""
    answers: dict[str, Any] = {
        "get_device_name": lambda device=None: "NVIDIA H200",
        "get_device_capability": lambda device=None: (9, 0),
        "device": lambda device: contextlib.nullcontext(),
    }
    with mock.patch.multiple(torch.cuda, **answers):
        yield


def equal(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Tell whether two results have the same bits, NaN included."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and torch.equal(a.isnan(), b.isnan())
        and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(left, right, strict=True)
    )  # fmt: skip
