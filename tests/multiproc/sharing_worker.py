"""Commands that are killed halfway; test_sharing_killed.py runs this file and reads its JSON.

Each command runs in a forked child, in which one call of the system kills it with SIGKILL.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import pathlib
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace

from launchkit.configs import TunedRecord
from launchkit.keys import LaunchKey, encode_value
from launchkit.store import DirectoryStore, bundle, document, pins
from launchkit.tools.configs import app

GOLDEN = pathlib.Path(__file__).parent.parent / "data" / "config_document_v1.json"
RECORD = document.parse(GOLDEN.read_bytes(), source=str(GOLDEN)).records[0]


def record_for(n: int, **changes: object) -> TunedRecord:
    return replace(RECORD, key=LaunchKey((encode_value("n", n),), ()), **changes)


def fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(3)


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def command(*arguments: object) -> object:
    """Run a ``launchkit configs`` command quietly; return its exit code."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return app([str(each) for each in arguments], standalone_mode=False)


def dying(point: str, work: Callable[[], object]) -> int:
    """Run ``work`` in a child that dies at e.g. ``before-replace-3``; return its exit code."""
    when, name, count = point.split("-")
    original, calls = getattr(os, name), [0]

    def die(*args: object, **options: object) -> object:
        calls[0] += 1
        last = calls[0] == int(count)
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def run() -> None:
        setattr(os, name, die)
        work()

    return code_of(fork(run))


def state(store: pathlib.Path, given: list[TunedRecord]) -> dict[str, object]:
    opened = DirectoryStore(store)
    found = list(opened.records())
    return {
        "strange": [each.key.text for each in found if each not in given],
        "broken": list(opened.examine().broken),
        "found": len(found),
    }


def brought(place: str, how: str, point: str) -> dict[str, object]:
    """Kill an import or a merge; then look, and do it again."""
    root = pathlib.Path(place)
    mine, theirs = [record_for(n) for n in range(10)], [record_for(n) for n in range(10, 40)]
    DirectoryStore(root / "store").put_all(mine)
    if how == "import":
        bundle.write(root / "x.bundle", theirs)
        arguments = ["import", root / "x.bundle", "--store", root / "store"]
    else:
        DirectoryStore(root / "theirs").put_all(theirs)
        arguments = ["merge", root / "theirs", "--into", root / "store"]
    code = dying(point, lambda: command(*arguments))
    halfway = state(root / "store", mine + theirs)
    opened = DirectoryStore(root / "store")
    lost = [each.key.text for each in mine if opened.get(*each.identity) != each]
    command(*arguments)
    return {
        "code": code,
        "lost": lost,
        "halfway": halfway,
        "after": state(root / "store", mine + theirs),
    }


def pinned(place: str, point: str) -> dict[str, object]:
    """Kill a pin over an old lock file; then look, and do it again."""
    root = pathlib.Path(place)
    lock = root / "launchkit.lock"
    store = DirectoryStore(root / "store")
    store.put_all([record_for(n) for n in range(5)])
    command("pin", lock, "--store", store.path)
    old = pins.read(lock)[0]
    store.put_all([record_for(n) for n in range(5, 9)])
    code = dying(point, lambda: command("pin", lock, "--store", store.path))
    halfway = pins.read(lock)[0]
    command("pin", lock, "--store", store.path)
    new = pins.read(lock)[0]
    return {"code": code, "halfway": {old: "old", new: "new"}.get(halfway, "half")}


def cleaned(place: str, point: str) -> dict[str, object]:
    """Kill a collection; whatever it had not to remove is there."""
    store, old, new = mixed(pathlib.Path(place))
    code = dying(point, lambda: command("gc", "--store", store.path, "--older-than", "9d",
                                        "--grace", "0s", "--yes"))  # fmt: skip
    opened = DirectoryStore(store.path)
    lost = [each.key.text for each in new if opened.get(*each.identity) != each]
    return {"code": code, "lost": lost, "halfway": state(store.path, old + new)}


def mixed(root: pathlib.Path) -> tuple[DirectoryStore, list[TunedRecord], list[TunedRecord]]:
    """A store in which old and new records share files."""
    now = datetime.datetime.now(datetime.timezone.utc)
    then = now - datetime.timedelta(days=99)
    old = [record_for(n, tuned_at=f"{then:%Y-%m-%dT%H:%M:%SZ}") for n in range(20)]
    letters = {each.key.digest[:2] for each in old}
    made = (record_for(n, tuned_at=f"{now:%Y-%m-%dT%H:%M:%SZ}") for n in range(20, 10**6))
    beside = (each for each in made if each.key.digest[:2] in letters)
    new = [next(beside) for _ in range(20)]
    store = DirectoryStore(root / "store")
    store.put_all(sorted(old + new, key=lambda each: each.key.digest))
    return store, old, new


def beside_writers(place: str, count: str) -> dict[str, object]:
    """Collect again and again while processes store new records in the same files."""
    writers = int(count)
    store, old, new = mixed(pathlib.Path(place))
    made = (record_for(n, tuned_at=new[0].tuned_at) for n in range(10**6, 2 * 10**6))
    letters = {each.key.digest[:2] for each in old}
    later = (each for each in made if each.key.digest[:2] in letters)
    added = [next(later) for _ in range(writers * 10)]

    def write(mine: list[TunedRecord]) -> None:
        opened = DirectoryStore(store.path)
        assert all(opened.put(each) for each in mine)
        assert not opened.counters, opened.counters

    def collect() -> None:
        for _ in range(5):  # what changes while it looks it leaves, with exit code 1
            command("gc", "--store", store.path, "--older-than", "9d", "--grace", "0s", "--yes")

    children = [fork(lambda mine=added[first::writers]: write(mine)) for first in range(writers)]
    children.append(fork(collect))
    codes = [code_of(child) for child in children]
    command("gc", "--store", store.path, "--older-than", "9d", "--grace", "0s", "--yes")
    found = set(DirectoryStore(store.path).records())
    missing = [each.key.text for each in (*new, *added) if each not in found]
    return {"codes": codes, "missing": missing, "old": sum(each in found for each in old)}


def at_each(place: str, scene: str, *arguments: str) -> dict[str, object]:
    """Play a scene at several points, each in a new directory."""
    *first, points = arguments
    return {
        point: globals()[scene](f"{place}/{point}", *first, point) for point in points.split(",")
    }


if __name__ == "__main__":
    scene, place, *rest = sys.argv[1:]
    sys.stdout.write(json.dumps(globals()[scene](place, *rest)))
