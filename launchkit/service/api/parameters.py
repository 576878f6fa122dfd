"""What requests say in their paths, queries, headers and bodies. Of the service's server.

Of the API and of the pages: what fits none of these is refused before a route sees it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request

from launchkit.service import protocol, signing

NamespaceName = Annotated[str, Path(pattern=protocol.NAMESPACE_PATTERN)]
Digest = Annotated[str, Path(pattern=protocol.SHA256_PATTERN)]
Segment = Annotated[str, Path(pattern=protocol.SEGMENT_PATTERN)]
LeaseIdentity = Annotated[str, Path(pattern=protocol.IDENTITY_PATTERN)]

KernelName = Annotated[str, Query(min_length=1, max_length=200, pattern=protocol.PLAIN_PATTERN)]
DeviceName = Annotated[str, Query(pattern=protocol.SEGMENT_PATTERN)]
Toolchain = Annotated[str, Query(min_length=1, max_length=120, pattern=protocol.PLAIN_PATTERN)]

Etags = Annotated[str, Header(max_length=1000)]
IfMatch = Annotated[str, Header(pattern=protocol.IF_MATCH_PATTERN)]
IfNoneMatch = Annotated[str, Header(pattern=r"^\*$")]
Signature = Annotated[str, Header(pattern=signing.SIGNATURE_PATTERN)]
LeaseSecret = Annotated[str, Header(pattern=protocol.LEASE_SECRET_PATTERN)]

# An empty text stands for what is not there: a null among the types would be one more text.
NONE = ""


async def body_of(request: Request) -> bytes:
    """Return the request's body, which the guard has read within its limits."""
    return await request.body()


Body = Annotated[bytes, Depends(body_of)]
