"""Threads that begin at one instant."""

import threading
from concurrent.futures import ThreadPoolExecutor


def in_threads(count, call):
    """Call ``call(index)`` in ``count`` threads at once; return what each returned, in order."""
    barrier = threading.Barrier(count)

    def started(index):
        barrier.wait()
        return call(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(started, range(count)))
