"""``launchkit configs push``, ``pull`` and ``status``: a config service. Of the tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from launchkit import clock, settings
from launchkit.configs import TunedRecord
from launchkit.errors import LaunchkitError, ServiceError
from launchkit.store import ConfigStore, LayeredStore
from launchkit.tools.configs_merge import DryRun, PolicyName, merge_records_into, report
from launchkit.tools.configs_output import (
    DevicePart,
    KernelPart,
    StorePlace,
    fail,
    finding,
    open_or_exit,
    show,
    table,
    target_or_exit,
    wanted,
    working,
)
from launchkit.tools.output import AsJson, echo_json, numbered

if TYPE_CHECKING:
    from launchkit.service.client.store import ServiceStore

_STATUS_S = 5.0

ServiceUrl = Annotated[
    str | None,
    typer.Option("--service", help="https://host:port/namespace; left out: LAUNCHKIT_SERVICE."),
]


def push(
    service: ServiceUrl = None,
    store: StorePlace = None,
    policy: PolicyName = "faster",
    kernel: KernelPart = None,
    device: DevicePart = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Send the records of a store to a config service, by a policy where both have one.

    What is tuned is sent as it comes; this sends what was tuned before, or while the service was
    down. It needs a token that may write (LAUNCHKIT_SERVICE_TOKEN).
    """
    target = _answering(service)
    if target.read_only and not dry_run:
        fail(f"the {target.describe()} takes nothing without a token. Set "
             "LAUNCHKIT_SERVICE_TOKEN.")  # fmt: skip
    local = _local_layers(open_or_exit(store))
    with working("looking at the store"):
        unreadable = [each for layer in local for each in layer.examine().broken]
    records = _once(local)
    merging = merge_records_into(target, wanted(records, kernel, device), policy, dry_run)
    report(merging, target, unreadable, dry_run, as_json)


def pull(
    service: ServiceUrl = None,
    store: StorePlace = None,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", help="The digest of a snapshot to take instead.")
    ] = None,
    policy: PolicyName = "faster",
    kernel: KernelPart = None,
    device: DevicePart = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take the records of a config service into a store, by a policy where both have one.

    Launches ask the service by themselves; this is for machines that will not reach it, and for
    taking exactly what a snapshot holds.
    """
    source = _answering(service)
    target = target_or_exit(store, dry_run)
    try:
        with working("asking the service"):
            if snapshot is None:
                found, unsigned = source.download()
            else:
                found, unsigned = source.snapshot(snapshot), 0
    except ServiceError as error:
        fail(str(error))
    left_out = [
        (source.url, f"{numbered(unsigned, 'record')}, not signed with this LAUNCHKIT_SERVICE_KEY")
    ]
    merging = merge_records_into(target, wanted(found, kernel, device), policy, dry_run)
    report(merging, target, left_out if unsigned else [], dry_run, as_json)


def status(service: ServiceUrl = None, as_json: AsJson = False) -> None:
    """Ask a config service how it is, and say how this machine would use it.

    Exit code 1: it does not answer as it should; launches go on without it.
    """
    opened = _opened(service)
    used = _use(opened)
    start_ns = clock.now_ns()
    try:
        said = opened.status(_STATUS_S).model_dump()
        said["namespace_records"] = opened.namespaces(_STATUS_S).get(opened.namespace)
        problem = None
    except ServiceError as error:
        said, problem = {}, str(error)
    took_ms = (clock.now_ns() - start_ns) / 2e6
    if as_json:
        answer_ms = None if problem else took_ms
        echo_json({"service": said, "answer_ms": answer_ms, "problem": problem, "client": used})
    else:
        rows = [[name.replace("_", " "), _shown(value)] for name, value in {**said, **used}.items()]
        show(table(opened.describe(), ["what", "value"], rows))
    if problem is not None:
        finding(problem)
    if said["namespace_records"] is None:
        finding(f"it has no namespace {opened.namespace!r}, or does not show it to this token.")
    if not as_json:
        typer.echo(f"answers in {took_ms:.1f} ms")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "not to be seen"
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _use(store: ServiceStore) -> dict[str, Any]:
    said = settings.current()
    return {
        "url": store.url,
        "writes": not store.read_only,
        "signs": said.service_key is not None,
        "timeout_ms": said.service_timeout_ms,
        "lease_s": said.service_lease_s,
        "copy": "none" if store.copy is None else store.copy.describe(),
    }


def _opened(url: str | None) -> ServiceStore:
    from launchkit.service.client.opening import open_service

    named = url or settings.current().service
    if named is None:
        fail("no service is named. Give --service https://host:port/namespace, or set "
             "LAUNCHKIT_SERVICE.")  # fmt: skip
    try:
        opened = open_service(named)
    except LaunchkitError as error:
        fail(str(error))
    opened.take_time()
    return opened


def _answering(url: str | None) -> ServiceStore:
    """Return the service's store; exit code 2 where it does not answer."""
    opened = _opened(url)
    try:
        opened.status(_STATUS_S)
    except ServiceError as error:
        fail(str(error))
    return opened


def _local_layers(store: ConfigStore) -> list[ConfigStore]:
    layers = store.layers if isinstance(store, LayeredStore) else (store,)
    return [layer for layer in layers if not layer.is_remote]


def _once(layers: list[ConfigStore]) -> Iterator[TunedRecord]:
    if layers:
        yield from LayeredStore(layers).records()
