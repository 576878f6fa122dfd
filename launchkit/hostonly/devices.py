"""The GPUs that the host-only driver can pretend to be. Plain data; used by driver.py.

Limits per multiprocessor and block are those of the CUDA C++ Programming Guide's table of
compute capabilities; multiprocessor counts are those of one product of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from launchkit.errors import HostOnlyError

_KIB = 1024


@dataclass(frozen=True)
class DeviceFacts:
    """What a driver tells about a device. Sizes in bytes."""

    arch: int
    """Compute capability times ten."""
    sm_count: int
    shared_optin_bytes: int
    """The most shared memory that one block may ask for."""
    shared_sm_bytes: int
    threads_per_sm: int


DEVICES = {
    facts.arch: facts
    for facts in (
        DeviceFacts(80, 108, 163 * _KIB, 164 * _KIB, 2048),
        DeviceFacts(86, 84, 99 * _KIB, 100 * _KIB, 1536),
        DeviceFacts(89, 142, 99 * _KIB, 100 * _KIB, 1536),
        DeviceFacts(90, 132, 227 * _KIB, 228 * _KIB, 2048),
        DeviceFacts(100, 148, 227 * _KIB, 228 * _KIB, 2048),
        DeviceFacts(103, 148, 227 * _KIB, 228 * _KIB, 2048),
        DeviceFacts(120, 188, 99 * _KIB, 100 * _KIB, 1536),
    )
}


def find(arch: int, devices: int) -> DeviceFacts:
    """Return the facts of ``arch``; raises HostOnlyError for what cannot be pretended."""
    if type(arch) is not int or arch not in DEVICES:
        known = ", ".join(map(str, DEVICES))
        raise HostOnlyError(
            f"arch={arch!r} is not a GPU that host-only mode knows. Use one of {known}.",
            reason="arch",
            arch=arch,
        )
    if type(devices) is not int or not 1 <= devices <= 64:
        raise HostOnlyError(
            f"devices={devices!r} is not a number of devices. Use 1 to 64.",
            reason="devices",
            devices=devices,
        )
    return DEVICES[arch]
