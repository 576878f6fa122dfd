"""Kernel parameter layout, read from a cubin. A leaf; used by driver.py.

A cubin is a little-endian ELF64 file. Each kernel has a section ``.nv.info.<kernel>``, a
list of attributes: one byte of format, one byte of attribute number, then two bytes of
value, or (format 4) a two-byte length and that many bytes. Two of them matter here, as
``cuobjdump -elf`` prints them:

KPARAM_INFO (0x17), 12 bytes, one a parameter::

    u32 index     always 0
    u16 ordinal   position in the parameter list
    u16 offset    bytes from the start of the parameter area
    u32 packed    bits 18..31: size in bytes; the lower ones: alignment, space, bank

CBANK_PARAM_SIZE (0x19), its value in place: bytes of the whole parameter area, an
independent check of the entries above.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_ELF64_LITTLE = b"\x7fELF\x02\x01"

_SIZED_FORMAT = 4
_KPARAM_INFO = 0x17
_CBANK_PARAM_SIZE = 0x19


class CubinError(ValueError):
    """The bytes are not a cubin, or do not describe the kernel's parameters."""


@dataclass(frozen=True)
class ParamLayout:
    """Offsets and sizes of a kernel's parameters in bytes, by ordinal."""

    sizes: tuple[int, ...]
    offsets: tuple[int, ...]


def param_layout(cubin: bytes, kernel: str) -> ParamLayout:
    """Return the parameters of ``kernel``; raises CubinError if the cubin does not tell."""
    info = _section(cubin, f".nv.info.{kernel}".encode())
    params: dict[int, tuple[int, int]] = {}
    area_bytes = 0
    for attribute, inline, payload in _attributes(info):
        if attribute == _KPARAM_INFO and len(payload) == 12:
            _, ordinal, offset, packed = struct.unpack("<IHHI", payload)
            params[ordinal] = (packed >> 18, offset)
        elif attribute == _CBANK_PARAM_SIZE:
            area_bytes = inline
    return _checked(params, area_bytes)


def _checked(params: dict[int, tuple[int, int]], area_bytes: int) -> ParamLayout:
    if sorted(params) != list(range(len(params))):
        raise CubinError(f"parameter ordinals {sorted(params)} have gaps")
    layout = ParamLayout(
        sizes=tuple(params[i][0] for i in range(len(params))),
        offsets=tuple(params[i][1] for i in range(len(params))),
    )
    end = max((sum(pair) for pair in params.values()), default=0)
    if end != area_bytes:
        raise CubinError(f"parameters end at byte {end}, their area at {area_bytes}")
    return layout


def _section(cubin: bytes, wanted: bytes) -> bytes:
    if len(cubin) < _EHDR.size or not cubin.startswith(_ELF64_LITTLE):
        raise CubinError("not a little-endian ELF64 file")
    header = _EHDR.unpack_from(cubin)
    table, entry_bytes, count, names_index = header[6], header[11], header[12], header[13]
    if entry_bytes != _SHDR.size or names_index >= count:
        raise CubinError("no usable section table")
    if table + count * entry_bytes > len(cubin):
        raise CubinError("the section table lies outside the file")
    names = _contents(cubin, table + names_index * entry_bytes)
    for index in range(count):
        at = table + index * entry_bytes
        (name_at,) = struct.unpack_from("<I", cubin, at)
        if names[name_at : names.find(b"\0", name_at)] == wanted:
            return _contents(cubin, at)
    raise CubinError(f"no section {wanted.decode()}")


def _contents(cubin: bytes, header_at: int) -> bytes:
    section = _SHDR.unpack_from(cubin, header_at)
    offset, size = section[4], section[5]
    if offset + size > len(cubin):
        raise CubinError("a section lies outside the file")
    return cubin[offset : offset + size]


def _attributes(info: bytes) -> Iterator[tuple[int, int, bytes]]:
    position = 0
    while position + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, position)
        position += 4
        payload = b""
        if form == _SIZED_FORMAT:
            payload = info[position : position + value]
            position += value
            if len(payload) != value:
                raise CubinError("an attribute lies outside its section")
        yield attribute, value, payload
