"""Which layers hold Mamba state: the Mamba groups of a cache configuration, and their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from launchkit.errors import UsageError
from launchkit.kernels import arguments
from launchkit.kernels.state_copy.copy_specs import StateKind, is_conv_state_dim_first, kind_of
from launchkit.kernels.state_copy.layout import StateTensor
from launchkit.kernels.state_copy.protocols import (
    CopyFuncs,
    ForwardContext,
    KVCacheConfig,
    MambaSpec,
    StateCopyFunc,
)


def get_mamba_groups(kv_cache_config: KVCacheConfig) -> tuple[list[int], MambaSpec]:
    """Return the ids of the groups that hold Mamba state, and the specification they share.

    A specification is a Mamba one if it has ``num_speculative_blocks``; a group whose
    ``kv_cache_specs`` holds one per layer counts as that which all of them equal.

    Raises UsageError if there is no such group, or if two of them differ.
    """
    found: list[tuple[int, MambaSpec]] = []
    for group_id, group in enumerate(kv_cache_config.kv_cache_groups):
        for spec in _specs_of(group.kv_cache_spec):
            if found and spec != found[0][1]:
                raise _differing(found[0], (group_id, spec))
            if not found or found[-1][0] != group_id:
                found.append((group_id, spec))
    if not found:
        raise UsageError(
            "get_mamba_groups: kv_cache_config has no group of Mamba layers. Call it for models "
            "that have some.",
            op="get_mamba_groups",
            groups=len(kv_cache_config.kv_cache_groups),
        )
    return [group_id for group_id, _ in found], found[0][1]


def _specs_of(spec: Any) -> Iterator[MambaSpec]:
    per_layer = getattr(spec, "kv_cache_specs", None)
    for each in (spec,) if per_layer is None else per_layer.values():
        if hasattr(each, "num_speculative_blocks"):
            yield each


def _differing(first: tuple[int, MambaSpec], other: tuple[int, MambaSpec]) -> UsageError:
    return UsageError(
        f"get_mamba_groups: groups {first[0]} and {other[0]} have different Mamba specifications, "
        f"{first[1]!r} and {other[1]!r}. Give all Mamba layers one specification.",
        op="get_mamba_groups",
        groups=(first[0], other[0]),
    )


def copy_funcs_for(spec: MambaSpec, copy_funcs: CopyFuncs) -> tuple[StateCopyFunc, ...]:
    """Return the copy functions of a layer's states, in the order of its ``kv_cache``.

    Raises UsageError if a mapping has none for the specification's ``mamba_type``.
    """
    if not isinstance(copy_funcs, Mapping):
        return tuple(copy_funcs)
    mamba_type = getattr(spec, "mamba_type", None)
    if mamba_type not in copy_funcs:
        raise UsageError(
            f"there are no copy functions for mamba_type {mamba_type!r}, only for "
            f"{list(copy_funcs)}. Add them to the mapping.",
            mamba_type=mamba_type,
        )
    return tuple(copy_funcs[mamba_type])


def count_layers(kv_cache_config: KVCacheConfig, group_ids: Sequence[int]) -> int:
    """Return how many layers the groups have."""
    return sum(len(kv_cache_config.kv_cache_groups[each].layer_names) for each in group_ids)


class LayerState(NamedTuple):
    """One state tensor of the walk over groups, layers and states."""

    layer: str
    group_index: int
    """Position in the list of Mamba groups, not the group id."""
    state: torch.Tensor
    copy_func: StateCopyFunc


def walk_states(
    op: str,
    kv_cache_config: KVCacheConfig,
    group_ids: Sequence[int],
    copy_funcs: Sequence[StateCopyFunc],
    forward_context: ForwardContext,
) -> Iterator[LayerState]:
    """Yield every state tensor in the order group, layer, state.

    Raises UsageError for a layer that is not in the context, or has too few state tensors.
    """
    for group_index, group_id in enumerate(group_ids):
        for name in kv_cache_config.kv_cache_groups[group_id].layer_names:
            if name not in forward_context:
                raise _bad_layer(op, name, "is not in the forward context", "Build the model first")
            states = forward_context[name].kv_cache
            if len(states) < len(copy_funcs):
                problem = f"has {len(states)} state tensors for {len(copy_funcs)} copy functions"
                raise _bad_layer(op, name, problem, "Bind its caches first")
            for state, copy_func in zip(states, copy_funcs, strict=False):
                yield LayerState(name, group_index, state, copy_func)


def _bad_layer(op: str, layer: str, problem: str, advice: str) -> UsageError:
    return UsageError(f"{op}: layer {layer!r} {problem}. {advice}.", op=op, layer=layer)


def state_tensors(op: str, walk: Sequence[LayerState]) -> list[StateTensor]:
    """Return the states of a walk for ``layout.state_table``, in the layout of this process.

    Raises UsageError for a copy function that is neither a conv nor a temporal one, for a conv
    state that is not 3-D, and for blocks with gaps inside.
    """
    kinds = [kind_of(each.copy_func) for each in walk]
    for each, kind in zip(walk, kinds, strict=True):
        problem = _problem(each, kind)
        if problem is not None:
            raise _bad_layer(op, each.layer, *problem)
    return [
        StateTensor(each.state, kind is StateKind.CONV, each.group_index)
        for each, kind in zip(walk, kinds, strict=True)
    ]


def _problem(each: LayerState, kind: StateKind | None) -> tuple[str, str] | None:
    """Return what is wrong with a state, and what to do; None if nothing is."""
    if kind is None:
        return f"has the unknown copy function {each.copy_func!r}", "Pass it to register_copy_func"
    state, shape = each.state, tuple(each.state.shape)
    is_conv = kind is StateKind.CONV
    if is_conv and state.dim() != 3:
        wanted = "Pass (blocks, width, dim), or (blocks, dim, width) in the DS layout"
        return f"has a conv state of shape {shape}, not 3-D", wanted
    # Channels of the DS layout may lie apart: they are copied one by one.
    inner = state[:, :1] if is_conv and is_conv_state_dim_first() else state
    if not arguments.rows_are_dense(inner):
        problem = f"has a state of shape {shape} with strides {state.stride()}"
        return problem, "Pass states whose blocks have no gaps inside"
    return None
