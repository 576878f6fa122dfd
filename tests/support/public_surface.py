"""What launchkit promises, name by name, written down as text.

``python tests/support/public_surface.py --update`` rewrites tests/data/public_surface.txt, with an
installed launchkit and Triton; ``--check`` compares, and without an option it is printed.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

import launchkit
from launchkit.tools import cli, commands

COMMITTED = Path(__file__).resolve().parents[1] / "data" / "public_surface.txt"

# Modules whose public names are those of their __all__.
PACKAGES = [
    "launchkit",
    "launchkit.hostonly",
    "launchkit.profiling",
    "launchkit.profiling.timeline",
    "launchkit.store",
]
# Modules without __all__, for what uses them as a whole file, and what of them is public.
NAMES = {
    "launchkit.profiling.report.document": ["report_document"],
    "launchkit.profiling.report.differences": ["difference_document", "difference_renderables"],
    "launchkit.profiling.report.html": ["html_report"],
    "launchkit.profiling.report.perfetto": ["write_trace"],
    "launchkit.profiling.report.terminal": ["renderables"],
    "launchkit.kernels.initial_states": ["gather_initial_states"],
    "launchkit.kernels.mamba_layer": ["MambaLayer", "MambaStep"],
    "launchkit.kernels.ssd.bmm": ["bmm_chunk"],
    "launchkit.kernels.ssd.checkpoints": [
        "PrefillCheckpoints",
        "store_prefill_checkpoint",
        "write_checkpointed_states",
    ],
    "launchkit.kernels.ssd.chunk_cumsum": ["chunk_cumsum"],
    "launchkit.kernels.ssd.chunk_scan": ["chunk_scan"],
    "launchkit.kernels.ssd.chunk_state": ["chunk_state"],
    "launchkit.kernels.ssd.final_states": ["final_state_writeback"],
    "launchkit.kernels.ssd.metadata": ["ChunkMetadata", "build_chunk_metadata"],
    "launchkit.kernels.ssd.scan": ["mamba_chunk_scan_combined_varlen"],
    "launchkit.kernels.ssd.state_passing": ["state_passing"],
    "launchkit.kernels.ssd.tuning_arguments": ["fill"],
    "launchkit.kernels.ssd.warmup": ["warm_chunk_scan"],
    "launchkit.kernels.state_copy.buffers": ["CpuGpuBuffer", "MambaBuffers", "MambaCopyBuffers"],
    "launchkit.kernels.state_copy.copy_specs": [
        "MambaCopySpec",
        "get_conv_copy_spec",
        "get_conv_state_layout",
        "get_temporal_copy_spec",
        "register_copy_func",
        "set_conv_state_layout",
    ],
    "launchkit.kernels.state_copy.host_align": [
        "cleanup_mamba_state_idx",
        "postprocess_mamba",
        "preprocess_mamba",
    ],
    "launchkit.kernels.state_copy.host_all": [
        "postprocess_mamba_all",
        "preprocess_mamba_all_specdec",
    ],
    "launchkit.kernels.state_copy.launches": [
        "postprocess_align",
        "precopy_align",
        "preprocess_align",
    ],
    "launchkit.kernels.state_copy.memcpy": ["batch_memcpy"],
    "launchkit.kernels.state_copy.shapes": ["CopyShape", "copy_options", "copy_shape"],
    "launchkit.kernels.state_copy.spec_decode": ["MambaSpecDecodeGPUContext"],
    "launchkit.kernels.state_copy.staging": [
        "postprocess_mamba_align_gpu",
        "stage_mamba_state_idx_to_gpu",
        "stage_postprocess_inputs_to_gpu",
        "stage_postprocess_metadata_to_gpu",
    ],
    "launchkit.kernels.state_indices": ["AlignedStateIndices", "mamba_get_block_table_tensor"],
}


class _AsWritten:
    """An annotation that shows as the source has it, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def names() -> dict[str, list[str]]:
    """Return the public names of each public module."""
    found = {each: list(importlib.import_module(each).__all__) for each in PACKAGES}
    found["launchkit.errors"] = sorted(
        name
        for name, value in vars(importlib.import_module("launchkit.errors")).items()
        if isinstance(value, type) and issubclass(value, launchkit.LaunchkitError)
    )
    return found | NAMES


def programs() -> dict[str, list[str]]:
    """Return the options of each command, as they are typed."""
    found = {"launchkit": [_typed(each) for each in typer.main.get_group(cli.app).params]}
    for name in commands.COMMANDS:
        for path, command in walk(f"launchkit {name}", commands.imported(name)):
            found[path] = [_typed(each) for each in command.params]
    return found


def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command and those below it, each with what is typed to call it."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from walk(f"{path} {name}", each)


def _typed(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return "/".join([*parameter.opts, *parameter.secondary_opts])


def lines() -> Iterator[str]:
    """Yield the surface: modules with their names, then commands with their options."""
    homes: dict[int, str] = {}
    for module, public in sorted(names().items()):
        yield f"[{module}]"
        home = importlib.import_module(module)
        for name in sorted(public):
            value = getattr(home, name)
            first = homes.setdefault(id(value), module)
            yield from _described(name, value) if first == module else [f"{name}: as in {first}"]
        yield ""
    yield "[commands]"
    for path, options in sorted(programs().items()):
        yield " ".join([path, *options])


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}{f'({bases})' if bases else ''}"
        yield from (f"    {line}" for line in _members(value))
    elif type(value).__module__ in ("typing", "types", "collections.abc"):
        yield f"{name}: an alias"
    elif inspect.isroutine(value) or hasattr(value, "__wrapped__"):
        yield f"{name}{_signature(value)}"
    elif callable(value):
        yield f"{name}{_signature(type(value).__call__)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _members(cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield ", ".join(cls.__members__)
        return
    if vars(cls).keys() & {"__init__", "_fields"} and not getattr(cls, "_is_protocol", False):
        yield f"__init__{_signature(cls)}"
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_") and name not in ("__call__", "__getitem__"):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            yield f"{name}{_signature(value.__func__)}"
        elif inspect.isfunction(value):
            yield f"{name}{_signature(value)}"
        elif isinstance(value, property):
            yield f"{name} -> {inspect.signature(value.fget).return_annotation}"


def _signature(function: Any) -> str:
    found = inspect.signature(function)
    if inspect.isclass(function):
        found = found.replace(return_annotation=inspect.Signature.empty)
    parameters = [
        each.replace(annotation=_as_written(each.annotation)) for each in found.parameters.values()
    ]
    returned = _as_written(found.return_annotation)
    return str(found.replace(parameters=parameters, return_annotation=returned))


def _as_written(annotation: Any) -> Any:
    written = getattr(annotation, "__forward_arg__", annotation)
    return _AsWritten(written) if isinstance(written, str) else written


def text() -> str:
    """Return the whole surface as the committed file has it."""
    return "\n".join(lines()) + "\n"


def main(wanted: list[str]) -> None:
    """Print, compare or write the surface; exit code 1 where it differs, 2 for bad use."""
    if wanted not in ([], ["--check"], ["--update"]):
        sys.stderr.write(f"unknown: {' '.join(wanted)}. Give --check, --update or nothing.\n")
        sys.exit(2)
    if wanted == ["--check"] and not COMMITTED.is_file():
        sys.exit(f"{COMMITTED} is missing. Take it from git, or write it with --update.")
    if wanted == ["--update"]:
        COMMITTED.write_text(text(), encoding="utf-8")
    elif wanted == ["--check"]:
        sys.exit(text() != COMMITTED.read_text(encoding="utf-8"))
    else:
        sys.stdout.write(text())


if __name__ == "__main__":
    main(sys.argv[1:])
