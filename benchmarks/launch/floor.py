"""The floor of a launch: ``cuLaunchKernelEx`` called in a C loop, with everything prepared.

Takes a kernel that Triton has compiled and its parameters as bytes, and launches it on the
legacy default stream. Needs a C compiler and the CUDA driver, but no CUDA headers.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launchkit.benchmarks.timing import Loop
from launchkit.c_compiler import compile_c, find_c_compiler

# The layout of CUlaunchConfig in cuda.h, stable since CUDA 11.8.
_SOURCE = r"""
#include <dlfcn.h>
#include <stddef.h>
typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  void *attributes;
  unsigned attribute_count;
} Config;
typedef int (*Launch)(const Config *, void *, void **, void **);

int launch_loop(int count, void *function, const unsigned *grid, unsigned threads,
                unsigned shared_bytes, void *stream, void **params) {
  static Launch launch = NULL;
  if (!launch) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!library) return -1;
    launch = (Launch)dlsym(library, "cuLaunchKernelEx");
    if (!launch) return -1;
  }
  Config config = {{grid[0], grid[1], grid[2]}, {threads, 1, 1}, shared_bytes, stream, NULL, 0};
  int status = 0;
  for (int i = 0; i < count && status == 0; ++i) status = launch(&config, function, params, NULL);
  return status;
}
"""


def _library() -> ctypes.CDLL:
    compiler = find_c_compiler()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "floor.c"), Path(folder, "floor.so")
        source.write_text(_SOURCE, encoding="utf-8")
        compile_c(compiler, source, target, ("-O2", "-shared", "-fPIC", "-ldl"))
        return ctypes.CDLL(str(target))


def floor_loop(compiled: Any, grid: Sequence[int], params: Sequence[bytes], stream: int) -> Loop:
    """Return a loop that launches ``compiled`` n times from C.

    ``params``: the bytes of each kernel parameter, Triton's two scratch pointers included.
    Raises CompilerError where C cannot be compiled.
    """
    library = _library()
    # One buffer, held by the loop: the driver reads the parameters at each launch.
    packed = ctypes.create_string_buffer(b"".join(value.ljust(8, b"\0") for value in params))
    first = ctypes.addressof(packed)
    addresses = (ctypes.c_void_p * len(params))(*(first + 8 * i for i in range(len(params))))
    shape = (ctypes.c_uint * 3)(*grid, *([1] * (3 - len(grid))))
    metadata = compiled.metadata

    def loop(count: int, _held: object = packed) -> None:
        status = library.launch_loop(
            count,
            ctypes.c_void_p(compiled.function),
            shape,
            32 * metadata.num_warps,
            metadata.shared,
            ctypes.c_void_p(stream),
            addresses,
        )
        if status != 0:
            raise RuntimeError(f"cuLaunchKernelEx returned {status}")

    return loop


def kernel_params(compiled: Any, arguments: dict[str, Any]) -> list[bytes]:
    """Return the parameter bytes of a kernel with tensors and ints only, from its signature."""
    packed = []
    for name, kind in compiled.src.signature.items():
        if kind == "constexpr":
            continue
        value = arguments[name]
        if kind.startswith("*"):
            packed.append(value.data_ptr().to_bytes(8, "little"))
        else:
            packed.append(int(value).to_bytes(int(kind[1:]) // 8, "little", signed=kind[0] == "i"))
    return [*packed, bytes(8), bytes(8)]
