"""What a fresh installation must do without a GPU: run by .ci/release.py with that one's Python.

Prints what it found as JSON.
"""

from __future__ import annotations

import json
import platform

import torch
import triton
import triton.language as tl

import launchkit
from launchkit import hostonly
from launchkit.dispatch.native import extension


@launchkit.autotuned(
    configs=[triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"], name="add_one"
)
@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N803, D103
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def launched() -> list[hostonly.HostLaunch]:
    """Launch three times, on a driver that executes nothing, and return what it was given."""
    x, y = torch.empty(1000), torch.empty(1000)
    by_blocks = launchkit.grid(launchkit.cdiv("n", "BLOCK"))
    with launchkit.use_store("memory:"), hostonly.activate(arch=90):
        for _ in range(3):
            add_one[by_blocks](x, y, x.numel())
        return [each for each in hostonly.launches() if each.kernel == "add_one"]


def main() -> None:
    """Look, launch, and print what was found."""
    launches = launched()
    assert [each.grid for each in launches] == [(16, 1, 1)] * 3, launches
    found = {
        "launchkit": launchkit.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "core": extension.obstacle() or "C",
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
