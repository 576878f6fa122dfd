"""Jobs shared out among processes: each is answered once, whatever the processes do."""

from __future__ import annotations

import pytest

from launchkit.dispatch.manifest import workers
from launchkit.dispatch.manifest.workers import Role, Step, run_jobs

ECHO = "job_roles:echo"


def answers(jobs, role, environments):
    found = {}

    def answered(number, answer):
        assert number not in found
        found[number] = answer

    run_jobs(jobs, role, environments, answered)
    return [found[number] for number in range(len(jobs))]


def test_every_job_is_answered_through_deaths_of_workers():
    kinds = [{}, {"do": "die"}, {"do": "leave"}, {}, {"do": "fail for good"}, {}]
    jobs = [{**kind, "number": i} for i, kind in enumerate(kinds)]
    role = Role(ECHO, {"a": 1}, (Step("job_roles:prepare", {"b": 2}),))
    found = answers(jobs, role, [{"LAUNCHKIT_TEST_PLACE": "first"}])
    assert "SIGKILL" in found[1]["died"]
    assert "exit code 3" in found[2]["died"]
    assert found[4]["fatal"]
    for number in (0, 3, 5):
        assert found[number]["job"] == jobs[number]
        assert found[number]["options"] == {"a": 1}
        assert found[number]["called"] == [{"b": 2}]
        assert found[number]["variable"] == "first"
    assert len({found[number]["pid"] for number in (0, 3, 5)}) == 3  # each after a replacement


def test_workers_that_do_not_start_leave_every_job_answered():
    role = Role(ECHO, {}, (Step("job_roles:fail_to_start"),))
    for answer in answers([{}, {}], role, [{}]):
        assert "exit code 7" in answer["died"]


BABBLING = """
import os, sys
path, answers = {path!r}, os.fdopen({fd}, "wb", 0)
for line in sys.stdin:
    answers.write(b'{{"ready": true}}\\n' if "role" in line else b"%s\\n")
"""


@pytest.mark.parametrize("said", ["nonsense", "[1]"])
def test_answer_that_is_none_fails_its_job_and_the_worker_is_replaced(said, monkeypatch):
    monkeypatch.setattr(workers, "_CODE", BABBLING.replace("%s", said))
    found = answers([{}, {}], Role("role:role"), [{}])
    assert all("the worker's answer" in answer["died"] for answer in found)


def test_no_jobs_start_no_worker():
    assert answers([], Role("no_such_module:role"), [{}]) == []
