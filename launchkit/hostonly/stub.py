"""The stub libcuda.so.1: compiled once, loaded once a process. Used by driver.py.

The library cannot be unloaded: Triton's own modules are linked to it. It stays mapped and
inactive after host-only mode is left, and the next activation takes it up again.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import tempfile
from pathlib import Path

from launchkit.c_compiler import compile_c, find_c_compiler
from launchkit.errors import CompilerError, HostOnlyError
from launchkit.hostonly.cubin import ParamLayout
from launchkit.hostonly.devices import DeviceFacts
from launchkit.hostonly.records import HostLaunch, decode

_SOURCE = Path(__file__).with_name("stub_cuda.c")
_LIBRARY = "libcuda.so.1"
_LINK_NAME = "libcuda.so"  # Triton before 3.6 links with -lcuda
_FLAGS = (
    "-std=c11",
    "-O2",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    f"-Wl,-soname,{_LIBRARY}",
    "-lpthread",
)
_ABI = 1


class _DeviceFactsStruct(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int)
        for name in (
            "device_count",
            "major",
            "minor",
            "sm_count",
            "shared_optin_bytes",
            "shared_sm_bytes",
            "threads_per_sm",
        )
    ]


def find_compiler() -> str:
    """Return the C compiler: CC, else gcc, clang or cc; raises HostOnlyError without one."""
    try:
        return find_c_compiler()
    except CompilerError as error:
        raise _uncompiled(error) from error


def build(cache_dir: Path, compiler: str) -> Path:
    """Return the directory that holds the compiled stub, compiling it if it is not there.

    Two processes may do so at once: each writes a file of its own and renames it.
    """
    source = _SOURCE.read_bytes()
    # A home directory may be shared by machines of several architectures.
    parts = [compiler, platform.machine(), *_FLAGS]
    key = hashlib.sha256(b"\0".join([source, *map(os.fsencode, parts)]))
    directory = cache_dir / f"stub-{key.hexdigest()[:16]}"
    library = directory / _LIBRARY
    if not library.exists():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _compile(compiler, library)
        except OSError as error:
            raise HostOnlyError(
                f"the host-only driver could not be written to {directory}: {error}. "
                "Pass cache_dir= with a directory that can be written, or set XDG_CACHE_HOME.",
                reason="cache_dir",
                cache_dir=str(cache_dir),
            ) from error
    return directory


def _compile(compiler: str, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch) / _LIBRARY
        try:
            compile_c(compiler, _SOURCE, made, _FLAGS)
        except CompilerError as error:
            raise _uncompiled(error) from error
        link = Path(scratch) / _LINK_NAME
        link.symlink_to(_LIBRARY)
        # The library last: once it is there, nobody looks for the link.
        os.replace(link, library.with_name(_LINK_NAME))
        os.replace(made, library)


def _uncompiled(error: CompilerError) -> HostOnlyError:
    return HostOnlyError(f"host-only mode compiles its own CUDA driver: {error}", **error.fields)


def mapped_driver() -> str | None:
    """Return the path of the libcuda that this process has mapped, ours or a real one."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.split(maxsplit=5)[-1].removesuffix(" (deleted)")
        if Path(path).name.startswith("libcuda.so"):
            return path
    return None


class Stub:
    """The loaded library, as Python functions."""

    def __init__(self, path: str) -> None:
        # Triton's modules find the driver's functions in the global namespace.
        self._library = library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        library.launchkit_stub_function_name.restype = ctypes.c_char_p
        library.launchkit_stub_function_name.argtypes = [ctypes.c_uint64]
        library.launchkit_stub_snapshot.restype = ctypes.c_size_t
        library.launchkit_stub_free.argtypes = [ctypes.c_void_p]
        library.launchkit_stub_dropped.restype = ctypes.c_uint64

    def configure(self, facts: DeviceFacts, devices: int) -> None:
        """Say which device the driver pretends to have, and how many of them."""
        values = _DeviceFactsStruct(
            devices,
            *divmod(facts.arch, 10),
            facts.sm_count,
            facts.shared_optin_bytes,
            facts.shared_sm_bytes,
            facts.threads_per_sm,
        )
        self._library.launchkit_stub_configure(ctypes.byref(values))

    def set_active(self, on: bool) -> None:
        """While off, every driver call fails as it does without a device."""
        self._library.launchkit_stub_set_active(int(on))

    def set_recording(self, on: bool) -> None:
        """Keep launches, or let them pass unseen."""
        self._library.launchkit_stub_set_recording(int(on))

    def set_capturing(self, on: bool) -> None:
        """What cuStreamIsCapturing answers."""
        self._library.launchkit_stub_set_capturing(int(on))

    def describe(self, function: int, device: int, layout: ParamLayout) -> None:
        """Tell the stub how long the parameters of a loaded function are."""
        array = ctypes.c_uint32 * len(layout.sizes)
        self._library.launchkit_stub_describe(
            ctypes.c_uint64(function),
            device,
            len(layout.sizes),
            array(*layout.sizes),
            array(*layout.offsets),
        )

    def launches(self) -> list[HostLaunch]:
        """Return the recorded launches, oldest first."""
        block = ctypes.c_void_p()
        size = self._library.launchkit_stub_snapshot(ctypes.byref(block))
        try:
            data = ctypes.string_at(block, size) if size else b""
        finally:
            self._library.launchkit_stub_free(block)
        return decode(data, self._kernel_name)

    def _kernel_name(self, function: int) -> str:
        name: bytes = self._library.launchkit_stub_function_name(function)
        return name.decode()

    def dropped(self) -> int:
        """Return how many launches the ring has overwritten since it was cleared."""
        return int(self._library.launchkit_stub_dropped())

    def clear(self) -> None:
        """Forget the recorded launches."""
        self._library.launchkit_stub_clear()


_loaded: Stub | None = None


def loaded() -> Stub | None:
    """Return the stub of this process, or None if host-only mode was never entered."""
    return _loaded


def load(directory: Path) -> Stub:
    """Return the stub of this process, loading it from ``directory`` the first time.

    Raises HostOnlyError if the process has a real CUDA driver.
    """
    global _loaded
    if _loaded is None:
        path = mapped_driver()
        if path is not None and not _is_stub(path):
            raise HostOnlyError(
                f"this process has already loaded a CUDA driver, {path}, as a CUDA build of torch "
                "does when it is imported where a driver is installed. For host-only mode on such a "
                "machine use an environment with PyTorch's CPU build, and a fresh process.",
                reason="real_driver",
                driver=path,
            )
        _loaded = _open(path or str(directory / _LIBRARY))
    return _loaded


def _open(path: str) -> Stub:
    try:
        return Stub(path)
    except OSError as error:
        raise HostOnlyError(
            f"the compiled host-only driver cannot be loaded: {error}. Delete "
            f"{Path(path).parent}, and it will be compiled again.",
            reason="stub",
            path=path,
        ) from error


def _is_stub(path: str) -> bool:
    abi = getattr(ctypes.CDLL(path), "launchkit_stub_abi", None)
    return abi is not None and abi() == _ABI
