"""A task done by a process of its own, whose modules are those of this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launchkit import jsonio, settings
from launchkit.errors import LaunchkitError


def run_task(
    module: str,
    task: Mapping[str, Any],
    through: Sequence[str] = (),
    changes: Mapping[str, str] | None = None,
) -> str:
    """Call ``module.main`` with a task as JSON, in a new process; return what it printed.

    Args:
        module: of ``launchkit.benchmarks``.
        task: JSON values.
        through: what of Python's command line stands before the program, as a profiler's does.
        changes: environment variables to set, besides those that every child gets.

    Raises:
        LaunchkitError: the process failed; the end of what it said is in the message.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; import {module} as p; p.main(sys.argv[1])"
    text = jsonio.dumps_compact(dict(task)).decode()
    quiet = {"LAUNCHKIT_PROGRESS": "0", "LAUNCHKIT_MANIFEST": ""}
    done = subprocess.run(
        [sys.executable, *through, "-W", "ignore", "-c", code, text],
        env=settings.child_environment({**quiet, **(changes or {})}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LaunchkitError(
            f"a process of the benchmark ended with {done.returncode}: "
            f"{(done.stderr or done.stdout)[-2000:]}\nFree GPU memory, or mend what it names, and "
            "measure again.",
            returncode=done.returncode,
        )
    return done.stdout
