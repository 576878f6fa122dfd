"""Under install() torch.compile and wrap_triton see the kernels that they saw before."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
from torch.utils import _triton as torch_triton

import launchkit
from launchkit import hostonly


@pytest.fixture(autouse=True)
def with_triton(host, monkeypatch):
    """Dynamo takes Triton for absent where torch sees no GPU."""
    monkeypatch.setattr(torch_triton, "has_triton", lambda: True)
    torch._dynamo.reset()
    launchkit.install()
    yield
    launchkit.uninstall()
    torch._dynamo.reset()


def plain():
    return triton.jit(sample_kernels.copy.fn), {"BLOCK": 16}


def autotuned():
    return triton.autotune(sample_kernels.configs(16, 32), ["n"])(plain()[0]), {}


def targets(function):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("eager")(graph, inputs)

    hostonly.clear()
    torch.compile(function, backend=backend, fullgraph=True)(torch.empty(64))
    (graph,) = graphs
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("make", [plain, autotuned])
@pytest.mark.parametrize("launched_before", [False, True])
@pytest.mark.parametrize("grid", [(4,), lambda meta: (64 // meta["BLOCK"],)])
def test_subscript_is_traced_into_one_graph(make, launched_before, grid):
    kernel, options = make()
    x = torch.empty(64)
    if launched_before:
        kernel[grid](x, x, 64, 1, **options)

    def function(x):
        y = torch.empty_like(x)
        kernel[grid](x, y, 64, 1, **options)
        return y

    names = [name for name in targets(function) if name.startswith("triton_kernel_wrapper")]
    assert names == ["triton_kernel_wrapper_mutation"]
    (launch,) = hostonly.launches()
    assert launch.grid == (4, 1, 1)


@pytest.mark.parametrize("make", [plain, autotuned])
def test_wrapped_kernel_is_traced_and_launches(make):
    from torch.fx.experimental.proxy_tensor import make_fx

    kernel, options = make()

    def function(x):
        y = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(4,)](x, y, 64, 1, **options)
        return y

    graph = make_fx(function)(torch.empty(64))
    assert "triton_kernel_wrapper_mutation" in graph.code
    hostonly.clear()
    function(torch.empty(64))
    assert len(hostonly.launches()) == 1


def test_function_compiled_before_install_works_after_it():
    launchkit.uninstall()
    kernel, options = plain()

    def function(x):
        kernel[(4,)](x, x, 64, 1, **options)
        return x + 1

    compiled = torch.compile(function, backend="eager", fullgraph=True)
    compiled(torch.empty(64))
    launchkit.install()
    hostonly.clear()
    compiled(torch.empty(64))
    assert len(hostonly.launches()) == 1
