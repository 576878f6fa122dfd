"""The only reader of the environment. A leaf.

The variables are read once, on first use; docs/environment.md lists them. ``reload()`` is
for tests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from launchkit.errors import UsageError

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}
_DEVICE_POLICIES = ("exact", "compatible")
_TOOLCHAIN_POLICIES = ("exact", "minor", "any")


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


@dataclass(frozen=True)
class Settings:
    """What the environment said when it was read."""

    disable: bool
    """LAUNCHKIT_DISABLE: every launch is plain Triton."""
    verify: bool
    """LAUNCHKIT_VERIFY: every shortcut is compared with what Triton would launch."""
    native: bool
    """LAUNCHKIT_NATIVE: launches take the C core where there is one."""
    measure: str | None
    """LAUNCHKIT_MEASURE: how configs are timed where a kernel does not say; None is Triton's way."""
    progress: bool
    """LAUNCHKIT_PROGRESS: tuning shows its progress on a terminal."""
    store: str | None
    """LAUNCHKIT_STORE: where tuned configs are kept; None is the user's cache directory."""
    service: str | None
    """LAUNCHKIT_SERVICE: the config service behind the other places, as URL and namespace."""
    service_token: str | None = field(repr=False)
    """LAUNCHKIT_SERVICE_TOKEN: shown to that service, and to no other where it is named."""
    service_key: str | None = field(repr=False)
    """LAUNCHKIT_SERVICE_KEY: the secret that signs a team's records; unsigned ones do not count."""
    service_timeout_ms: int
    """LAUNCHKIT_SERVICE_TIMEOUT_MS: how long a launch waits for a lookup."""
    service_lease_s: int
    """LAUNCHKIT_SERVICE_LEASE_S: how long a key stays taken when who tunes it is killed."""
    manifest: str | None
    """LAUNCHKIT_MANIFEST: the file in which kinds of launches are recorded."""
    device_policy: Literal["exact", "compatible"]
    """LAUNCHKIT_DEVICE_POLICY: whose devices' tuned configs are used."""
    toolchain_policy: Literal["exact", "minor", "any"]
    """LAUNCHKIT_TOOLCHAIN_POLICY: which Tritons' tuned configs are used."""
    require_tuned: bool
    """LAUNCHKIT_REQUIRE_TUNED: a launch that would tune raises instead."""
    install: bool | None
    """LAUNCHKIT_INSTALL: install() when Triton is imported; None is neither asked nor refused."""
    install_include: tuple[str, ...]
    """LAUNCHKIT_INSTALL_INCLUDE: patterns of the kernels that LAUNCHKIT_INSTALL covers."""
    install_exclude: tuple[str, ...]
    """LAUNCHKIT_INSTALL_EXCLUDE: patterns of those that it leaves out."""
    profile: ProfileRequest | None
    """LAUNCHKIT_PROFILE: what `launchkit profile` asks of the processes that it starts."""
    database: str | None = field(repr=False)
    """LAUNCHKIT_DATABASE: the database of `launchkit serve`; None is a file of the user's."""
    compiler: str | None
    """CC: the C compiler; None is gcc, clang or cc, whichever is found."""


def _flag(name: str, default: str = "0") -> bool:
    text = (os.environ.get(name) or default).strip().lower()
    if text not in _TRUE | _FALSE:
        raise UsageError(f"{name}={text!r} is neither on nor off. Set it to 1 or 0.", name=name)
    return text in _TRUE


def _choice(name: str, choices: tuple[str, ...]) -> str:
    """Return one of ``choices``, the first of them where the variable says nothing."""
    text = (os.environ.get(name) or choices[0]).strip().lower()
    if text not in choices:
        raise UsageError(
            f"{name}={text!r} is none of {', '.join(choices)}. Set it to one of them.", name=name
        )
    return text


def _patterns(name: str) -> tuple[str, ...]:
    parts = (part.strip() for part in os.environ.get(name, "").split(","))
    return tuple(part for part in parts if part)


def _number(name: str, default: int, low: int, high: int) -> int:
    text = os.environ.get(name, "").strip() or str(default)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else low - 1
    if not low <= number <= high:
        raise UsageError(
            f"{name}={text!r} is no whole number from {low} to {high}. Set it to one.", name=name
        )
    return number


_PROFILE = re.compile(r"(launches|torch|samples@(?P<rate>[1-9]\d{0,5})):(?P<directory>.+)")


def _profile(name: str) -> ProfileRequest | None:
    text = os.environ.get(name, "")
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


# The database's URL has its password.
_SECRETS = {"LAUNCHKIT_SERVICE_TOKEN", "LAUNCHKIT_SERVICE_KEY", "LAUNCHKIT_DATABASE"}
HIDDEN = "(set)"
"""What is shown of a secret."""


def _secret(name: str, least: int) -> str | None:
    """Return a secret; what is wrong with one is told without it."""
    text = os.environ.get(name, "").strip()
    if text and not (text.isascii() and text.isprintable() and " " not in text):
        raise UsageError(f"{name} is not one word of plain ASCII. Set it again.", name=name)
    if text and len(text) < least:
        raise UsageError(f"{name} is shorter than {least} characters. Set a longer one.", name=name)
    return text or None


_MEASURES = ("eager", "eager+cold", "eager+warm", "graph", "graph+cold", "graph+warm")


def _measure(name: str) -> str | None:
    text = os.environ.get(name, "").strip().lower()
    if text and text not in _MEASURES:
        raise UsageError(f"{name}={text!r} is none of {', '.join(_MEASURES)}.", name=name)
    return text or None


def environment() -> dict[bytes, bytes]:
    """Return the live dictionary behind ``os.environ``, for whoever watches a variable of others.

    Where there is none, an empty one.
    """
    live = getattr(os.environ, "_data", None)
    return live if type(live) is dict else {}


def variable(name: str) -> bytes:
    """Return the key that a variable has in ``environment()``."""
    return os.fsencode(name)


# Field of Settings -> its variable, and how that is read.
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "disable": ("LAUNCHKIT_DISABLE", _flag),
    "verify": ("LAUNCHKIT_VERIFY", _flag),
    "native": ("LAUNCHKIT_NATIVE", lambda name: _flag(name, default="1")),
    "measure": ("LAUNCHKIT_MEASURE", _measure),
    "progress": ("LAUNCHKIT_PROGRESS", lambda name: _flag(name, default="1")),
    "store": ("LAUNCHKIT_STORE", lambda name: os.environ.get(name) or None),
    "service": ("LAUNCHKIT_SERVICE", lambda name: os.environ.get(name) or None),
    "service_token": ("LAUNCHKIT_SERVICE_TOKEN", lambda name: _secret(name, 1)),
    "service_key": ("LAUNCHKIT_SERVICE_KEY", lambda name: _secret(name, 16)),
    "service_timeout_ms": (
        "LAUNCHKIT_SERVICE_TIMEOUT_MS",
        lambda name: _number(name, 500, 1, 60_000),
    ),
    "service_lease_s": ("LAUNCHKIT_SERVICE_LEASE_S", lambda name: _number(name, 30, 1, 3600)),
    "manifest": ("LAUNCHKIT_MANIFEST", lambda name: os.environ.get(name) or None),
    "device_policy": ("LAUNCHKIT_DEVICE_POLICY", lambda name: _choice(name, _DEVICE_POLICIES)),
    "toolchain_policy": (
        "LAUNCHKIT_TOOLCHAIN_POLICY",
        lambda name: _choice(name, _TOOLCHAIN_POLICIES),
    ),
    "require_tuned": ("LAUNCHKIT_REQUIRE_TUNED", _flag),
    "install": ("LAUNCHKIT_INSTALL", lambda name: _flag(name) if name in os.environ else None),
    "install_include": ("LAUNCHKIT_INSTALL_INCLUDE", lambda name: _patterns(name) or ("*",)),
    "install_exclude": ("LAUNCHKIT_INSTALL_EXCLUDE", _patterns),
    "profile": ("LAUNCHKIT_PROFILE", _profile),
    "database": ("LAUNCHKIT_DATABASE", lambda name: os.environ.get(name) or None),
    "compiler": ("CC", lambda name: os.environ.get(name) or None),
}


def _read() -> Settings:
    return Settings(**{field: read(name) for field, (name, read) in _READERS.items()})


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
    return tuple(_variable(name, read) for name, read in _READERS.values())


def _variable(name: str, read: Callable[[str], Any]) -> Variable:
    text, hidden = os.environ.get(name), name in _SECRETS
    shown = HIDDEN if hidden and text else text
    try:
        value = read(name)
    except UsageError as error:
        return Variable(name, shown, None, str(error))
    return Variable(name, shown, HIDDEN if hidden and value else value, None)


def unknown_variables() -> tuple[str, ...]:
    """Return the variables named LAUNCHKIT_* that launchkit does not read, sorted."""
    known = {name for name, _ in _READERS.values()}
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
