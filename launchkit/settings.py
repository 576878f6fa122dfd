"""The only reader of the environment. A leaf.

The variables are read once, on first use; docs/environment.md lists them. ``reload()`` is
for tests. A variable is declared once, in ``Settings``: its name, how it is read, what it means.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from launchkit.errors import UsageError

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}
_DEVICE_POLICIES = ("exact", "compatible")
_TOOLCHAIN_POLICIES = ("exact", "minor", "any")
_MEASURES = ("eager", "eager+cold", "eager+warm", "graph", "graph+cold", "graph+warm")
_PROFILE = re.compile(r"(launches|torch|samples@(?P<rate>[1-9]\d{0,5})):(?P<directory>.+)")

HIDDEN = "(set)"
"""What is shown of a secret."""


@dataclass(frozen=True)
class ProfileRequest:
    """What a process is to capture of itself, and into which directory."""

    how: Literal["launches", "torch", "samples"]
    directory: str
    rate_hz: int = 0
    """How often a sampler looks; 0 where there is none."""

    def text(self) -> str:
        """Return it as LAUNCHKIT_PROFILE has it."""
        return f"{self.how}{f'@{self.rate_hz}' if self.rate_hz else ''}:{self.directory}"


# -- how the text of a variable is read: a reader is given its name


def _text(name: str) -> str | None:
    text = os.environ.get(name, "")
    return text if text.strip() else None


def _flag(name: str, default: str = "0") -> bool:
    text = (os.environ.get(name, "").strip() or default).lower()
    if text not in _TRUE | _FALSE:
        raise UsageError(f"{name}={text!r} is neither on nor off. Set it to 1 or 0.", name=name)
    return text in _TRUE


def _on(name: str) -> bool:
    return _flag(name, default="1")


def _flag_or_none(name: str) -> bool | None:
    return _flag(name) if name in os.environ else None


def _one_of(*choices: str, default: str | None) -> Callable[[str], str | None]:
    def read(name: str) -> str | None:
        text = os.environ.get(name, "").strip().lower()
        if text and text not in choices:
            raise UsageError(
                f"{name}={text!r} is none of {', '.join(choices)}. Set it to one of them.",
                name=name,
            )
        return text or default

    return read


def _patterns(default: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def read(name: str) -> tuple[str, ...]:
        parts = (part.strip() for part in os.environ.get(name, "").split(","))
        return tuple(part for part in parts if part) or default

    return read


def _number(default: int, low: int, high: int) -> Callable[[str], int]:
    def read(name: str) -> int:
        text = os.environ.get(name, "").strip() or str(default)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else low - 1
        if not low <= number <= high:
            raise UsageError(
                f"{name}={text!r} is no whole number from {low} to {high}. Set it to one.",
                name=name,
            )
        return number

    return read


def _secret(least: int) -> Callable[[str], str | None]:
    def read(name: str) -> str | None:
        """Return a secret; what is wrong with one is told without it."""
        text = os.environ.get(name, "").strip()
        if text and not (text.isascii() and text.isprintable() and " " not in text):
            raise UsageError(f"{name} is not one word of plain ASCII. Set it again.", name=name)
        if text and len(text) < least:
            raise UsageError(
                f"{name} is shorter than {least} characters. Set a longer one.", name=name
            )
        return text or None

    return read


def _profile(name: str) -> ProfileRequest | None:
    text = _text(name) or ""
    found = _PROFILE.fullmatch(text)
    if text and found is None:
        raise UsageError(
            f"{name}={text!r} asks for nothing known. Leave it to `launchkit profile` to set it, or "
            "set it to launches: and a directory.",
            name=name,
        )
    if found is None:
        return None
    how: Any = found[1].split("@")[0]
    return ProfileRequest(how, found["directory"], int(found["rate"] or 0))


def _read_from(variable: str, read: Callable[[str], Any], *, secret: bool = False) -> Any:
    """Declare a field of Settings; nothing is shown of a ``secret``."""
    return field(repr=not secret, metadata={"variable": variable, "read": read, "secret": secret})


@dataclass(frozen=True)
class Settings:
    """What the environment said when it was read, a field for each variable."""

    disable: bool = _read_from("LAUNCHKIT_DISABLE", _flag)
    """Every launch is plain Triton."""
    verify: bool = _read_from("LAUNCHKIT_VERIFY", _flag)
    """Every shortcut is compared with what Triton would launch."""
    native: bool = _read_from("LAUNCHKIT_NATIVE", _on)
    """Launches take the C core where there is one."""
    measure: str | None = _read_from("LAUNCHKIT_MEASURE", _one_of(*_MEASURES, default=None))
    """How configs are timed where a kernel does not say; None is Triton's way."""
    progress: bool = _read_from("LAUNCHKIT_PROGRESS", _on)
    """Tuning shows its progress on a terminal."""
    store: str | None = _read_from("LAUNCHKIT_STORE", _text)
    """Where tuned configs are kept; None is the user's cache directory."""
    service: str | None = _read_from("LAUNCHKIT_SERVICE", _text)
    """The config service behind the other places, as URL and namespace."""
    service_token: str | None = _read_from("LAUNCHKIT_SERVICE_TOKEN", _secret(1), secret=True)
    """Shown to that service, and to no other where it is named."""
    service_key: str | None = _read_from("LAUNCHKIT_SERVICE_KEY", _secret(16), secret=True)
    """The secret that signs a team's records; unsigned ones do not count."""
    service_timeout_ms: int = _read_from(
        "LAUNCHKIT_SERVICE_TIMEOUT_MS", _number(500, low=1, high=60_000)
    )
    """How long a launch waits for a lookup."""
    service_lease_s: int = _read_from("LAUNCHKIT_SERVICE_LEASE_S", _number(30, low=1, high=3600))
    """How long a key stays taken when who tunes it is killed."""
    manifest: str | None = _read_from("LAUNCHKIT_MANIFEST", _text)
    """The file in which kinds of launches are recorded."""
    device_policy: Literal["exact", "compatible"] = _read_from(
        "LAUNCHKIT_DEVICE_POLICY", _one_of(*_DEVICE_POLICIES, default="exact")
    )
    """Whose devices' tuned configs are used."""
    toolchain_policy: Literal["exact", "minor", "any"] = _read_from(
        "LAUNCHKIT_TOOLCHAIN_POLICY", _one_of(*_TOOLCHAIN_POLICIES, default="exact")
    )
    """Which Tritons' tuned configs are used."""
    require_tuned: bool = _read_from("LAUNCHKIT_REQUIRE_TUNED", _flag)
    """A launch that would tune raises instead."""
    install: bool | None = _read_from("LAUNCHKIT_INSTALL", _flag_or_none)
    """install() when Triton is imported; None is neither asked nor refused."""
    install_include: tuple[str, ...] = _read_from(
        "LAUNCHKIT_INSTALL_INCLUDE", _patterns(default=("*",))
    )
    """Patterns of the kernels that LAUNCHKIT_INSTALL covers."""
    install_exclude: tuple[str, ...] = _read_from(
        "LAUNCHKIT_INSTALL_EXCLUDE", _patterns(default=())
    )
    """Patterns of those that it leaves out."""
    profile: ProfileRequest | None = _read_from("LAUNCHKIT_PROFILE", _profile)  # noqa: RUF009 - a field
    """What `launchkit profile` asks of the processes that it starts."""
    # The database's URL has its password.
    database: str | None = _read_from("LAUNCHKIT_DATABASE", _text, secret=True)
    """The database of `launchkit serve`; None is a file of the user's."""
    compiler: str | None = _read_from("CC", _text)
    """The C compiler; None is gcc, clang or cc, whichever is found."""


def _read() -> Settings:
    return Settings(**{each.name: _value(each) for each in fields(Settings)})


def _value(declared: Field[Any]) -> Any:
    return declared.metadata["read"](declared.metadata["variable"])


def environment() -> dict[bytes, bytes]:
    """Return the live dictionary behind ``os.environ``, for whoever watches a variable of others.

    Where there is none, an empty one.
    """
    live = getattr(os.environ, "_data", None)
    return live if type(live) is dict else {}


def variable(name: str) -> bytes:
    """Return the key that a variable has in ``environment()``."""
    return os.fsencode(name)


@dataclass(frozen=True)
class Variable:
    """One environment variable that launchkit reads, as it is now."""

    name: str
    text: str | None
    """What the environment says, of a secret only that it is set; None where it says nothing."""
    value: Any
    """What launchkit makes of it; None too where it cannot."""
    error: str | None
    """Why it cannot, and what to do."""


def variables() -> tuple[Variable, ...]:
    """Return every variable that launchkit reads; one with a bad value stops none of the others."""
    return tuple(_variable(each) for each in fields(Settings))


def _variable(declared: Field[Any]) -> Variable:
    name, hidden = declared.metadata["variable"], declared.metadata["secret"]
    text = os.environ.get(name)
    shown = HIDDEN if hidden and text else text
    try:
        value = _value(declared)
    except UsageError as error:
        return Variable(name, shown, None, str(error))
    return Variable(name, shown, HIDDEN if hidden and value else value, None)


def unknown_variables() -> tuple[str, ...]:
    """Return the variables named LAUNCHKIT_* that launchkit does not read, sorted."""
    known = {each.metadata["variable"] for each in fields(Settings)}
    return tuple(sorted(n for n in os.environ if n.startswith("LAUNCHKIT_") and n not in known))


def foreign_variables(names: Sequence[str]) -> dict[str, str]:
    """Return those of other programs' variables that are set to something."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with some variables set, for a process that it starts."""
    return {**os.environ, **changes}


def installs_on_import() -> bool:
    """Tell whether LAUNCHKIT_INSTALL is on, without fixing the other settings yet."""
    return _flag("LAUNCHKIT_INSTALL")


def profile_request() -> ProfileRequest | None:
    """Return what LAUNCHKIT_PROFILE asks for, without fixing the other settings yet."""
    return _profile("LAUNCHKIT_PROFILE")


def profiled_environment(
    request: ProfileRequest | None, hook: str, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return this process's environment for a program to be captured.

    Its Python finds ``hook``, the folder of a sitecustomize, before anything else.
    """
    found = {**os.environ, **changes}
    if request is not None:
        found["LAUNCHKIT_PROFILE"] = request.text()
        behind = found.get("PYTHONPATH")
        found["PYTHONPATH"] = os.pathsep.join([hook, behind] if behind else [hook])
    return found


def install_in_children(include: Sequence[str], exclude: Sequence[str]) -> None:
    """Set LAUNCHKIT_INSTALL and its patterns, for this process's settings and its children."""
    os.environ["LAUNCHKIT_INSTALL"] = "1"
    os.environ["LAUNCHKIT_INSTALL_INCLUDE"] = ",".join(include)
    os.environ["LAUNCHKIT_INSTALL_EXCLUDE"] = ",".join(exclude)
    reload()


_current: Settings | None = None


def current() -> Settings:
    """Return the settings, reading the environment on the first call."""
    global _current
    if _current is None:
        _current = _read()
    return _current


def cache_home() -> Path:
    """Return launchkit's directory in the user's cache directory; it need not exist.

    Raises UsageError for a user without a home directory.
    """
    import platformdirs

    return _home(platformdirs.user_cache_path, "a cache", "XDG_CACHE_HOME")


def data_home() -> Path:
    """Return launchkit's directory for what must be kept; it need not exist.

    Raises UsageError for a user without a home directory.
    """
    import platformdirs

    return _home(platformdirs.user_data_path, "data", "XDG_DATA_HOME")


def _home(find: Callable[[str], Path], what: str, name: str) -> Path:
    try:
        found = find("launchkit")
    except RuntimeError:  # older releases return the ~ that could not be expanded
        found = Path("~")
    if not found.is_absolute():
        raise UsageError(
            f"this user has no home directory that could hold {what}. Set {name} to the "
            "whole path of a directory."
        )
    return found


def reload() -> Settings:
    """Read the environment again, and return what it says now."""
    global _current
    _current = None
    return current()
