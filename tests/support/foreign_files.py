"""What a foreign file does not say, in the tests of its readers, and files to read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from launchkit.keys import DeviceId, KernelId, Toolchain
from launchkit.store.foreign import ForeignContext, ForeignImport, read

H100 = DeviceId("cuda", "NVIDIA H100 80GB HBM3", "sm_90", 132, 232448, 80)
CONTEXT = ForeignContext(
    kernel=KernelId("model.layers.scale_rows", "ab" * 32),
    device=H100,
    toolchain=Toolchain("3.6.0"),
    parameters=("x_ptr", "y_ptr", "n", "BLOCK"),
    tensors=("x_ptr", "y_ptr"),
    keys=("n",),
)


def given(**changes: Any) -> ForeignContext:
    """CONTEXT with other fields."""
    return replace(CONTEXT, **changes)


def write_json(path: Path, content: object) -> Path:
    """Write ``content`` as Python's json module does (Infinity and NaN too)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def reasons(result: ForeignImport) -> str:
    """Every reason for which something was left out, on a line each."""
    return "\n".join(each.reason for each in result.skipped)


def refused(name: str, path: Path, context: ForeignContext = CONTEXT) -> str:
    """The reason for which nothing of ``path`` was taken."""
    result = read(name, path, context)
    assert result.records == ()
    assert len(result.skipped) == 1, result.skipped
    return result.skipped[0].reason
