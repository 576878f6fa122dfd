"""From what a foreign file says to keys, configs and times, or a refusal. Above base.py.

Raises RefusedError for what has no one meaning. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from launchkit.configs import IMPORTED, ConfigIdentity, TunedConfig, TunedRecord, choose, identify
from launchkit.errors import UnfingerprintableError, UsageError
from launchkit.keys import KeyValue, LaunchKey, Toolchain, encode_value
from launchkit.store.foreign.base import OPTIONS, ForeignContext, RefusedError

FIELDS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
"""What a Triton config has besides its keyword arguments."""
TRITONS_OWN = {"num_ctas": 1}
"""What Triton launches with where a file says nothing."""
PartT = TypeVar("PartT")

_DTYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+\-]{0,63}")


def key_value(name: str, value: object) -> KeyValue:
    """Return a JSON value as a key value. An array is a tuple: a list cannot be a key."""
    return _encode(name, _as_tuple(value))


def _config_identity(kwargs: Mapping[str, object], fields: Mapping[str, object]) -> ConfigIdentity:
    """Return the identity of Triton's config of these keyword arguments and fields.

    As in Triton, a field that is None is not set, and one that is set hides a keyword argument
    of its name. ``num_warps``, ``num_ctas`` and ``num_stages`` must be there, as ints.
    """
    for name in ("num_warps", "num_ctas", "num_stages", "maxnreg"):
        optional = name == "maxnreg"
        value = fields.get(name)
        if not (type(value) is int or (optional and value is None)):
            said = "is not said" if value is None else f"is {value!r}"
            raise RefusedError(f"{name} of a config {said}; it must be an int")
    if not isinstance(fields.get("ir_override"), str | None):
        raise RefusedError("ir_override of a config is no file name")
    given = {name: value for name, value in fields.items() if value is not None}
    merged = {name: _as_tuple(value) for name, value in {**kwargs, **given}.items()}
    try:
        return identify(merged)
    except UnfingerprintableError as error:
        raise RefusedError(str(error)) from None


def flat_config(values: Mapping[str, object]) -> ConfigIdentity:
    """Return the identity of a config whose keyword arguments and fields stand side by side."""
    kwargs = {name: value for name, value in values.items() if name not in FIELDS}
    return _config_identity(kwargs, {name: values.get(name) for name in FIELDS})


def named_config(entry: Mapping[str, object]) -> ConfigIdentity:
    """Return the identity of a config as Triton's own attributes: kwargs beside its fields.

    A hook, and a field that this version does not know, have a meaning that is lost: refused.
    """
    kwargs = entry.get("kwargs")
    if not isinstance(kwargs, dict):
        raise RefusedError("a config has no kwargs")
    unknown = [
        name
        for name, value in entry.items()
        if name not in (*FIELDS, "kwargs") and value is not None
    ]
    if unknown:
        raise RefusedError(
            f"a config has {', '.join(map(repr, sorted(unknown)))}, which is not known"
        )
    return _config_identity(kwargs, {name: entry.get(name) for name in FIELDS})


def split_key(
    names: Sequence[str], parts: Sequence[PartT]
) -> tuple[Sequence[PartT], Sequence[PartT]]:
    """Return a key's values, as many as there are ``names``, and the dtypes that follow them."""
    if len(parts) < len(names):
        raise RefusedError(
            f"its key has {len(parts)} parts, fewer than the {len(names)} key arguments"
        )
    return parts[: len(names)], parts[len(names) :]


def dtypes_in_order(
    context: ForeignContext, dtypes: Sequence[object]
) -> tuple[tuple[str, str | None], ...]:
    """Return each parameter's dtype, from a file's dtypes in the order of ``context.tensors``."""
    tensors = context.tensors or ()
    if len(dtypes) != len(tensors):
        raise RefusedError(
            f"it has dtypes of {len(dtypes)} arguments, not of the {len(tensors)} that are given "
            f"({OPTIONS['tensors']}), so that nobody knows which is whose"
        )
    return dtypes_by_name(context, dict(zip(tensors, dtypes, strict=True)))


def dtypes_by_name(
    context: ForeignContext, dtypes: Mapping[str, object]
) -> tuple[tuple[str, str | None], ...]:
    """Return each parameter's dtype, None where ``dtypes`` has none for it."""
    for name, dtype in dtypes.items():
        if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
            raise RefusedError(f"{dtype!r} is no dtype of {name}")
    parameters = context.parameters or ()
    return tuple((name, _text_or_none(dtypes.get(name))) for name in parameters)


def launch_key(values: Iterable[KeyValue], dtypes: tuple[tuple[str, str | None], ...]) -> LaunchKey:
    """Return the key; RefusedError where it names something twice or has no digest."""
    try:
        key = LaunchKey(tuple(values), dtypes)
        key.digest  # noqa: B018 - made here, so that what cannot be hashed is refused here
    except UsageError as error:
        raise RefusedError(str(error)) from None
    return key


def toolchain(context: ForeignContext, said: object) -> Toolchain:
    """Return the toolchain that a file names, or else the context's; they must not differ."""
    if said is None:
        if context.toolchain is None:
            raise RefusedError(f"it does not say Triton's version: give {OPTIONS['toolchain']}")
        return context.toolchain
    if not isinstance(said, str) or not _VERSION.fullmatch(said):
        raise RefusedError(f"{said!r} is no version of Triton")
    if context.toolchain is not None and context.toolchain.triton != said:
        raise RefusedError(f"it is of Triton {said}, not of {context.toolchain.triton}")
    return Toolchain(said)


def measured(
    config: ConfigIdentity, times_ms: Sequence[object], *, quantiles: bool, method: str
) -> TunedConfig:
    """Return a result from times in milliseconds: the median first, then p20 and p80.

    NaN, Infinity, zero and negative times are failures. Raises RefusedError where a time is no
    number. Where the rest is not ``quantiles``, only the first counts.
    """
    if not times_ms or not all(type(time) in (int, float) for time in times_ms):
        raise RefusedError("a config's times are not numbers")
    times_us = [_microseconds(time) for time in times_ms]
    if not quantiles or len(times_us) != 3:
        times_us = times_us[:1]
    return TunedConfig.measured(config, times_us, reps=None, method=method)


def record(
    context: ForeignContext,
    *,
    triton: Toolchain,
    key: LaunchKey,
    configs: Sequence[TunedConfig],
    chosen: ConfigIdentity | None = None,
) -> TunedRecord:
    """Return a record of the context's kernel and device; ``chosen`` is else the fastest."""
    assert context.kernel is not None
    assert context.device is not None
    if chosen is None:
        best = choose(configs)
        if best is None:
            raise RefusedError("none of its configs has a time: all failed, or there are none")
        chosen = best.config
    try:
        return TunedRecord(
            kernel=context.kernel,
            device=context.device,
            toolchain=triton,
            key=key,
            configs=tuple(configs),
            chosen=chosen,
        )
    except UsageError as error:
        raise RefusedError(str(error)) from None


def method_of(context: ForeignContext, name: str) -> str:
    """Return the context's method, or one that names the format and compares with no other."""
    return context.method or f"{IMPORTED}{name}"


def untimed(config: ConfigIdentity, name: str) -> TunedConfig:
    """Return a winner without a time."""
    return TunedConfig.imported(config, method=f"{IMPORTED}{name}")


def _encode(name: str, value: object) -> KeyValue:
    try:
        return encode_value(name, value)
    except UnfingerprintableError as error:
        raise RefusedError(str(error)) from None


def _as_tuple(value: object) -> object:
    if isinstance(value, list):
        return tuple(_as_tuple(item) for item in value)
    return value


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _microseconds(time_ms: object) -> float:
    assert isinstance(time_ms, int | float)
    try:
        return float(time_ms) * 1e3
    except OverflowError:
        return float("inf")
