"""What a process captures of itself under ``launchkit profile``. Above the leaves; needs no torch.

``begin`` is called as Python starts. Nothing that goes wrong here may keep the program from
running: it is a warning. Each process writes a file of its own, named by its pid.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launchkit import clock, jsonio, settings
from launchkit.errors import LaunchkitError
from launchkit.profiling import background, ranges
from launchkit.profiling.facts import of_this_process
from launchkit.profiling.names import traced_name
from launchkit.profiling.sampling.clock_marks import leave_marks
from launchkit.profiling.sampling.range_log import RangeLog
from launchkit.settings import ProfileRequest
from launchkit.when_imported import when_imported

_log = logging.getLogger("launchkit")

FORMAT, SCHEMA = "launchkit-session", 1
LAUNCHES, TRACE, SESSION = "launches-{pid}.json.gz", "trace-{pid}.json.gz", "session-{pid}.json"
"""The files of a process, by what it captures."""

_ATTACHED_NS = 60_000_000
"""After this long a sampler that started the process looks at it."""

_begun = False


def begin() -> None:
    """Begin what LAUNCHKIT_PROFILE asks of this process; once, and nothing where it is not set."""
    global _begun
    if _begun:
        return
    _begun = True
    with _Guard("The program runs without its capture"):
        request = settings.profile_request()
        if request is not None:
            _CAPTURES[request.how](request)


class _Guard:
    """What is raised inside becomes a warning."""

    def __init__(self, consequence: str) -> None:
        self._consequence = consequence

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, Exception):
            return False
        told = str(error) if isinstance(error, LaunchkitError) else repr(error)
        _log.warning("launchkit profile: %s. %s.", told.rstrip("."), self._consequence)
        return True


def _at_exit(path: Path, write: Callable[[Path], None]) -> Callable[[], None]:
    """Have ``write`` called once: at exit, or before by what is returned. A forked child has none."""
    pid = os.getpid()

    def finish() -> None:
        atexit.unregister(finish)
        if os.getpid() == pid:
            with _Guard(f"{path} was not written"):
                write(path)

    atexit.register(finish)
    return finish


def _path(request: ProfileRequest, name: str) -> Path:
    return Path(request.directory, name.format(pid=os.getpid()))


def _launches(request: ProfileRequest) -> None:
    """Record launches from when Triton has been imported."""

    def start() -> None:
        with _Guard("The program runs without its capture"):
            from launchkit.profiling import profile_launches

            recording = profile_launches()
            profile = recording.__enter__()

            def write(path: Path) -> None:
                recording.__exit__(None, None, None)
                profile.save(path)

            background.set_running(_at_exit(_path(request, LAUNCHES), write))

    when_imported("triton", start)


def _torch(request: ProfileRequest) -> None:
    """Trace with torch.profiler from when torch has been imported, with launchkit's ranges."""

    def start() -> None:
        with _Guard("The program runs without its capture"):
            profiler: Any = sys.modules["torch"].profiler
            kinds = profiler.ProfilerActivity
            supported = profiler.supported_activities()
            wanted = [kind for kind in (kinds.CPU, kinds.CUDA) if kind in supported]
            tracing = profiler.profile(activities=wanted)
            with warnings.catch_warnings():
                # Torch 2.11 tells everybody what several cycles would lose; this has one.
                warnings.filterwarnings("ignore", "Warning: Profiler clears events")
                tracing.start()
            ends = _RecordFunctions(profiler.record_function)
            ranges.set_range_slot((ends.enter, ends.leave), "torch")

            def write(path: Path) -> None:
                ranges.set_range_slot(None, "torch")
                tracing.stop()
                tracing.export_chrome_trace(str(path))

            _at_exit(_path(request, TRACE), write)

    when_imported("torch", start)


class _RecordFunctions(threading.local):
    """Ranges as PyTorch's annotations, which its trace has beside the ops."""

    def __init__(self, record_function: Callable[[str], Any]) -> None:
        self._record_function = record_function
        self._open: list[Any] = []

    def enter(self, entered: ranges.annotate) -> None:
        """Begin the annotation of a range."""
        annotation = self._record_function(traced_name(entered.name, entered.layer, entered.op))
        annotation.__enter__()
        self._open.append(annotation)

    def leave(self, _: ranges.annotate) -> None:
        """End the innermost annotation of this thread."""
        if self._open:
            self._open.pop().__exit__(None, None, None)


def _samples(request: ProfileRequest) -> None:
    """Log every range while py-spy samples, and leave marks by which its clock can be set."""
    interval_ns = round(1e9 / request.rate_hz)
    facts, log = of_this_process(), RangeLog()
    while clock.now_ns() - facts.start_ns < _ATTACHED_NS:
        pass
    marks = leave_marks(interval_ns)
    ranges.set_range_slot((log.enter, log.leave), "samples")

    def write(path: Path) -> None:
        ranges.set_range_slot(None, "samples")
        every = [*marks, *leave_marks(interval_ns, first=len(marks))]
        document = {
            "format": FORMAT,
            "schema": SCHEMA,
            "pid": facts.pid,
            "rank": facts.rank,
            "utc_ns": facts.utc_ns,
            "start_ns": facts.start_ns,
            "marks": [list(mark) for mark in every],
            "alive": [
                {"ident": each.ident, "native_id": each.native_id, "name": each.name}
                for each in threading.enumerate()
            ],
            **log.members(),
        }
        path.write_bytes(jsonio.dumps_compact(document))

    _at_exit(_path(request, SESSION), write)


_CAPTURES: dict[str, Callable[[ProfileRequest], None]] = {
    "launches": _launches,
    "torch": _torch,
    "samples": _samples,
}
