"""The config document: JSON to records and back. Used by every store; imports leaves only.

One document holds records of one kernel on one device. Numbers stand for counts and times
only; every key and config value is text with its type, as JSON would blur them. A document is
taken whole or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import NotRequired, TypedDict

from launchkit import jsonio
from launchkit.configs import ConfigIdentity, TunedConfig, TunedRecord
from launchkit.errors import BadDocumentError, UsageError
from launchkit.keys import DeviceId, KernelId, KeyValue, LaunchKey, Toolchain
from launchkit.validating import check_schema, validated

SCHEMA = 1
LIMIT_BYTES = 32 * 2**20
"""No larger document is read or written."""

_STRICT = ConfigDict(strict=True, extra="forbid")
_Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]


@with_config(_STRICT)
class _Value(TypedDict):
    name: str
    type: str
    value: str


@with_config(_STRICT)
class _Dtype(TypedDict):
    name: str
    dtype: str | None


@with_config(_STRICT)
class _Kernel(TypedDict):
    name: str
    digest: str


@with_config(_STRICT)
class _Device(TypedDict):
    backend: str
    name: str
    arch: str
    multiprocessors: _Count
    shared_bytes: _Count
    memory_gib: _Count


@with_config(_STRICT)
class _Toolchain(TypedDict):
    triton: str


@with_config(_STRICT)
class _Config(TypedDict):
    config: list[_Value]
    median_us: _Time | None
    p20_us: _Time | None
    p80_us: _Time | None
    reps: Annotated[int, Field(ge=1)] | None
    method: str
    error: str | None


@with_config(_STRICT)
class _Record(TypedDict):
    key: list[_Value]
    dtypes: list[_Dtype]
    toolchain: _Toolchain
    configs: list[_Config]
    chosen: list[_Value]
    tuned_at: NotRequired[str]
    chosen_method: NotRequired[str]
    seconds: NotRequired[Annotated[float, Field(ge=0, allow_inf_nan=False)]]


@with_config(_STRICT)
class _Head(TypedDict):
    schema: int
    kernel: _Kernel
    device: _Device


@with_config(_STRICT)
class _Document(_Head):
    records: list[_Record]


_ADAPTER, _HEAD, _RECORD = TypeAdapter(_Document), TypeAdapter(_Head), TypeAdapter(_Record)


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """The records of one kernel on one device that stand in one file.

    Raises UsageError for a record of another kernel or device, and for two of one identity.
    """

    kernel: KernelId
    device: DeviceId
    records: tuple[TunedRecord, ...]

    def __post_init__(self) -> None:
        if any((each.kernel, each.device) != (self.kernel, self.device) for each in self.records):
            raise UsageError(
                f"a record is not of {self.kernel.name} on {self.device.name}. Give each kernel "
                "and device a document of its own."
            )
        if len({record.identity for record in self.records}) != len(self.records):
            raise UsageError(f"a record of {self.kernel.name} stands twice. Give each one once.")


def json_schema(ref_template: str) -> dict[str, Any]:
    """Return the JSON Schema of documents; parts that it shares stand in ``$defs``.

    ``ref_template`` says how they are referred to, with ``{model}`` in it.
    """
    return _ADAPTER.json_schema(ref_template=ref_template)


def parse(data: bytes, *, source: str) -> ConfigDocument:
    """Return the document in ``data``; ``source`` names it in errors.

    Raises BadDocumentError for anything that is not a whole, valid document of this schema,
    with ``newer`` set where a later schema is the only reason.
    """
    return from_object(jsonio.loads(data, source=source, limit_bytes=LIMIT_BYTES), source=source)


def read(path: Path) -> ConfigDocument:
    """Return the document in a file, as ``parse`` does; OSError where the system refuses."""
    return parse(jsonio.read_limited(path, LIMIT_BYTES), source=str(path))


def from_object(raw: object, *, source: str) -> ConfigDocument:
    """Return the document that ``jsonio.loads`` has read, as ``parse`` does."""
    _check_schema(raw, source)
    with _refusing(source):
        return _document(validated(_ADAPTER, raw, source=source))


def scan(
    data: bytes, *, source: str, visit: Callable[[LaunchKey, int, int], None]
) -> tuple[KernelId, DeviceId]:
    """Return whose document ``data`` is; each record's key and place in bytes go to ``visit``.

    Cheaper than ``parse``: only keys are checked. Raises BadDocumentError as ``parse`` does.
    """
    broken: list[str] = []

    def look(raw: object, start: int, end: int) -> None:
        try:
            visit(launch_key(raw), start, end)
        except (KeyError, TypeError, ValueError) as error:  # UsageError is a ValueError
            broken.append(str(error))

    head = jsonio.scan(data, source=source, limit_bytes=LIMIT_BYTES, array="records", visit=look)
    _check_schema(head, source)
    if broken:
        raise BadDocumentError(source, f"a record's key is none ({broken[0]})")
    if head.pop("records", None) != ():
        raise BadDocumentError(source, "its records are no list")
    with _refusing(source):
        checked = validated(_HEAD, head, source=source)
        return KernelId(**checked["kernel"]), DeviceId(**checked["device"])


def parse_record(data: bytes, kernel: KernelId, device: DeviceId, *, source: str) -> TunedRecord:
    """Return one record of a document, as it stands there.

    Raises BadDocumentError for anything that is not a whole, valid record.
    """
    raw = jsonio.loads(data, source=source, limit_bytes=LIMIT_BYTES)
    with _refusing(source):
        return _record(kernel, device, validated(_RECORD, raw, source=source))


def _check_schema(raw: object, source: str) -> None:
    what = "a launchkit config document"
    check_schema(raw, source=source, field="schema", newest=SCHEMA, what=what)


@contextlib.contextmanager
def _refusing(source: str) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise BadDocumentError(source, str(error)) from None


def launch_key(raw: Any) -> LaunchKey:
    """Return the key of a record that nobody has checked.

    Raises KeyError, TypeError or ValueError for what is none; a key with values that are no text
    is returned, and equals no launch's.
    """
    values = tuple(KeyValue(each["name"], each["type"], each["value"]) for each in raw["key"])
    dtypes = tuple((each["name"], each["dtype"]) for each in raw["dtypes"])
    return LaunchKey(values, dtypes)


def dump(document: ConfigDocument) -> bytes:
    """Return the document as JSON: records sorted by key and toolchain, so that diffs are small."""
    ordered = sorted(document.records, key=lambda each: (each.key.digest, each.toolchain.triton))
    return jsonio.dumps(to_object(ConfigDocument(document.kernel, document.device, tuple(ordered))))


def to_object(document: ConfigDocument) -> dict[str, Any]:
    """Return the document ready for JSON, its records in the order that they have."""
    return {
        "schema": SCHEMA,
        "kernel": asdict(document.kernel),
        "device": asdict(document.device),
        "records": [record_object(record) for record in document.records],
    }


def record_object(record: TunedRecord) -> dict[str, Any]:
    """Return one record as in a document (without kernel and device), ready for JSON."""
    optional = {name: getattr(record, name) for name in ("tuned_at", "chosen_method", "seconds")}
    return {name: value for name, value in optional.items() if value is not None} | {
        "key": [asdict(value) for value in record.key.values],
        "dtypes": [{"name": name, "dtype": dtype} for name, dtype in record.key.dtypes],
        "toolchain": asdict(record.toolchain),
        "configs": [asdict(tuned) for tuned in record.configs],
        "chosen": [asdict(value) for value in record.chosen],
    }


def _document(raw: _Document) -> ConfigDocument:
    kernel, device = KernelId(**raw["kernel"]), DeviceId(**raw["device"])
    records = tuple(_record(kernel, device, each) for each in raw["records"])
    return ConfigDocument(kernel, device, records)


def _record(kernel: KernelId, device: DeviceId, raw: _Record) -> TunedRecord:
    dtypes = tuple((each["name"], each["dtype"]) for each in raw["dtypes"])
    return TunedRecord(
        kernel=kernel,
        device=device,
        toolchain=Toolchain(**raw["toolchain"]),
        key=LaunchKey(_values(raw["key"]), dtypes),
        configs=tuple(_tuned(each) for each in raw["configs"]),
        chosen=_identity(raw["chosen"]),
        chosen_method=raw.get("chosen_method"),
        seconds=raw.get("seconds"),
        tuned_at=raw.get("tuned_at"),
    )


def _tuned(raw: _Config) -> TunedConfig:
    return TunedConfig(
        config=_identity(raw["config"]),
        median_us=raw["median_us"],
        p20_us=raw["p20_us"],
        p80_us=raw["p80_us"],
        reps=raw["reps"],
        method=raw["method"],
        error=raw["error"],
    )


def _values(raw: list[_Value]) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(**each) for each in raw)


def _identity(raw: list[_Value]) -> ConfigIdentity:
    return tuple(sorted(_values(raw), key=attrgetter("name")))
