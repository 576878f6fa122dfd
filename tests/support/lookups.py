"""Records that differ from a wanted one in a named way."""

from __future__ import annotations

from dataclasses import replace

from stored import RECORD

from launchkit.configs import TunedRecord
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store import Wanted

H200 = DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 140)
H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_gib=80)
PCIE = replace(H100, name="NVIDIA H100 PCIe", multiprocessors=114)
A100 = replace(H200, name="NVIDIA A100", arch="sm_80", multiprocessors=108, shared_bytes=166912)
KERNEL = KernelId("pkg.kernel", "ab" * 32)
EDITED = KernelId("pkg.kernel", "cd" * 32)
DTYPES = (("x_ptr", "torch.float16"), ("n", None))


def key(n=64, dtypes=DTYPES, **more):
    """A key of ``n`` and more values."""
    values = {"n": n, **more}
    return LaunchKey(tuple(encode_value(name, value) for name, value in values.items()), dtypes)


def record(n=64, kernel=KERNEL, device=H200, triton="3.6.0", made=None, **changes) -> TunedRecord:
    """A record of one identity; the configs and times are RECORD's."""
    return replace(
        RECORD, kernel=kernel, device=device, toolchain=Toolchain(triton), key=made or key(n), **changes
    )  # fmt: skip


def wanted(n=64, kernel=KERNEL, device=H200, triton="3.6.0", made=None) -> Wanted:
    """What a launch wants."""
    return Wanted(kernel, device, Toolchain(triton), made or key(n))
