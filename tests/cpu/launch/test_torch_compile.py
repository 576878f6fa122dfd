"""torch.compile and friends see a plain Triton kernel, whichever way it is launched."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs
from ssd_cases import everything, make_problem, scan
from torch.utils import _triton as torch_triton

import launchkit
from launchkit import hostonly


@pytest.fixture(autouse=True)
def with_triton(each_core, host, monkeypatch):
    """Dynamo takes Triton for absent where torch sees no GPU."""
    monkeypatch.setattr(torch_triton, "has_triton", lambda: True)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def autotuned_by_triton():
    return triton.autotune(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)


def autotuned_by_launchkit():
    return launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)


def traced(function):
    """Compile with the eager backend, run once, and return the names of the graph's operators."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("eager")(graph, inputs)

    hostonly.clear()
    torch.compile(function, backend=backend, fullgraph=True)(torch.empty(64))
    (graph,) = graphs
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def triton_calls(names):
    return [name for name in names if name.startswith("triton_kernel_wrapper")]


@pytest.mark.parametrize("make", [autotuned_by_triton, autotuned_by_launchkit])
@pytest.mark.parametrize(
    "grid", [(4,), lambda meta: (64 // meta["BLOCK"],)], ids=["tuple", "callable"]
)
def test_launch_autotuned_is_traced_into_one_graph(make, grid):
    kernel = make()

    def function(x):
        y = torch.empty_like(x)
        launchkit.launch_autotuned(kernel, grid, x, y, 64, stride=1)
        return y

    assert triton_calls(traced(function)) == ["triton_kernel_wrapper_mutation"]
    (launch,) = hostonly.launches()
    assert launch.grid == (4, 1, 1)


def test_subscript_of_an_autotuned_kernel_is_traced_into_one_graph():
    kernel = autotuned_by_launchkit()

    def function(x):
        y = torch.empty_like(x)
        kernel[(4,)](x, y, 64, stride=1)
        return y

    assert triton_calls(traced(function)) == ["triton_kernel_wrapper_mutation"]
    assert len(hostonly.launches()) == 1


def test_launch_of_a_plain_kernel_is_traced_into_one_graph():
    def function(x):
        y = torch.empty_like(x)
        launchkit.launch(sample_kernels.copy, (4,), x, y, 64, 1, BLOCK=16)
        return y

    assert triton_calls(traced(function)) == ["triton_kernel_wrapper_mutation"]
    assert len(hostonly.launches()) == 1


def test_traced_and_eager_launches_are_equal():
    kernel = autotuned_by_launchkit()
    x = torch.empty(64)

    def function(x):
        launchkit.launch_autotuned(kernel, (4,), x, x, 64, stride=1)
        return x

    torch.compile(function, backend="eager", fullgraph=True)(x)
    compiled_launch = hostonly.launches()[-1]
    function(x)
    assert hostonly.launches()[-1] == compiled_launch


def test_wrap_triton_takes_an_autotuned_kernel():
    from torch.fx.experimental.proxy_tensor import make_fx

    kernel = autotuned_by_launchkit()

    def function(x):
        y = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(4,)](x, y, 64, 1)
        return y

    graph = make_fx(function)(torch.empty(64))
    assert "triton_kernel_wrapper_mutation" in graph.code


@pytest.mark.parametrize("make", [autotuned_by_triton, autotuned_by_launchkit])
def test_eager_call_while_torch_says_it_compiles_is_plain_triton(make, monkeypatch):
    kernel, x = make(), torch.empty(64)
    expected = launchkit.launch_autotuned(kernel, (4,), x, x, 64, 1)
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    assert launchkit.launch_autotuned(kernel, (4,), x, x, 64, 1) is expected
    assert kernel[(4,)](x, x, 64, 1) is expected
    assert launchkit.launch(sample_kernels.copy, (4,), x, x, 64, 1, BLOCK=16) is not None


def test_importing_launchkit_dispatch_leaves_dynamo_out():
    import subprocess
    import sys

    code = (
        "import sys, launchkit.dispatch.launcher, launchkit.dispatch.decorator;"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_subclass_of_tritons_autotuner_keeps_its_attributes():
    kernel = autotuned_by_launchkit()
    assert isinstance(kernel, triton.runtime.Autotuner)
    assert kernel.fn is sample_kernels.copy
    assert kernel.arg_names == sample_kernels.copy.arg_names
    assert kernel.keys == ["n"]
    assert kernel.base_fn is sample_kernels.copy.fn


def test_warmup_compiles_every_config_and_launches_nothing(host):
    kernel = autotuned_by_launchkit()
    compiled = kernel.warmup(torch.float32, torch.float32, 64, 1, grid=(1,))
    assert len(compiled) == 2
    assert hostonly.launches() == []
    with counted_runs() as runs:
        kernel.run(torch.empty(64), torch.empty(64), 64, 1, grid=(1,), warmup=True)
    assert runs.autotuner == 1
    assert hostonly.launches() == []


def test_the_whole_scan_is_traced_into_one_graph():
    problem = make_problem((20, 12), **everything())
    metadata, out = problem.metadata, torch.empty_like(problem.x)
    cache, slots = torch.empty(4, 2, 8, 16), torch.tensor([3, 1])
    options = {"final_states_out": cache, "final_state_indices": slots}

    def function(x):
        scan(problem, metadata=metadata, out=out, **options)
        return x + 1

    assert len(triton_calls(traced(function))) == 5
