"""Ranges and gaps of random timelines, against a count of single nanoseconds in plain Python."""

from __future__ import annotations

import random

import pytest

pl = pytest.importorskip("polars")

from handmade import call, rng, timeline, work  # noqa: E402

from launchkit.profiling.timeline.analysis.analysis import analyse  # noqa: E402

END = 40


def capture(draw, process):
    """Ranges of two domains that may cross, calls one after the other, and the work they start."""
    ranges = []
    for number in range(draw.randrange(7)):
        start = draw.randrange(END)
        name, domain = f"{process}/{number}", draw.choice("ab")
        end = start + draw.randrange(20)
        ranges.append(rng(name, start, end, domain=domain, process=process))
    calls, gpu, now = [], [], 0
    for number in range(draw.randrange(8)):
        now += draw.randrange(6)
        length, kind = draw.randrange(1, 7), draw.choice(["sync", "launch", "launch"])
        calls.append(call("cuX", now, now + length, kind, number, process=process))
        if kind == "launch":
            begin = now + draw.randrange(10)
            gpu.append(
                work("k", begin, begin + draw.randrange(1, 10), number, process=process,
                     stream=draw.randrange(2), device=2 * process + draw.randrange(2))
            )  # fmt: skip
        now += length
    overheads = [
        {
            "process": process,
            "thread": 1,
            "kind": "instrumentation",
            "start_ns": at,
            "end_ns": at + 3,
        }
        for at in draw.sample(range(END), draw.randrange(3))
    ]
    return ranges, calls, gpu, overheads


@pytest.fixture(scope="module")
def captures():
    """Random captures, a process each."""
    draw = random.Random(7)
    return [capture(draw, process) for process in range(1, 81)]


@pytest.fixture(scope="module")
def analysed(captures):
    """All of them in one timeline, since a process sees nothing of another."""
    return analyse(
        timeline(*([row for each in captures for row in each[table]] for table in range(4)))
    )


def during(rows, ns, **where):
    return [each for each in rows if each["start_ns"] <= ns < each["end_ns"]
            and all(each[name] == value for name, value in where.items())]  # fmt: skip


def innermost(ranges, ns):
    """The name of the range opened last of those open; of equal starts the shorter, then the later."""
    ordered = sorted(ranges, key=lambda each: (each["start_ns"], -each["end_ns"]))
    found = during(ordered, ns)
    return found[-1]["name"] if found else None


def expected_times(one, ranges, calls):
    found = dict.fromkeys(
        ("exclusive_ns", "inclusive_python_ns", "api_ns", "sync_ns", "python_ns"), 0
    )
    for ns in range(one["start_ns"], one["end_ns"]):
        mine, busy = innermost(ranges, ns) == one["name"], bool(during(calls, ns))
        found["exclusive_ns"] += mine
        found["inclusive_python_ns"] += not busy
        found["python_ns"] += mine and not busy
        found["api_ns"] += bool(during(calls, ns, kind="launch"))
        found["sync_ns"] += bool(during(calls, ns, kind="sync"))
    return found


def expected_work(one, ranges, calls, gpu):
    launches = [each for each in calls if each["kind"] == "launch"
                and one["start_ns"] <= each["start_ns"] < one["end_ns"]]  # fmt: skip
    own = [each for each in launches if innermost(ranges, each["start_ns"]) == one["name"]]
    mine = [each for each in gpu if each["correlation"] in {e["correlation"] for e in launches}]
    found = {"launches": len(launches), "own_launches": len(own), "kernels": len(mine),
             "gpu_ns": sum(e["end_ns"] - e["start_ns"] for e in mine),
             "gpu_busy_ns": 0, "gpu_idle_ns": 0, "exposed_idle_ns": 0}  # fmt: skip
    for device in {each["device"] for each in mine}:
        here = [each for each in mine if each["device"] == device]
        first, last = min(e["start_ns"] for e in here), max(e["end_ns"] for e in here)
        active = [bool(during(gpu, ns, device=device)) for ns in range(first, last)]
        found["gpu_busy_ns"] += sum(active)
        found["gpu_idle_ns"] += len(active) - sum(active)
        window = range(one["start_ns"], max(last, one["end_ns"]))
        found["exposed_idle_ns"] += sum(not during(gpu, ns, device=device) for ns in window)
    return found


def test_ranges_have_the_times_and_work_that_counting_nanoseconds_gives(captures, analysed):
    found = {each["name"]: each for each in analysed.instances.iter_rows(named=True)}
    checked = 0
    for ranges, calls, gpu, _ in captures:
        for one in ranges:
            expected = expected_times(one, ranges, calls) | expected_work(one, ranges, calls, gpu)
            row = found[one["name"]]
            assert {name: row[name] or 0 for name in expected} == expected
            checked += 1
    assert checked == analysed.instances.height > 150


def cause(ns, launch, calls, overheads):
    if ns >= launch["end_ns"]:
        return "queue"
    if ns >= launch["start_ns"]:
        return "launch"
    if during(overheads, ns):
        return "profiler"
    found = during(calls, ns)
    return {"sync": "sync", "launch": "api"}[found[0]["kind"]] if found else "python"


def expected_idle(ranges, calls, gpu, overheads):
    """The idle time of the devices of one capture by the range and cause."""
    expected: dict[tuple[str | None, str], int] = {}
    for device in {each["device"] for each in gpu}:
        here = sorted((each for each in gpu if each["device"] == device),
                      key=lambda each: (each["start_ns"], -each["end_ns"]))  # fmt: skip
        for ns in range(here[0]["start_ns"], max(each["end_ns"] for each in here)):
            if not during(here, ns):
                after = next(each for each in here if each["start_ns"] > ns)
                launch = next(e for e in calls if e["correlation"] == after["correlation"])
                why = cause(ns, launch, calls, overheads)
                at = launch["start_ns"] if why in ("queue", "launch") else ns
                key = (innermost(ranges, at), why)
                expected[key] = expected.get(key, 0) + 1
    return expected


def test_idle_time_has_the_causes_and_ranges_that_counting_nanoseconds_gives(captures, analysed):
    expected: dict[tuple[str | None, str], int] = {}
    for each in captures:
        for key, ns in expected_idle(*each).items():
            expected[key] = expected.get(key, 0) + ns
    rows = analysed.idle.select("range", "cause", "idle_ns").rows()
    assert {(name, why): ns for name, why, ns in rows} == expected
    assert {why for _, why in expected} == {"python", "api", "sync", "launch", "queue", "profiler"}
