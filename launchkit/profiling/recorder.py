"""``profile_launches``: time each launch, by the ranges around it. Above dispatch.

The C core times its launches itself, into a buffer that is read now and then. Without it the
dispatcher's launch functions are replaced by timed ones. In both cases what is not recorded
costs nothing: the ends of ranges are replaced, too, and put back when the recording ends.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from launchkit import hostonly
from launchkit.dispatch import launcher
from launchkit.errors import UsageError
from launchkit.profiling import background, ranges
from launchkit.profiling.facts import of_this_process
from launchkit.profiling.profile.launch_profile import LaunchProfile
from launchkit.profiling.recording.core import CoreRecording
from launchkit.profiling.recording.slots import SlotRecording
from launchkit.profiling.recording.tally import Tally

_recording_lock = threading.Lock()


@contextlib.contextmanager
def profile_launches(
    *, samples_per_row: int = 8192, sample_every: int = 1
) -> Iterator[LaunchProfile]:
    """Time every launch that goes through launchkit while the block runs.

    Launches of all threads are recorded, each under the ranges that its own thread opened
    inside the block. A launch that raises is counted as failed and has no time. A first
    launch that tunes or compiles is a launch like others: see its row's p90 and total; what it
    launches of the same kernel, such as benchmarks, is part of it. A launch of another kernel
    made inside it (by a hook) is in the time of both. ``samples_per_row`` bounds memory: counts
    and totals go on beyond it, percentiles do not.

    Launches from a plan of the C core have their time by stage as well: find, grid, driver. A
    replay of a planned op counts with each of its launches, and as a whole.

    Ranges are timed as well: how often each was open, how long, and what of that was spent in the
    driver and in Python. ``profile.save(path)`` keeps all of it.

    ``sample_every``: record one of so many launches, at random intervals, and no times of ranges.
    A launch that is not in the sample costs a few ns, a range some tenths of a µs: cheap enough to
    stay on in production. Figures are then of the sample; ``profile.seen`` counts all launches.

    Launches that torch.compile traced are Triton's, not launchkit's: they are not seen.

    Raises ``UsageError`` for a number that is not an int above 0, and when a recording is
    already running, in this thread or another: its figures would hold the other's overhead.
    """
    for name, number in (("samples_per_row", samples_per_row), ("sample_every", sample_every)):
        if type(number) is not int or not 0 < number < 2**31:
            raise UsageError(
                f"{name}={number!r} is not a number of launches. Pass 1 or more.",
                option=name,
                value=number,
            )
    background.give_way()
    if not _recording_lock.acquire(blocking=False):
        raise UsageError(
            "launches are already being recorded. Use one profile_launches around both parts, "
            "or leave the first one before."
        )
    try:
        yield from _record(Tally(samples_per_row), sample_every)
    finally:
        _recording_lock.release()


def _record(tally: Tally, sample_every: int) -> Iterator[LaunchProfile]:
    recording = _recording(tally, sample_every)
    mode = "interpreter" if launcher.is_interpreting() else None
    try:
        calibration = recording.start()
        facts = of_this_process()
        ranges.set_range_slot((recording.ranges.enter, recording.ranges.leave))
        yield LaunchProfile(tally, calibration, mode, sample_every=sample_every, processes=[facts])
    finally:
        recording.stop()
        ranges.set_range_slot(None)
        tally.close()


def _recording(tally: Tally, sample_every: int) -> CoreRecording | SlotRecording:
    extension = launcher.recording_extension()
    if extension is not None:
        return CoreRecording(tally, extension, hostonly, sample_every)
    return SlotRecording(tally, launcher.set_launch_slot, hostonly.is_active, sample_every)
