"""HTTP: leases. Of the service's server."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from launchkit.service import leases
from launchkit.service.answers import documented
from launchkit.service.api.parameters import NONE, LeaseIdentity, LeaseSecret, NamespaceName
from launchkit.service.context import service
from launchkit.service.leases import LeaseKey
from launchkit.service.protocol import AcquireRequest, LeaseGranted, RenewRequest
from launchkit.service.refused import Refused

router = APIRouter(tags=["leases"])

_PATH = "/v1/namespaces/{namespace}/leases/{identity}"
_LOST = documented("lease-lost")
_ENDED = {**_LOST, 204: {"description": "The lease is free."}}


@router.post(
    _PATH,
    operation_id="acquire_lease",
    status_code=201,
    response_model=LeaseGranted,
    responses=documented("lease-held"),
)
def acquire_lease(
    request: Request,
    namespace: NamespaceName,
    identity: LeaseIdentity,
    asked: AcquireRequest,
    launchkit_lease: LeaseSecret = NONE,
) -> LeaseGranted:
    """Ask to be the only one who tunes a key; who sends a secret of its own may ask again."""
    here = service(request)
    caller = here.admit(request, "write", namespace)
    lease = LeaseKey(namespace, identity)
    try:
        with here.database.writing() as connection:
            granted = leases.acquire(
                here.database, connection, lease, asked, caller.name, launchkit_lease or None
            )
    except Refused as refused:
        if refused.answer.lease is not None:
            here.metrics.leased(namespace, "held")
        raise
    here.metrics.leased(namespace, "granted")
    return granted


@router.put(_PATH, operation_id="renew_lease", response_model=LeaseGranted, responses=_LOST)
def renew_lease(
    request: Request,
    namespace: NamespaceName,
    identity: LeaseIdentity,
    asked: RenewRequest,
    launchkit_lease: LeaseSecret,
) -> LeaseGranted:
    """Keep a lease for longer."""
    here = service(request)
    here.admit(request, "write", namespace)
    lease = LeaseKey(namespace, identity)
    with here.database.writing() as connection:
        granted = leases.renew(connection, lease, launchkit_lease, asked.ttl_s)
    here.metrics.leased(namespace, "renewed")
    return granted


@router.post(
    f"{_PATH}/complete",
    operation_id="complete_lease",
    status_code=204,
    response_class=Response,
    responses=_ENDED,
)
def complete_lease(
    request: Request,
    namespace: NamespaceName,
    identity: LeaseIdentity,
    launchkit_lease: LeaseSecret,
) -> Response:
    """Give a lease back: the record has been PUT."""
    return _end(request, LeaseKey(namespace, identity), launchkit_lease, "completed")


@router.delete(
    _PATH, operation_id="release_lease", status_code=204, response_class=Response, responses=_ENDED
)
def release_lease(
    request: Request,
    namespace: NamespaceName,
    identity: LeaseIdentity,
    launchkit_lease: LeaseSecret,
) -> Response:
    """Give a lease back: there will be no record."""
    return _end(request, LeaseKey(namespace, identity), launchkit_lease, "released")


def _end(request: Request, lease: LeaseKey, secret: str, outcome: str) -> Response:
    here = service(request)
    here.admit(request, "write", lease.namespace)
    with here.database.writing() as connection:
        leases.end(connection, lease, secret)
    here.metrics.leased(lease.namespace, outcome)
    return Response(status_code=204)
