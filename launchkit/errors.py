"""Every exception of launchkit. A leaf.

LaunchkitError
├── UsageError            a bad argument or option, raised where it was given
│   ├── NotAutotunedError launch_autotuned was given a kernel without configs
│   ├── GridError         a declared grid that cannot be
│   │   ├── GridNameError   a name in it is no parameter of the kernel
│   │   └── GridValueError  an argument in it is no int, or a divisor is zero
│   └── FrozenArgumentError a frozen handle was called with what it was not frozen for
├── MissingManifestError  there is no file where a manifest was to be read
├── MixedDevicesError     the tensors of one launch are on several GPUs
├── CompilerError         there is no C compiler, or it could not compile
├── HostOnlyError         hostonly.activate cannot run here, or is already active
├── CaptureError          a launch would have to benchmark while a CUDA graph is captured
├── NotTunedError         LAUNCHKIT_REQUIRE_TUNED, and a launch has no tuned config
├── TuningFailedError     no config of a kernel could be run
├── TuningStoppedError    a config broke the CUDA context; the process must restart
├── ProtectionError       a kernel's arguments could not be copied before tuning wrote into them
├── UnexpectedCompileError  a strict watch_compiles saw a compilation or a tuning
├── AgreementError        the ranks of a distributed job could not agree on their configs
├── VerifyError           LAUNCHKIT_VERIFY found a shortcut that differs from Triton
├── MissingExtraError     a package of an optional extra is not installed
├── TimelineError         a file is not a capture that can be read as a timeline
├── UnfingerprintableError  a value or function has no stable identity (a bypass, never fatal)
└── StoreError
    ├── ServiceError      the config service did not give what it was asked for
    └── BadDocumentError  a file is not a config document that this version can use
        ├── BadBundleError  a file is not a whole bundle of config documents
        └── BadLockError    a file is not a lock file, or its digest is not that of its content

Messages end with what to do; the fields carry the same facts for programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from launchkit.pickling import portable, rebuild
from launchkit.printing import printable


class LaunchkitError(Exception):
    """Base of everything that launchkit raises on purpose.

    ``fields`` are the keyword arguments that the exception was made with. Every error can be
    pickled, so that one in a worker process arrives whole; a field that cannot be is replaced
    by its repr.
    """

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        args = tuple(portable(arg) for arg in self.args)
        return rebuild, (type(self), args, portable(self.__dict__))


class UsageError(LaunchkitError, ValueError):
    """An argument or option that cannot work, reported where it was given."""


class NotAutotunedError(UsageError):
    """``launch_autotuned`` was given a kernel that has no configs to choose from."""

    def __init__(self, kernel: str) -> None:
        super().__init__(
            f"{kernel} has no autotune configs. Decorate it with @triton.autotune or "
            "@launchkit.autotuned, or launch it with launchkit.launch.",
            kernel=kernel,
        )


class GridError(UsageError):
    """A grid that ``launchkit.grid`` cannot make, or that a kernel's arguments do not fit."""


class GridNameError(GridError):
    """A declared grid names what the kernel does not have; ``names`` are those that it has."""

    def __init__(self, term: str, name: str, names: Sequence[str]) -> None:
        super().__init__(
            f"{name!r} in the grid's {term} is no parameter of the kernel. Name one "
            f"that it has: {', '.join(names) or 'none'}.",
            term=term,
            name=name,
            names=tuple(names),
        )


class GridValueError(GridError):
    """A declared grid cannot be evaluated: an argument is no int, or a divisor is zero.

    ``name`` is the parameter, or the operator that divides; ``value`` what it has.
    """

    def __init__(self, term: str, name: str, value: Any, reason: str) -> None:
        super().__init__(
            f"{name} in the grid's {term} {reason}. Pass an int that fits, or a function as grid.",
            term=term,
            name=name,
            value=value,
            reason=reason,
        )


class FrozenArgumentError(UsageError):
    """A frozen handle was called with an argument of another class than it was frozen for.

    ``expected`` and ``got`` say both classes; nothing was launched.
    """

    def __init__(self, kernel: str, argument: str, expected: str, got: str) -> None:
        super().__init__(
            f"the frozen launch of {kernel} takes as {argument} {expected}, and got {got}. Pass "
            "such a value, freeze another handle for the new one, or launch with launchkit.launch.",
            kernel=kernel,
            argument=argument,
            expected=expected,
            got=got,
        )


class HostOnlyError(LaunchkitError):
    """Host-only mode cannot be entered (no C compiler, a real driver, already active)."""


class CompilerError(LaunchkitError):
    """C code cannot be compiled: no compiler was found, or it failed."""


class MissingManifestError(LaunchkitError, FileNotFoundError):
    """There is no file ``manifest``, whose launches were asked for."""

    def __init__(self, manifest: str) -> None:
        super().__init__(
            f"there is no manifest {manifest}. Record one: LAUNCHKIT_MANIFEST={manifest} launchkit "
            "run PROGRAM, or launchkit.record_manifest in the program.",
            manifest=manifest,
        )


class MixedDevicesError(LaunchkitError):
    """The tensors of one launch are on several GPUs; nothing was launched.

    ``devices`` maps the name of each tensor argument to the ordinal of its device.
    """

    def __init__(self, kernel: str, devices: Mapping[str, int]) -> None:
        places = ", ".join(f"{name} on cuda:{device}" for name, device in devices.items())
        super().__init__(
            f"{kernel} was given tensors on several GPUs: {places}. A kernel runs on one of them: "
            "move the others there first. Launch through Triton's own kernel[grid] where that GPU "
            "may read the others' memory.",
            kernel=kernel,
            devices=dict(devices),
        )


class CaptureError(LaunchkitError):
    """A launch would have to tune, or (``kernel`` is None) warm kernels, in a CUDA graph's capture."""

    def __init__(self, kernel: str | None) -> None:
        super().__init__(
            "a CUDA graph is being captured, and loading kernels would break it. Warm up before."
            if kernel is None
            else f"{kernel} has no tuned config for these arguments, and tuning would break the "
            "CUDA graph that is being captured. Launch it once with the same key values and dtypes "
            "before the capture, or load a store that holds its config.",
            kernel=kernel,
        )


class NotTunedError(LaunchkitError):
    """A launch has no tuned config, and LAUNCHKIT_REQUIRE_TUNED=1, or a warm-up that is not to tune,
    keeps it from tuning.

    ``reason`` says why no stored config answers, ``explanation`` what is stored instead.
    """

    def __init__(self, kernel: str, key: str, reason: str, explanation: str) -> None:
        super().__init__(
            f"{kernel} has no tuned config for {key or 'its key'} ({reason}), and must not be tuned "
            f"now.\n{explanation}\nTune the kernel with such arguments before serving, load a store "
            "that holds its config, or allow a nearer one with LAUNCHKIT_DEVICE_POLICY, "
            "LAUNCHKIT_TOOLCHAIN_POLICY or shapes.",
            kernel=kernel,
            key=key,
            reason=reason,
            explanation=explanation,
        )


class TuningFailedError(LaunchkitError):
    """No config of a kernel could be measured; nothing was stored.

    ``reasons`` maps each config, as text, to why it failed.
    """

    def __init__(self, kernel: str, reasons: Mapping[str, str]) -> None:
        lines = "\n".join(f"  {config}: {reason}" for config, reason in reasons.items())
        super().__init__(
            f"none of the {len(reasons)} configs of {kernel} could be run:\n{lines}\n"
            "Add a config that needs less shared memory, fewer registers or fewer warps.",
            kernel=kernel,
            reasons=dict(reasons),
        )


class TuningStoppedError(LaunchkitError):
    """A config did what CUDA does not recover from (an illegal memory access, say).

    Every later use of the GPU in this process fails. ``config`` is that config, as text;
    ``reason`` is what CUDA said.
    """

    def __init__(self, kernel: str, config: str, reason: str) -> None:
        super().__init__(
            f"tuning of {kernel} stopped at {config}: {reason}. No launch in this process can work "
            "any more: restart it. Correct the kernel for this config, or take the config out of "
            "its list; what was measured before is kept.",
            kernel=kernel,
            config=config,
            reason=reason,
        )


class ProtectionError(LaunchkitError):
    """Arguments that tuning would change could not be copied; nothing was launched with them.

    ``bytes``: the size of the copy that fitted neither on ``device`` nor in host memory.
    """

    def __init__(self, kernel: str, bytes: int, device: str) -> None:  # noqa: A002 - a field's name
        super().__init__(
            f"tuning {kernel} would change its arguments, and a copy of {bytes} bytes fits neither "
            f"on {device} nor in host memory. Free memory, tune with smaller arguments of the same "
            'key, or give @launchkit.autotuned protect="none" if the launch may be repeated.',
            kernel=kernel,
            bytes=bytes,
            device=device,
        )


class VerifyError(LaunchkitError):
    """LAUNCHKIT_VERIFY=1 found a launch whose shortcut is not what Triton would launch.

    ``planned`` and ``expected`` are both sides, ``differs`` says in what, and ``parameter`` names
    the kernel parameter whose bytes differ; nothing was launched. Of an op plan, whose launches
    are compared as a whole, only the first two are given.
    """


class UnexpectedCompileError(LaunchkitError):
    """A kernel would be compiled or tuned while ``watch_compiles(strict=True)`` is on.

    ``kind`` is ``compilation`` or ``tuning``; ``event`` says which argument is the cause.
    """

    def __init__(self, kernel: str, kind: str, event: str) -> None:
        super().__init__(
            f"{event}. Launch the kernel with such arguments while the program warms up, or keep "
            "the argument in its class.",
            kernel=kernel,
            kind=kind,
            event=event,
        )


class AgreementError(LaunchkitError):
    """The ranks of a distributed job did not agree on their tuned configs in time.

    ``silent``: global ranks that died or did not answer; ``conflicts``: kernels and keys, as text,
    on which they differ. What was tuned is stored all the same, and launches go on.
    """

    def __init__(
        self, reason: str, silent: Sequence[int] = (), conflicts: Sequence[str] = (),
        advice: str | None = None,
    ) -> None:  # fmt: skip
        lines = "".join(f"\n  {conflict}" for conflict in conflicts)
        late = (
            "See what these ranks do, let every rank of the group call agree_across_ranks as often "
            "as the others, or give it a longer timeout_s."
        )
        advice = "Give all ranks the same config lists." if conflicts else advice or late
        self.reason, self.silent, self.conflicts = reason, tuple(silent), tuple(conflicts)
        super().__init__(
            f"the ranks did not agree on tuned configs: {reason}.{lines}\n{advice}",
            reason=reason,
            silent=self.silent,
            conflicts=self.conflicts,
        )


class MissingExtraError(LaunchkitError, ImportError):
    """What was asked for needs an optional extra; ``package`` is the one that was not found."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(
            f"{package} is not installed. It comes with an extra: "
            f"pip install 'launchkit-triton[{extra}]'.",
            extra=extra,
            package=package,
        )


class TimelineError(LaunchkitError):
    """A file or directory cannot be read as a timeline, or not as it stands.

    ``path`` is that file, ``reason`` what is wrong, ``advice`` what to do: the message's end.
    """

    def __init__(self, path: str, reason: str, advice: str) -> None:
        super().__init__(f"{path}: {reason}. {advice}", path=path, reason=reason, advice=advice)
        self.path, self.reason, self.advice = path, reason, advice


class UnfingerprintableError(LaunchkitError):
    """A value has no identity that is stable across processes.

    Never reaches a launch: the launch goes through Triton's own Autotuner instead.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} cannot be part of a stored key: {reason}. Use a number, text, a dtype or a "
            "member of a module's enum there, and functions whose source is in a file.",
            what=what,
            reason=reason,
        )


class StoreError(LaunchkitError):
    """A config store cannot be opened or used."""


class ServiceError(StoreError):
    """The config service was asked on purpose, by a command say, and did not do it.

    Never reaches a launch. ``reason``: ``unreachable``, ``slow``, ``refused``, ``bad-answer``,
    ``foreign``, ``newer-schema`` or ``unsigned``, as in a miss; ``status``: of HTTP, where there was one;
    ``retry_after_s``: when it said to come back.
    """

    _ADVICE: ClassVar[Mapping[str, str]] = {
        "unreachable": "See that it runs and that its URL is right.",
        "slow": "See what keeps it, or give it longer: LAUNCHKIT_SERVICE_TIMEOUT_MS.",
        "refused": "See its log, and the scopes of LAUNCHKIT_SERVICE_TOKEN.",
        "bad-answer": "See that the URL is that of a launchkit config service.",
        "foreign": "Do not trust that service.",
        "newer-schema": "Upgrade launchkit to read it.",
        "unsigned": "See that everyone who writes has the same LAUNCHKIT_SERVICE_KEY.",
    }

    def __init__(
        self, place: str, reason: str, what: str, *, status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:  # fmt: skip
        advice = self._ADVICE.get(reason, self._ADVICE["refused"])
        if status == 401:  # no token, or none that is in force
            advice = "Set LAUNCHKIT_SERVICE_TOKEN to a token that it knows."
        super().__init__(
            f"the config service {place} {what.rstrip('.')}. {advice}",
            place=place, reason=reason, status=status, retry_after_s=retry_after_s,
        )  # fmt: skip
        self.reason, self.status, self.retry_after_s = reason, status, retry_after_s


class BadDocumentError(StoreError):
    """A file is not a config document that this version of launchkit can use.

    ``newer`` is true for a document of a later schema, which is left in place. Its text has no
    control characters: the reason may quote what others wrote.
    """

    advice = "Delete it, or look at what wrote it."

    def __init__(
        self, source: str, reason: str, newer: bool = False, advice: str | None = None
    ) -> None:
        advice = "Upgrade launchkit to read it." if newer else advice or self.advice
        reason = printable(reason)
        told = f"{printable(source)}: {reason}. {advice}"
        super().__init__(told, source=source, reason=reason, newer=newer)
        self.reason, self.newer = reason, newer


class BadBundleError(BadDocumentError):
    """A file is not a bundle of config documents, or not a whole one: it is refused as a whole."""

    advice = "Export it again, or import its intact entries alone (--partial)."


class BadLockError(BadDocumentError):
    """A file is not a lock file, or was changed by something else than ``configs pin``."""

    advice = "Restore it, or make it again with: launchkit configs pin."
