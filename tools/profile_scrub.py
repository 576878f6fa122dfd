"""``launchkit profile scrub``: a copy of a capture that can be shared. A command.

Exit codes: 0 written, 2 bad use.
"""

from __future__ import annotations

from launchkit.tools.capture_files import capture_of
from launchkit.tools.profile_copies import AsJson, Capture, Copy, Force, check_copy, give_counts


def command(capture: Capture, output: Copy, force: Force = False, as_json: AsJson = False) -> None:
    """Copy a capture without what it says of the machine.

    Left out are environment, command line, hosts, users, paths, serial numbers of GPUs, processes
    without an event, and every table and text that is not known to be free of them. Names of
    ranges and kernels stay: read them before you share the copy.
    """
    from launchkit.profiling.timeline.copies import scrub_capture

    capture = capture_of(capture)
    check_copy(capture, output, force)
    give_counts(capture, output, scrub_capture(capture, output), as_json)
