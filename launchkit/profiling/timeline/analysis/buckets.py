"""What a sampled Python stack was doing: its innermost frame, by rule. A leaf.

Frames of Python's library and of C code that no rule knows count for what called them. What no
rule knows is the program's own code. Frames are spelled ``name (file:line)``, native ones
``symbol (library)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

OWN_CODE = "own code"
IMPORTS = "imports"

_LIBRARY = "standard library"
_IMPORTING = re.compile(r"<frozen importlib|importlib/_bootstrap")
_NATIVE = re.compile(r"\.so(\.[\d.]+)?$|(^|/)python3?(\.\d+)?$|^\[")

_LAUNCH = r"(triton/runtime/jit\.py|launchkit/dispatch/[\w/]+\.py)"


class Rule(NamedTuple):
    """A bucket, and the frames that are in it: patterns of the name and of the file, both searched.

    ``caller``: only where the frame that called it is in such a file.
    """

    bucket: str
    name: str = ""
    file: str = ""
    caller: str = ""


RULES = (
    Rule("driver: launch", r"^(cu(da)?|hip)(Ext)?(Module)?(Graph)?Launch"),
    Rule("driver: wait", r"^(cu(da)?|hip)(Ctx|Device|Stream|Event)Synchronize"),
    Rule("driver: wait", r"^synchronize$", r"torch/cuda/"),
    Rule("torch allocator", r"CachingAllocator|^(cu(da)?|hip)(Malloc|Mem(Alloc|Create|Map)|Free)"),
    Rule("torch allocator", "", r"torch/cuda/memory\.py"),
    Rule("driver", r"^(cu|cuda|hip)[A-Z]\w+"),
    Rule("driver", "", r"lib(cuda|cudart|amdhip64|hsa-runtime64)\.so"),
    Rule("Triton binder", r"^dynamic_func$"),
    Rule("Triton binder", r"^(create_function_from_signature|create_specialize_impl)", _LAUNCH),
    Rule("Triton binder", r"(compute_cache_key|specialize|KernelParam|mangle_type)", r"triton/runtime/jit\.py"),
    Rule("Triton compiler", "", r"triton/(compiler|backends/\w+/compiler|language|_filecheck)"),
    Rule("Triton compiler", r"^(_do_compile|compile|preload|create_binder)$", r"triton/runtime/jit\.py"),
    Rule("Triton compiler", "", r"triton/runtime/(cache|build|_async_compile)\.py"),
    Rule("Triton launcher", "", r"triton/backends/\w+/driver\.py"),
    Rule("Triton launcher", r"launch_metadata|HookChain", r"triton/(knobs|compiler/compiler)\.py"),
    Rule("Autotuner", "", r"triton/(runtime/autotuner|testing)\.py"),
    Rule("Triton JITFunction", "", r"triton/runtime/"),
    Rule("Triton", "", r"triton/"),
    Rule("launchkit ranges", "", r"launchkit/profiling/|nvtx/"),
    Rule("launchkit", "", r"launchkit/(dispatch|store|service)/"),
    Rule("grid function", r"^(\w*\.)*(<locals>\.)?(<lambda>|\w*grid\w*)$", "", _LAUNCH),
    Rule("grid function", r"(^|[._])grid(_fn)?$"),
    Rule("module call", r"_call_impl|^Module\.|_(forward|backward)_hook", r"torch/nn/modules/module\.py"),
    Rule("module call", "", r"torch/nn/"),
    Rule("torch.compile", "", r"torch/(_dynamo|_inductor|_functorch|fx)/|torchinductor_"),
    Rule("autograd", "", r"torch/autograd/"),
    Rule("torch dispatch", "", r"torch/(_ops|_library|library|utils|overrides|_tensor|_subclasses)"),
    Rule("torch", "", r"(^|/)torch/|libtorch\w*\.so|libc10\w*\.so"),
    Rule("einops", "", r"einops/"),
    Rule("waiting", r"^(\w+\.)*(wait|acquire|join|sleep|select|poll|_wait_for_tstate_lock)$",
         r"(threading|queue|selectors|subprocess)\.py|concurrent/futures"),
    Rule(_LIBRARY, "", r"(^|/)python3\.\d+/(?!(site|dist)-packages/)|^<frozen "),
)  # fmt: skip
"""The first that fits a frame; docs/profiling.md lists the buckets."""

_FRAME = re.compile(r"(?P<name>.*?)(?: \((?P<file>.*?)(?::\d+)?\))?", re.DOTALL)
_COMPILED = tuple(
    (rule.bucket, re.compile(rule.name), re.compile(rule.file), re.compile(rule.caller))
    for rule in RULES
)


def bucket_of(frames: Sequence[str]) -> str:
    """Return the bucket of a stack, its root first."""
    if any(_IMPORTING.search(frame) for frame in frames):
        return IMPORTS  # modules run their code then
    parts = [_parts(frame) for frame in frames]
    weak = OWN_CODE
    for at in range(len(parts) - 1, -1, -1):
        found = _known(parts[at], parts[at - 1][1] if at else "")
        if found not in (None, _LIBRARY):
            return str(found)
        if found is None and not _NATIVE.search(parts[at][1]):
            return OWN_CODE
        weak = found or weak
    return weak


def _parts(frame: str) -> tuple[str, str]:
    found = _FRAME.fullmatch(frame)
    return (found["name"], found["file"] or "") if found else (frame, "")


def _known(frame: tuple[str, str], caller: str) -> str | None:
    name, file = frame
    for bucket, of_name, of_file, of_caller in _COMPILED:
        if of_name.search(name) and of_file.search(file) and of_caller.search(caller):
            return bucket
    return None
