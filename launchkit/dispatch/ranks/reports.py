"""What a rank tells the others: devices, kernels, config lists, records. Below uniting.py.

Records travel only where ranks differ; of all others a digest does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from launchkit import jsonio
from launchkit.configs import ConfigIdentity, TunedConfig, TunedRecord, config_digest
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.errors import AgreementError, LaunchkitError, UnfingerprintableError
from launchkit.keys import DeviceId, KernelId, LaunchKey
from launchkit.store import ConfigStore, document
from launchkit.store.agreeing import IN_USE, ConfigList, with_choice
from launchkit.store.document import ConfigDocument
from launchkit.store.flights import identity_digest

_log = logging.getLogger("launchkit")
_LIMIT_BYTES = 2**30
_STRICT = ConfigDict(strict=True, extra="forbid")
_Text = Annotated[str, Field(max_length=4096)]

SAME_VERSION = "Install the same version of launchkit for every rank."

Records: TypeAlias = dict[str, TunedRecord]
"""Records by ``identity_digest``."""


@with_config(_STRICT)
class Known(TypedDict):
    """A record that a rank has: of which kernel, on which device, and what stands for it."""

    kernel: _Text
    device: _Text
    digest: _Text


@with_config(_STRICT)
class Listed(TypedDict):
    """A kernel's configs, and how they are measured."""

    method: _Text
    configs: list[_Text]


@with_config(_STRICT)
class Report(TypedDict):
    """What a rank says first. ``all_kernels``: it may use kernels that it has not launched yet."""

    devices: list[_Text]
    all_kernels: bool
    lists: dict[_Text, Listed]
    known: dict[_Text, Known]


@with_config(_STRICT)
class _Sent(TypedDict):
    pinned: bool
    document: dict[str, Any]


_REPORT, _SENT = TypeAdapter(Report), TypeAdapter(list[_Sent])


@dataclass(frozen=True)
class Knowledge:
    """What this rank knows: its report, and the records behind it."""

    report: Report
    records: Records


def _named(kernel: KernelId) -> str:
    """Return what a kernel is called in a report."""
    return f"{kernel.name}:{kernel.digest}"


def uses(report: Report, known: Known) -> bool:
    """Tell whether a rank launches, or may launch, what a record is of."""
    kernel = report["all_kernels"] or known["kernel"] in report["lists"]
    return kernel and known["device"] in report["devices"]


def config_list(report: Report, known: Known) -> ConfigList | None:
    """Return the configs that a rank's kernel has; None if it was not launched there yet."""
    listed = report["lists"].get(known["kernel"])
    return None if listed is None else ConfigList(listed["method"], frozenset(listed["configs"]))


def collect(store: ConfigStore, choosers: Sequence[ConfigChooser], all_kernels: bool) -> Knowledge:
    """Gather what this rank knows of the kernels behind ``choosers``, or of all kernels."""
    lists: dict[str, Listed] = {}
    kernels: list[KernelId] = []
    chosen: dict[str, TunedRecord] = {}
    devices = _devices()
    for chooser in choosers:
        try:
            kernel, configs = chooser.identities()
            choices = chooser.chosen()
        except UnfingerprintableError as error:
            _log.debug("the ranks do not agree on a kernel: %s", error)
            continue
        kernels.append(kernel)
        digests = sorted({config_digest(config) for config in configs})
        lists[_named(kernel)] = {"method": chooser.method, "configs": digests}
        devices |= {device for device, _ in choices}
        for record in _choices(kernel, choices):
            chosen[identity_digest(record.identity)] = record
    found = dict(_stored(store, None if all_kernels else kernels, devices))
    records = {digest: _as_chosen(found.get(digest), each) for digest, each in chosen.items()}
    records = {**found, **records}
    report: Report = {
        "devices": sorted(device.slug for device in devices),
        "all_kernels": all_kernels,
        "lists": lists,
        "known": {digest: _known(record) for digest, record in records.items()},
    }
    return Knowledge(report, records)


def _devices() -> set[DeviceId]:
    try:
        return {seam.device_identity(seam.current_device())}
    except (LaunchkitError, RuntimeError):  # no driver: this rank launches nothing
        return set()


def _stored(
    store: ConfigStore, kernels: Iterable[KernelId] | None, devices: set[DeviceId]
) -> Iterator[tuple[str, TunedRecord]]:
    """Yield the store's records of this toolchain; a store that fails has none."""
    toolchain = seam.toolchain()
    try:
        if kernels is None:
            found = [each for each in store.records() if each.device in devices]
        else:
            wanted = set(kernels)
            names = {kernel.name for kernel in wanted}
            listed = [each for name in sorted(names) for each in store.records_of(name)]
            found = [each for each in listed if each.kernel in wanted]
    except Exception as error:  # noqa: BLE001 - a store may fail in any way
        _log.warning("%s cannot be read (%r): this rank tells others nothing", store, error)
        return
    for record in found:
        if record.toolchain == toolchain:
            yield identity_digest(record.identity), record


def _choices(
    kernel: KernelId, choices: Mapping[tuple[DeviceId, LaunchKey], ConfigIdentity]
) -> Iterator[TunedRecord]:
    """Yield a record without times for each choice of this process."""
    for (device, key), config in choices.items() if seam.executes() else ():
        result = TunedConfig.imported(config, method=IN_USE)
        yield TunedRecord(kernel, device, seam.toolchain(), key, (result,), config)


def _as_chosen(stored: TunedRecord | None, choice: TunedRecord) -> TunedRecord:
    """What this process launches counts, whatever the store says by now.

    A choice that was not measured here (Triton's own, or by another key's record) has no time.
    """
    if stored is None or stored.chosen == choice.chosen:
        return stored or choice
    results = [tuned for tuned in stored.configs if tuned.ok and tuned.config == choice.chosen]
    alike = (tuned for tuned in results if tuned.method == stored.winner.method)
    winner = next(alike, results[0] if results else None)
    return choice if winner is None else with_choice(stored, winner)


def _known(record: TunedRecord) -> Known:
    digest = jsonio.digest(_sendable(record))[:32]
    return {"kernel": _named(record.kernel), "device": record.device.slug, "digest": digest}


# -- messages


def dump_report(report: Report) -> bytes:
    """Return a report as a message."""
    return jsonio.dumps_compact(report)


def load_report(data: bytes, rank: int) -> Report:
    """Return the report in a message; AgreementError for one that is none."""
    raw = jsonio.loads(data, source=f"rank {rank}", limit_bytes=_LIMIT_BYTES)
    try:
        return _REPORT.validate_python(raw)
    except ValidationError as error:
        raise AgreementError(
            f"rank {rank} runs another launchkit ({error})", advice=SAME_VERSION
        ) from None


def dump_records(records: Iterable[TunedRecord]) -> bytes:
    """Return records as a message, with what is pinned."""
    return jsonio.dumps_compact([_sendable(record) for record in records])


def load_records(data: bytes, rank: int) -> Records:
    """Return the records in a message; AgreementError for one that is none."""
    source = f"rank {rank}"
    try:
        sent = _SENT.validate_python(jsonio.loads(data, source=source, limit_bytes=_LIMIT_BYTES))
    except ValidationError as error:
        raise AgreementError(
            f"rank {rank} runs another launchkit ({error})", advice=SAME_VERSION
        ) from None
    records: Records = {}
    for each in sent:
        for record in document.from_object(each["document"], source=source).records:
            records[identity_digest(record.identity)] = replace(record, pinned=each["pinned"])
    return records


def _sendable(record: TunedRecord) -> Mapping[str, Any]:
    plain = replace(record, pinned=False)
    whole = ConfigDocument(record.kernel, record.device, (plain,))
    return {"pinned": record.pinned, "document": document.to_object(whole)}
