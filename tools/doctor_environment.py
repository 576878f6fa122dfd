"""What ``launchkit doctor`` finds in the environment. Neither torch nor Triton is imported."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, entry_points, version

from launchkit import settings
from launchkit.tools.doctor_check import FINDING, NOTE, OK, Check, guarded

# What sends launches through Triton, or makes them slow, while it is set.
_SLOWING = {
    "TRITON_INTERPRET": "kernels run in Python, and nothing is compiled.",
    "TRITON_DEBUG": "launches go through Triton.",
    "TRITON_INSTRUMENTATION_MODE": "launches go through Triton.",
    "TRITON_FPSAN_HOMOMORPHIC_CASTS": "launches go through Triton.",
    "CUDA_LAUNCH_BLOCKING": "each launch waits until the GPU has run the kernel.",
}
_OFF = {"0", "false", "no", "off", "n"}


def checks() -> list[Check]:
    """Return what was found."""
    return [
        *guarded("environment", _variables),
        *guarded("environment", _foreign),
        *guarded("environment", _combinations),
        *guarded("vLLM plugin", _plugin),
    ]


def _variables() -> Iterator[Check]:
    known = settings.variables()
    wrong = [each for each in known if each.error is not None]
    unknown = settings.unknown_variables()
    for each in wrong:
        yield Check("environment", FINDING, f"{each.name} has a bad value.", str(each.error))
    for name in unknown:
        near = get_close_matches(name, [each.name for each in known], n=1, cutoff=0.6)
        meant = f"Did you mean {near[0]}? Rename it, or unset it." if near else "Unset it."
        yield Check(
            "environment", FINDING, f"{name} is set, and launchkit does not read it.", meant
        )
    if not wrong and not unknown:
        given = [each.name for each in known if each.text is not None]
        says = f"set, and none wrongly: {', '.join(given)}." if given else "no variable is set."
        yield Check("environment", OK, says)


def _foreign() -> Iterator[Check]:
    for name, text in settings.foreign_variables(tuple(_SLOWING)).items():
        if text.strip().lower() not in _OFF:
            says = f"{name}={text}: {_SLOWING[name]}"
            yield Check("environment", FINDING, says, "Unset it where launches are to be fast.")


def _combinations() -> Iterator[Check]:
    values = {each.name: each for each in settings.variables()}
    on = {name: each.value for name, each in values.items()}
    given = {name for name, each in values.items() if each.text is not None}
    if on["LAUNCHKIT_DISABLE"]:
        useless = [n for n in ("LAUNCHKIT_INSTALL", "LAUNCHKIT_VERIFY") if on[n]]
        if useless:
            yield Check(
                "environment",
                FINDING,
                f"LAUNCHKIT_DISABLE leaves {' and '.join(useless)} without effect.",
                "Unset one or the other.",
            )
    elif on["LAUNCHKIT_VERIFY"]:
        yield Check(
            "environment",
            FINDING,
            "LAUNCHKIT_VERIFY asks Triton before each launch, which takes longer than Triton alone.",
            "Unset it where no fault is looked for.",
        )
    patterns = given & {"LAUNCHKIT_INSTALL_INCLUDE", "LAUNCHKIT_INSTALL_EXCLUDE"}
    if patterns and not on["LAUNCHKIT_INSTALL"] and not _is_installed("vllm"):
        yield Check(
            "environment",
            FINDING,
            f"{' and '.join(sorted(patterns))} say which kernels install() covers, and nothing "
            "installs.",
            "Set LAUNCHKIT_INSTALL=1, or start the program with launchkit run.",
        )


def _plugin() -> Iterator[Check]:
    names = [point.name for point in entry_points(group="vllm.general_plugins")]
    vllm = _is_installed("vllm")
    refused = any(e.name == "LAUNCHKIT_INSTALL" and e.value is False for e in settings.variables())
    if "launchkit" not in names:
        yield Check(
            "vLLM plugin",
            FINDING if vllm else NOTE,
            "the entry point that vLLM's workers install launchkit by is not there.",
            "Install launchkit-triton as a package, not as a folder on the path.",
        )
    elif vllm and refused:
        yield Check("vLLM plugin", NOTE, "LAUNCHKIT_INSTALL=0 keeps it from installing.")
    else:
        says = "vLLM's workers install launchkit." if vllm else "installed; vLLM is not."
        yield Check("vLLM plugin", OK, says)


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
