"""The C core finds out how tensors are read whatever torch mode launchkit is first imported in."""

from __future__ import annotations

import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from launchkit.dispatch.native import extension

pytestmark = pytest.mark.usefixtures("c_core")


class RefusesFunctions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise LookupError(func)


class RefusesOperators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise LookupError(func)


MODES = {
    "function mode": RefusesFunctions,
    "dispatch mode": RefusesOperators,
    "fake tensors": FakeTensorMode,
    "meta device": lambda: torch.device("meta"),
    "inference": torch.inference_mode,
}
TRANSFORMS = {
    "vmap": torch.vmap,
    "grad": torch.func.grad,
    "functionalize": torch.func.functionalize,
}


@pytest.fixture
def native():
    """The extension; afterwards it reads tensors as before."""
    yield extension.active()
    extension.read_tensors_directly(extension.active())


@pytest.mark.parametrize("mode", MODES)
def test_what_is_found_in_a_mode_is_what_is_found_outside(native, mode):
    outside = extension.read_tensors_directly(native)
    with MODES[mode]():
        inside = extension.read_tensors_directly(native)
    assert inside == outside


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_is_found_in_a_transform_is_what_is_found_outside(native, transform):
    found = [extension.read_tensors_directly(native)]

    def function(x):
        found.append(extension.read_tensors_directly(native))
        return x.sum()

    TRANSFORMS[transform](function)(torch.ones(3))
    assert len(found) == 2
    assert found[0] == found[1]


def test_where_torch_raises_or_no_thread_starts_tensors_are_read_in_another_way(
    native, monkeypatch
):
    def refuse(*ignored):
        raise RuntimeError("can't start new thread")

    for owner, name in ((extension, "_probes"), (threading.Thread, "start")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refuse)
            assert not extension.read_tensors_directly(native)
