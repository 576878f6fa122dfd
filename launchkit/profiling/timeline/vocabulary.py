"""Which API calls launch, wait, copy, set and allocate: one table for all. A leaf.

CUDA's runtime and driver, HIP, Level Zero and Unified Runtime (XPU), and MTIA's runtime. A name
that looks like a launch and is not listed is ``unknown_launch``: it is reported, never left out.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LAUNCHES = frozenset(
    {
        "cudaLaunch",
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaLaunchCooperativeKernel",
        "cudaLaunchCooperativeKernelMultiDevice",
        "cuLaunch",
        "cuLaunchGrid",
        "cuLaunchGridAsync",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchCooperativeKernel",
        "cuLaunchCooperativeKernelMultiDevice",
        "hipLaunchByPtr",
        "hipLaunchKernel",
        "hipLaunchKernelExC",
        "hipLaunchCooperativeKernel",
        "hipLaunchCooperativeKernelMultiDevice",
        "hipModuleLaunchKernel",
        "hipModuleLaunchCooperativeKernel",
        "hipModuleLaunchCooperativeKernelMultiDevice",
        "hipExtLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipExtLaunchMultiKernelMultiDevice",
        "hipHccModuleLaunchKernel",
        "hipDrvLaunchKernelEx",
        "zeCommandListAppendLaunchKernel",
        "zeCommandListAppendLaunchKernelIndirect",
        "zeCommandListAppendLaunchCooperativeKernel",
        "urEnqueueKernelLaunch",
        "urEnqueueKernelLaunchCustomExp",
        "urEnqueueCooperativeKernelLaunchExp",
        "piEnqueueKernelLaunch",
        "runFunction - job_prep_and_submit_for_execution",
    }
)
LAUNCH_KINDS = ("launch", "graph_launch", "unknown_launch")
"""The kinds of calls that count as launches; the replay of a graph is one."""

_GRAPH_LAUNCHES = frozenset({"cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"})

# The first that fits decides; what none fits is "other".
_FAMILIES = (
    ("sync", r"(cuda|cu|hip)(Device|Thread|Ctx|Stream|Event)Synchronize"),
    ("sync", r"ze(EventHost|FenceHost|CommandQueue|CommandListHost)Synchronize"),
    ("sync", r"ur(QueueFinish|EventWait)|pi(QueueFinish|EventsWait)"),
    ("memcpy", r"(cuda|cu|hip)(Drv)?Memcpy\w*"),
    (
        "memcpy",
        r"zeCommandListAppendMemoryCopy\w*|urEnqueue(USMMemcpy|MemBuffer(Read|Write|Copy))\w*",
    ),
    ("memset", r"(cuda|cu|hip)Memset\w*|zeCommandListAppendMemoryFill|urEnqueueUSMFill\w*"),
    ("alloc", r"(cuda|hip)(Ext)?(Malloc|Free|Host(Alloc|Malloc|Free))\w*"),
    ("alloc", r"cu(MemAlloc|MemFree|MemHostAlloc|ArrayCreate|ArrayDestroy)\w*"),
    ("alloc", r"(cu|hip)Mem(Create|Release|Map|Unmap|AddressReserve|AddressFree)"),
    ("alloc", r"zeMem(Alloc|Free)\w*|urUSM\w*(Alloc|Free)"),
)
_FAMILY = re.compile("|".join(f"(?P<k{place}>{text})" for place, (_, text) in enumerate(_FAMILIES)))
_LAUNCH_LIKE = re.compile(r"(cuda|hip|mu|(cu|ze|ur|pi)(?=[A-Z]))\w*Launch\w*")
_NO_LAUNCH = re.compile(r"HostFunc|Attribute|[a-z](Get|Set|Query)[A-Z]")
_SUFFIX = re.compile(r"(_(v\d+|ptsz|ptds|spt))+$")
_CAPTURE = re.compile(r"(cuda|cu|hip)Stream(?P<which>Begin|End)Capture(ToGraph)?")
_DRIVER = re.compile(r"cu[A-Z]|hip(Module|Drv)|ze[A-Z]")


@lru_cache(maxsize=4096)
def api_name(name: str) -> str:
    """Return the name of an API function without the suffix of its version or default stream."""
    return _SUFFIX.sub("", name)


@lru_cache(maxsize=4096)
def call_kind(name: str) -> str:
    """Return the kind of a call, as the model's ``CALL_KINDS`` has it, from its function's name."""
    name = api_name(name)
    if name in _LAUNCHES:
        return "launch"
    if name in _GRAPH_LAUNCHES:
        return "graph_launch"
    found = _FAMILY.fullmatch(name)
    if found and found.lastgroup:
        return next(
            kind
            for place, (kind, _) in enumerate(_FAMILIES)
            if found.group(f"k{place}") is not None
        )
    like = _LAUNCH_LIKE.fullmatch(name) and not _NO_LAUNCH.search(name)
    return "unknown_launch" if like else "other"


def call_layer(name: str) -> str:
    """Return ``driver`` or ``runtime``: which API the function ``name`` belongs to."""
    return "driver" if _DRIVER.match(name) else "runtime"


def capture_step(name: str) -> int:
    """Return 1 for a function that begins to capture a stream, -1 for one that ends it, else 0."""
    found = _CAPTURE.fullmatch(api_name(name))
    return 0 if found is None else (1 if found["which"] == "Begin" else -1)
