"""What is still to be sent when a process ends is sent, and a dead service does not keep it."""

from __future__ import annotations

import os
import sys

import fake_service
import pytest
from service_clients import AMPLE_S
from stored import RECORD
from subprocesses import in_python

PUT = """
from stored import RECORD
from launchkit.service.client.store import ServiceStore
store = ServiceStore({url!r}, token={token!r}, timeout_s={timeout_s})
"""
PLAIN = PUT + "store.put(RECORD)"
CHILD = (
    PUT
    + """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=store.put, args=(RECORD,))
child.start()
child.join()
"""
)
QUIET = """
import sys
from launchkit.service.client.opening import open_service
import launchkit.service.client.store
print(sorted({"httpx", "fastapi", "sqlalchemy", "torch", "triton", "httpcore"} & set(sys.modules)))
"""


def run(code, service, timeout_s=AMPLE_S):
    code = code.format(url=service.url, token=fake_service.TOKEN, timeout_s=timeout_s)
    return in_python(code, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


@pytest.mark.parametrize("code", [PLAIN, CHILD], ids=["process", "child of multiprocessing"])
def test_process_that_ends_sends_what_it_has_put(service, code):
    run(code, service)
    assert service.stored() == [RECORD]


def test_service_that_never_answers_keeps_no_process_from_ending(service):
    service.misbehave["everything"] = fake_service.hangs
    run(PLAIN, service, timeout_s=0.2)
    assert service.stored() == []


def test_client_imports_neither_torch_nor_what_only_the_server_needs():
    assert in_python(QUIET) == "[]"
