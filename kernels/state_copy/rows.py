"""The rows of a batch, as host functions read and stage them, and what is said of those that miss."""

from __future__ import annotations

from collections.abc import Sequence

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.protocols import StagingBuffer


def fill_rows(op: str, buffer: StagingBuffer, values: Sequence[int], num_reqs: int) -> None:
    """Write the first ``num_reqs`` elements of a staging buffer, which ``values`` has to be.

    Raises UsageError, with nothing written, for another number of values and for more than the
    buffer has room for.
    """
    room = len(buffer.np)
    if not 0 <= num_reqs <= room:
        raise UsageError(
            f"{op}: num_reqs is {num_reqs}, and the buffers have room for {room}. Create them for "
            "as many requests as a batch can have.",
            op=op,
            num_reqs=num_reqs,
            room=room,
        )
    if len(values) != num_reqs:
        raise UsageError(
            f"{op}: the batch has {len(values)} requests, but num_reqs is {num_reqs}. Pass the "
            "number of requests in the batch.",
            op=op,
            num_reqs=num_reqs,
            requests=len(values),
        )
    buffer.np[:num_reqs] = values


def no_column(op: str, req_id: str) -> UsageError:
    """Return the error for a request whose state column is not known."""
    return UsageError(
        f"{op}: mamba_state_idx has no entry for request {req_id!r}. Call preprocess_mamba for "
        "the same batch first.",
        op=op,
        request=req_id,
    )


def unknown_request(op: str, req_id: str) -> UsageError:
    """Return the error for a request of a batch that the scheduler or the worker does not know."""
    return UsageError(
        f"{op}: request {req_id!r} of the batch is not among the requests, or has no scheduled "
        "tokens. Pass the batch, the requests and the scheduler output of one step.",
        op=op,
        request=req_id,
    )
