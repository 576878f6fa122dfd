"""What all foreign formats share: what must be told about a file, what reading one gives. A leaf.

Pure: imports leaves and the store's file helpers only; runs no code of a file and guesses
nothing that a file does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from launchkit.configs import TunedRecord
from launchkit.errors import UsageError
from launchkit.keys import DeviceId, KernelId, Toolchain

LIMIT_BYTES = 16 * 2**20
"""No larger file of another program is read."""
LIMIT_FILES = 50_000
"""No tree with more files of a format is read."""
_LIMIT_TEXT = 300

OPTIONS: Mapping[str, str] = {
    "kernel": "--kernel NAME --digest HEX",
    "device": "--device",
    "toolchain": "--triton VERSION",
    "parameters": "--parameters A,B,…",
    "tensors": "--tensors A,B,…",
    "dtypes": "--dtype NAME=DTYPE",
    "keys": "--keys A,B,…",
    "key_values": "--key-value NAME=TYPE:VALUE",
    "key_fields": "--key-field NAME=FIELD",
    "key_types": "--key-type NAME=TYPE",
    "config_types": "--config-type NAME=TYPE",
    "config_values": "--config-value NAME=TYPE:VALUE",
    "method": "--method",
}
"""The command line's option for each field of a ForeignContext."""


def option_for(field: str, name: str) -> str:
    """Return the command line's option that gives ``field`` of a ForeignContext for ``name``."""
    return OPTIONS[field].replace("NAME", name)


def shortened(text: str) -> str:
    """Return ``text`` for a report: with no lone surrogate, and no more than its two ends if long."""
    if len(text) > _LIMIT_TEXT:
        text = f"{text[: _LIMIT_TEXT // 2]}…{text[-_LIMIT_TEXT // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode()


class RefusedError(Exception):
    """An entry that cannot be taken, and why. Never leaves this package."""

    def __init__(self, reason: str) -> None:
        super().__init__(shortened(reason))


@dataclass(frozen=True, slots=True)
class ForeignContext:
    """What files of other programs do not say; ``OPTIONS`` names the option of each field.

    Which fields a format needs stands in its ``needs``; the others may be left out.
    """

    kernel: KernelId | None = None
    """The kernel, as launchkit knows it: ``launchkit configs show`` prints name and digest."""
    device: DeviceId | None = None
    """The GPU on which the other program tuned."""
    toolchain: Toolchain | None = None
    """The Triton version with which it tuned, where the file does not say."""
    parameters: tuple[str, ...] | None = None
    """Every parameter of the kernel, in signature order."""
    tensors: tuple[str, ...] | None = None
    """Those that had a dtype, in the order of the call: formats that keep dtypes keep no names."""
    dtypes: Mapping[str, str] | None = None
    """Parameter to dtype (``torch.float16``), for formats that keep no dtypes."""
    keys: tuple[str, ...] | None = None
    """The kernel's autotune key: parameter names, in its order."""
    key_values: Mapping[str, object] = field(default_factory=dict)
    """Values of key arguments that the format does not hold."""
    key_fields: Mapping[str, str] = field(default_factory=dict)
    """Key argument to the format's own field, where their names differ (``num_tokens`` to M)."""
    key_types: Mapping[str, str] = field(default_factory=dict)
    """Key argument to type (int, float, bool, str, …), for formats that keep text alone."""
    config_types: Mapping[str, str] | None = None
    """Tunable to type, for formats that keep text alone."""
    config_values: Mapping[str, object] = field(default_factory=dict)
    """Values of a config that the format leaves out (``num_warps``, where a file has none)."""
    method: str | None = None
    """How the other program measured (``eager``, ``eager+cold``), where somebody knows."""

    def require(self, fields: Sequence[str], name: str) -> None:
        """Raise UsageError unless every field of ``fields`` is given."""
        missing = [each for each in fields if getattr(self, each) is None]
        if missing:
            options = ", ".join(OPTIONS[each] for each in missing)
            raise UsageError(
                f"files of the format {name} do not say: {', '.join(missing)}. Give {options} "
                f"(from Python, the fields of ForeignContext).",
                format=name,
                missing=tuple(missing),
            )


@dataclass(frozen=True, slots=True)
class Skipped:
    """One file or entry that was not taken, and why."""

    source: str
    """The file, with the entry behind it where it is one of several."""
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """A record and where it came from."""

    source: str
    record: TunedRecord


def attempt(source: str, make: Callable[[], TunedRecord]) -> Found | Skipped:
    """Return the record that ``make`` gives, or why it gave none."""
    try:
        return Found(shortened(source), make())
    except RefusedError as refusal:
        return Skipped(shortened(source), str(refusal))


Findings: TypeAlias = Iterator["Found | Skipped"]


@dataclass(frozen=True, slots=True)
class Opened:
    """The entries of one file, and what makes a record of one; it raises RefusedError."""

    entries: Mapping[str, object]
    make: Callable[[str, object], TunedRecord]


def each_entry(paths: Iterable[Path], opened: Callable[[Path], Opened]) -> Findings:
    """Yield what becomes of each entry of each file; one that ``opened`` refuses is left out whole."""
    for path in paths:
        try:
            found = opened(path)
        except RefusedError as refusal:
            yield Skipped(shortened(str(path)), str(refusal))
            continue
        if not found.entries:
            yield Skipped(shortened(str(path)), "it has no entries")
        for name, entry in found.entries.items():
            yield attempt(f"{path}: {name}", partial(found.make, name, entry))


@dataclass(frozen=True, slots=True)
class ForeignImport:
    """What a file or tree of another program came to; nothing was stored yet."""

    records: tuple[TunedRecord, ...]
    skipped: tuple[Skipped, ...]
    gaps: tuple[str, ...]
    """What files of this format cannot tell, whatever is in them."""


@dataclass(frozen=True, slots=True)
class ForeignExport:
    """The files that were written, and the records that the format cannot hold."""

    paths: tuple[Path, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """One other program's files.

    ``files``: what they are called; ``needs``: the fields of a ForeignContext that importing
    takes; ``gaps``: what the files cannot tell; ``write`` is None where they are only read.
    """

    name: str
    files: str
    needs: tuple[str, ...]
    gaps: tuple[str, ...]
    read: Callable[[Path, ForeignContext], Findings]
    write: Callable[[Sequence[TunedRecord], Path, ForeignContext], ForeignExport] | None = None
