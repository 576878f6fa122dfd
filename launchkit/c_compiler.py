"""The C compiler of this machine: which one it is, and running it. A leaf."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from launchkit import settings
from launchkit.errors import CompilerError


def find_c_compiler() -> str:
    """Return the path of the C compiler: CC's, else of gcc, clang or cc.

    Raises CompilerError if it is absent, with the fields ``reason`` ("no_compiler") and
    ``compiler`` (what CC names, or None).
    """
    named = settings.current().compiler
    for name in (named,) if named else ("gcc", "clang", "cc"):
        if (path := shutil.which(name)) is not None:
            return path
    missing = f"{named}, which CC names," if named else "a C compiler"
    raise CompilerError(
        f"{missing} was not found. Install gcc (for example: apt-get install gcc libc6-dev), or "
        "set CC to a C compiler.",
        reason="no_compiler",
        compiler=named,
    )


def compile_c(compiler: str, source: Path, target: Path, flags: Sequence[str]) -> None:
    """Compile ``source`` into ``target``; ``flags`` follow it, so libraries may be among them.

    Raises CompilerError if ``target`` is not there afterwards, whatever the exit code says,
    with the fields ``reason`` ("compile"), ``compiler`` and ``stderr``.
    """
    complaint = _complaint([compiler, "-o", str(target), str(source), *flags], target)
    if complaint is not None:
        raise CompilerError(
            f"{compiler} could not compile {source.name}:\n{complaint}\n"
            "Set CC to a working C compiler with its C library headers.",
            reason="compile",
            compiler=compiler,
            stderr=complaint,
        )


def _complaint(command: Sequence[str], target: Path) -> str | None:
    """Run the compiler; return its words if it did not write ``target``, else None."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        return str(error)
    if result.returncode == 0 and target.exists():
        return None
    return result.stderr.strip() or f"(no library and no message, exit code {result.returncode})"
