"""What the name of a fused-MoE file says, and the name that a server looks for. Pure.

``E=8,N=3584,device_name=NVIDIA_H200[,dtype=fp8_w8a8][,block_shape=[128,128]].json``, where SGLang
writes ``[128, 128]``, ``,per_channel_quant=True`` and, for the second projection, ``_down``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from launchkit.keys import DeviceId
from launchkit.store.foreign.base import RefusedError

_NAME = re.compile(
    r"E=(?P<E>\d{1,9}),N=(?P<N>\d{1,9}),device_name=(?P<device>.+?)"
    r"(?:,dtype=(?P<dtype>[A-Za-z0-9_]+?))?"
    r"(?:,block_shape=\[(?P<block_n>\d{1,9}), ?(?P<block_k>\d{1,9})\])?"
    r"(?P<channel>,per_channel_quant=True)?(?P<down>_down)?\.json",
    re.ASCII | re.DOTALL,
)
_DTYPE = re.compile(r"[A-Za-z0-9_]{1,60}", re.ASCII)
_MARKS = (",dtype=", ",block_shape=", ",per_channel_quant=", "device_name=")
_LIMIT_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class MoeName:
    """The fields of a file's name. ``dtype`` is the server's word for the quantization."""

    E: int
    """Experts on one GPU."""
    N: int
    """Width of one expert's intermediate layer on one GPU."""
    device: str
    """The GPU's name with ``_`` for spaces."""
    dtype: str | None = None
    block_shape: tuple[int, int] | None = None
    per_channel: bool = False
    down: bool = False

    @classmethod
    def parse(cls, name: str) -> MoeName:
        """Return what a file's name says; RefusedError for a name of another form."""
        found = _NAME.fullmatch(name)
        if found is None or any(mark in found["device"] for mark in _MARKS):
            raise RefusedError(f"{name!r} is no name of such a file")
        block = (int(found["block_n"]), int(found["block_k"])) if found["block_n"] else None
        per_channel, down = found["channel"] is not None, found["down"] is not None
        made = cls(
            int(found["E"]),
            int(found["N"]),
            found["device"],
            found["dtype"],
            block,
            per_channel,
            down,
        )
        if name not in (made.text(spaced=True), made.text(spaced=False)):
            raise RefusedError(f"{name!r} is not how such a file is named")
        return made

    def text(self, *, spaced: bool) -> str:
        """Return the file's name; ``spaced``: with a space in the block shape, as SGLang has it."""
        parts = [f"E={self.E},N={self.N},device_name={self.device}"]
        if self.dtype is not None:
            parts.append(f",dtype={self.dtype}")
        if self.block_shape is not None:
            parts.append(
                f",block_shape=[{(', ' if spaced else ',').join(map(str, self.block_shape))}]"
            )
        parts.append(",per_channel_quant=True" if self.per_channel else "")
        return "".join([*parts, "_down" if self.down else "", ".json"])

    @property
    def facts(self) -> dict[str, object]:
        """What a key argument can take its value from, by the name of the field."""
        block = self.block_shape or (None, None)
        return {
            "E": self.E,
            "N": self.N,
            "dtype": self.dtype,
            "block_n": block[0],
            "block_k": block[1],
        }


def checked(name: MoeName) -> MoeName:
    """Return a name that a file may have and that reads back as itself; RefusedError otherwise."""
    if name.dtype is not None and not _DTYPE.fullmatch(name.dtype):
        raise RefusedError(f"{name.dtype!r} is no dtype in such a file's name")
    text = name.text(spaced=True)
    if "/" in text or "\0" in text or len(text.encode(errors="replace")) > _LIMIT_NAME_BYTES:
        raise RefusedError(f"{text!r} can be no file's name")
    if MoeName.parse(text) != name:
        raise RefusedError(f"{text!r} would be read as another name")
    return name


def served_names(device: DeviceId) -> tuple[str, ...]:
    """Return the names by which servers look for a GPU's files, the first of them for writing.

    vLLM takes every GPU of the H200 family for ``NVIDIA_H200``.
    """
    plain = device.name.replace(" ", "_")
    family = ("NVIDIA_H200",) if "H200" in plain.split("_") else ()
    return tuple(dict.fromkeys((*family, plain)))
