"""Typed, named keys: which arguments, kernel, device and toolchain a tuned config is for. A leaf.

Keys fail closed. ``1``, ``True``, ``1.0`` and ``"1"`` are four values; what has no identity that
is stable across processes raises UnfingerprintableError, and is never approximated.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from launchkit import jsonio
from launchkit.errors import UnfingerprintableError, UsageError

_MAX_TUPLE_DEPTH = 32
_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,79}")
_UNKNOWN = {"", "unknown"}
_RELEASE = re.compile(r"\s*v?(\d+)\.(\d+)(?!\d)")
_VENDORS = {"nvidia", "amd"}
_MEMORY_SIZE = re.compile(r"\d+gi?b?").fullmatch
_MEMORY_KIND = re.compile(r"(hbm|gddr)\d\w*").fullmatch

DevicePolicy: TypeAlias = Literal["exact", "compatible"]
"""exact: the same product with the same resources; compatible: what runs on one runs on the other."""

ToolchainPolicy: TypeAlias = Literal["exact", "minor", "any"]
"""exact: equal versions; minor: equal up to the second number (3.9.0 and 3.9.1); any: all are."""


@dataclass(frozen=True, slots=True, order=True)
class KeyValue:
    """One named value as text, with the type that keeps it apart from its look-alikes.

    ``type`` is one of bool, int, float, str, str-escaped, none, torch.dtype, tl.dtype,
    ``enum:<module>.<qualname>`` or tuple; ``value`` is the value's text.
    """

    name: str
    type: str
    value: str

    @property
    def text(self) -> str:
        """For people: ``BLOCK=128``, ``mode='fast'``; not meant to be parsed."""
        return f"{self.name}={self.value!r}" if self.type == "str" else f"{self.name}={self.value}"


def encode_value(name: str, value: object) -> KeyValue:
    """Return ``value`` as a KeyValue.

    NaN has one spelling, and -0.0 equals 0.0, in memory and on disk. Raises
    UnfingerprintableError for every type that KeyValue does not list (lists, dicts, tensors,
    NumPy scalars, subclasses of int or str) and for a name that is not plain text.
    """
    if type(name) is not str or not _is_utf8(name):
        raise UnfingerprintableError(f"a value named {name!r}", "its name is not plain text")
    kind, content = _encode(name, value, depth=0)
    if not isinstance(content, str):
        content = jsonio.dumps_compact(content).decode()
    return KeyValue(name, kind, content)


def _encode(name: str, value: object, depth: int) -> tuple[str, str | list[object]]:
    if isinstance(value, enum.Enum):
        return _encode_enum(name, value)
    if type(value) is tuple:
        return "tuple", _encode_tuple(name, value, depth)
    if type(value) is str:
        return _encode_str(value)
    if type(value) is float:
        return "float", _float_text(value)
    if type(value) is int:
        return "int", _int_text(name, value)
    if type(value) is bool:
        return "bool", str(value)
    return ("none", "None") if value is None else _encode_dtype(name, value)


def _encode_tuple(name: str, value: tuple[object, ...], depth: int) -> list[object]:
    if depth >= _MAX_TUPLE_DEPTH:
        raise UnfingerprintableError(
            name, f"its tuples are nested beyond {_MAX_TUPLE_DEPTH} levels"
        )
    return [list(_encode(name, item, depth + 1)) for item in value]


def _encode_str(value: str) -> tuple[str, str]:
    # A lone surrogate is no UTF-8; its own type keeps the escaped text apart from a plain str.
    return ("str", value) if _is_utf8(value) else ("str-escaped", ascii(value))


def _float_text(value: float) -> str:
    return repr(value + 0.0)  # -0.0 + 0.0 is 0.0; every NaN prints as nan


def _int_text(name: str, value: int) -> str:
    try:
        return str(value)
    except ValueError as error:
        raise UnfingerprintableError(name, f"the int is too long ({error})") from None


def _encode_enum(name: str, value: enum.Enum) -> tuple[str, str]:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    member: object = value.name
    if "<locals>" in kind:
        raise UnfingerprintableError(name, f"{kind} is made inside a function")
    if type(member) is not str or not _is_utf8(member) or not _is_utf8(kind):
        raise UnfingerprintableError(name, f"{value!r} has no member name")
    return f"enum:{kind}", member


def _encode_dtype(name: str, value: object) -> tuple[str, str]:
    """torch and triton are known by name only: keys must not import them."""
    kind = (type(value).__module__, type(value).__name__)
    if kind == ("torch", "dtype"):
        return "torch.dtype", str(value)
    if kind == ("triton.language.core", "dtype"):
        return "tl.dtype", str(getattr(value, "name", value))
    raise UnfingerprintableError(name, f"a {kind[0]}.{kind[1]} has no stable text")


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """What a tuned config depends on besides kernel, device and toolchain.

    ``values``: the key arguments. ``dtypes``: (parameter, dtype text or None) for each kernel
    parameter in signature order, so that neither the order of a call's keywords nor a None
    among its tensors can make two calls look alike.
    """

    values: tuple[KeyValue, ...]
    dtypes: tuple[tuple[str, str | None], ...]
    _digest: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _refuse_repeated_names("key values", [value.name for value in self.values])
        _refuse_repeated_names("dtypes", [name for name, _ in self.dtypes])

    @property
    def digest(self) -> str:
        """sha256 of the key's canonical JSON, as hex; computed once."""
        if not self._digest:
            values = [[value.name, value.type, value.value] for value in self.values]
            self._digest.append(jsonio.digest({"dtypes": self.dtypes, "values": values}))
        return self._digest[0]

    @property
    def text(self) -> str:
        """For people: key values, then the dtypes of the parameters that have one."""
        dtypes = [f"{name}:{dtype}" for name, dtype in self.dtypes if dtype is not None]
        return " ".join([value.text for value in self.values] + dtypes)


@dataclass(frozen=True, slots=True)
class KernelId:
    """A kernel's declared name, and the sha256 (64 hex digits) of what it computes.

    Raises UsageError for another digest: it becomes a part of paths.
    """

    name: str
    digest: str

    def __post_init__(self) -> None:
        if not _SHA256_HEX.fullmatch(self.digest):
            raise UsageError(f"{self.digest!r} is not a sha256 digest. Give 64 hex digits.")
        if not self.name or not _is_utf8(self.name):
            raise UsageError(
                f"{self.name!r} cannot name a kernel. Give it a plain, non-empty name."
            )

    @property
    def function(self) -> str:
        """The last part of the name: what the kernel's function is called."""
        return self.name.rpartition(".")[2]

    @property
    def slug(self) -> str:
        """The kernel's directory name: distinct for distinct kernels, safe in any file system."""
        return f"{_safe(self.name)}-{self.digest[:12]}"


def is_slug_of(slug: str, kernel_name: str) -> bool:
    """Tell whether ``slug`` is the directory name of a kernel of this declared name."""
    stem, _, digest = slug.rpartition("-")
    return len(digest) == 12 and stem == _safe(kernel_name)


@dataclass(frozen=True, slots=True)
class DeviceId:
    """The exact identity of a GPU model, as tuned configs see it.

    ``backend``: cuda or hip; ``name``: the vendor's; ``arch``: such as sm_90;
    ``shared_bytes``: shared memory that one block can opt in to; ``memory_gib``: its memory,
    rounded, which with the multiprocessors tells slices and variants of one name apart.
    """

    backend: str
    name: str
    arch: str
    multiprocessors: int
    shared_bytes: int
    memory_gib: int

    def __post_init__(self) -> None:
        if not all(_is_utf8(text) for text in (self.backend, self.name, self.arch)):
            raise UsageError(f"{self.name!r} cannot name a device. Give plain text.")

    @property
    def compatible(self) -> tuple[str, str, int]:
        """(backend, arch, shared_bytes): what a config must have in common to run at all."""
        return (self.backend, self.arch, self.shared_bytes)

    @property
    def slug(self) -> str:
        """The device's directory name: distinct for distinct identities."""
        return f"{_plain(self.name)}-{_plain(self.arch)}-{jsonio.digest(asdict(self))[:8]}"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The versions of what compiled the measured code; ``triton`` is Triton's version."""

    triton: str

    @property
    def fields(self) -> Mapping[str, str]:
        """Every version by name."""
        return MappingProxyType({"triton": self.triton})

    @property
    def known(self) -> bool:
        """Whether every version is known; unknown ones must not be taken for equal on disk."""
        return not any(version.strip().lower() in _UNKNOWN for version in self.fields.values())

    @property
    def text(self) -> str:
        """For people: ``triton 3.9.0``."""
        return " ".join(f"{name} {version}" for name, version in self.fields.items())


def same_toolchain(toolchain: Toolchain, other: Toolchain, policy: ToolchainPolicy) -> bool:
    """Tell whether what one toolchain's code measured counts for another one's.

    A version that is unknown, or that does not begin with two numbers, is the same minor as
    nothing but its own text; an unknown one is not even that.
    """
    if policy == "any":
        return True
    if not (toolchain.known and other.known):
        return False
    if policy == "exact":
        return toolchain == other
    return [*map(_minor, toolchain.fields.values())] == [*map(_minor, other.fields.values())]


def same_device(device: DeviceId, other: DeviceId, policy: DevicePolicy) -> bool:
    """Tell whether what was measured on one device counts for another.

    Exact compares every resource, and the names by their words: case, separators and a leading
    NVIDIA or AMD do not matter, and the memory (``80GB HBM3``) only where both names give it.
    So ``NVIDIA H100 80GB HBM3`` and ``NVIDIA_H100`` with equal figures are one product, and
    a MIG slice is neither its GPU nor a slice of another profile.
    """
    if policy == "compatible":
        return device.compatible == other.compatible
    figures = [
        (*each.compatible, each.multiprocessors, each.memory_gib) for each in (device, other)
    ]
    return figures[0] == figures[1] and same_product(device.name, other.name)


def same_product(name: str, other: str) -> bool:
    """Tell whether two vendors' names are spellings of one product's, as ``same_device`` does."""
    words, *memory = _product(name)
    other_words, *other_memory = _product(other)
    agree = (
        not one or not two or one == two for one, two in zip(memory, other_memory, strict=True)
    )
    return words == other_words and all(agree)


@functools.lru_cache(maxsize=1024)
def _product(name: str) -> tuple[tuple[str, ...], ...]:
    """Return a name's words: those of the product, of the size and of the kind of its memory.

    What stands behind the word MIG is a profile, and no memory.
    """
    words = [word for word in re.split(r"[\W_]+", name.casefold()) if word]
    if words[:1] and words[0] in _VENDORS:
        del words[0]
    whole = words.index("mig") if "mig" in words else len(words)
    sizes = tuple(filter(_MEMORY_SIZE, words[:whole]))
    kinds = tuple(filter(_MEMORY_KIND, words[:whole]))
    rest = [word for word in words[:whole] if word not in (*sizes, *kinds)] + words[whole:]
    return tuple(rest) or (name,), sizes, kinds


def _minor(version: str) -> tuple[str, ...]:
    found = _RELEASE.match(version)
    return found.groups() if found else (version,)


def _refuse_repeated_names(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise UsageError(f"the {what} {names} name something twice. Give each name once.")


@functools.lru_cache(maxsize=1024)
def _safe(name: str) -> str:
    """A changed name gets its hash behind a ``~``, which no unchanged name can hold."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    return f"{_plain(name)}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", name).lstrip(".-")[:60]
