"""Launches on a real GPU while something else goes on: compilers, hooks, graphs, streams, threads."""

from __future__ import annotations

import gc
import json
import threading

import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs
from threads import in_threads

import launchkit

N = 5000


@pytest.fixture(autouse=True)
def _poison_fresh_tensors():
    """None here: torch.compile would trace it. Outputs are filled with NaN below."""


def tuned_copy():
    """A kernel of its own with one config, which tuning takes without a measurement."""
    jit = triton.jit(sample_kernels.copy.fn)
    return launchkit.autotuned(configs=sample_kernels.configs(64), key=["n"])(jit)


def blocks(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def tensors(n=N, device="cuda"):
    return torch.randn(n, device=device), torch.full((n,), float("nan"), device=device)


def assert_hit(call):
    with counted_runs() as runs:
        call()
    assert runs.total == 0, "the launch went through Triton"


# -- each way to launch, as a function of kernel and tensors


def by_subscript(kernel, x, y):
    kernel[blocks](x, y, x.numel(), stride=1)


def by_function(kernel, x, y):
    launchkit.launch_autotuned(kernel, blocks, x_ptr=x, y_ptr=y, n=x.numel(), stride=1)


def by_declared_grid(kernel, x, y):
    grid = launchkit.grid(launchkit.cdiv("n", "BLOCK"))
    launchkit.launch_autotuned(kernel, grid, x, y, x.numel(), 1)


def by_plain_launch(kernel, x, y):
    grid = (triton.cdiv(x.numel(), 64), 1)
    launchkit.launch(kernel.fn, grid, x, y, n=x.numel(), stride=1, BLOCK=64)


WAYS = [by_subscript, by_function, by_declared_grid, by_plain_launch]


# -- torch.compile


# Inductor's own imports use what torch deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("way", WAYS)
def test_inductor_compiles_a_whole_function_around_a_launch(way):
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    kernel = tuned_copy()
    jit = kernel.fn  # Dynamo does not look it up

    def launch(kernel, x, y):
        if way is by_plain_launch:
            launchkit.launch(jit, (triton.cdiv(N, 64),), x, y, n=N, stride=1, BLOCK=64)
        else:
            way(kernel, x, y)

    def function(x):
        y = torch.empty_like(x)
        launch(kernel, x * 3, y)
        return y * 2 + 1

    x, _ = tensors()
    result, code = run_and_get_code(torch.compile(function, fullgraph=True), x)
    assert torch.equal(result, (x * 3) * 2 + 1)
    # Inductor launches the kernel in code of its own, between kernels of its own.
    assert any("def copy(" in text and "triton_poi_fused" in text for text in code)
    other = torch.randn(N, device="cuda")
    assert torch.equal(torch.compile(function, fullgraph=True)(other), (other * 3) * 2 + 1)
    # The same kernel is launched as ever outside of it.
    y = torch.empty_like(x)
    launch(kernel, x, y)
    assert torch.equal(x, y)
    assert_hit(lambda: launch(kernel, x, y))


# -- hooks and Proton


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
@pytest.mark.parametrize("launch", WAYS)
def test_a_hook_that_is_switched_on_mid_run_sees_the_next_launch(launch, name):
    kernel, (x, y) = tuned_copy(), tensors()
    launch(kernel, x, y)
    assert_hit(lambda: launch(kernel, x, y))
    seen = []

    def hook(metadata):
        seen.append(metadata.get()["name"])

    chain = getattr(triton.knobs.runtime, name)
    chain.add(hook)
    try:
        for _ in range(3):
            y.fill_(float("nan"))
            launch(kernel, x, y)
            assert torch.equal(x, y)
    finally:
        chain.remove(hook)
    assert seen == ["copy"] * 3
    assert_hit(lambda: launch(kernel, x, y))
    assert len(seen) == 3


def counted_by_proton(frame, name):
    """The largest count of a kernel in a profile of Proton's, a tree of frames."""
    own = frame["metrics"].get("count", 0) if frame["frame"]["name"] == name else 0
    return max([own, *(counted_by_proton(child, name) for child in frame["children"])])


@pytest.mark.parametrize("launch", WAYS)
def test_proton_that_is_switched_on_mid_run_sees_every_launch_from_there_on(launch, tmp_path):
    proton = pytest.importorskip("triton.profiler", reason="this Triton has no Proton")
    kernel, (x, y) = tuned_copy(), tensors()
    launch(kernel, x, y)
    assert_hit(lambda: launch(kernel, x, y))
    torch.cuda.synchronize()
    try:
        proton.start(str(tmp_path / "profile"), hook="triton")
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        pytest.skip(f"Proton does not start here: {error}")
    try:
        for _ in range(5):
            with counted_runs() as runs:
                launch(kernel, x, y)
            assert runs.jit == 1, "a hook is on, so the launch is Triton's"
        torch.cuda.synchronize()
    finally:
        proton.finalize()
    (written,) = tmp_path.glob("profile*")
    document = json.loads(written.read_text(encoding="utf-8"))
    assert counted_by_proton(document[0], "copy") == 5
    assert torch.equal(x, y)
    assert_hit(lambda: launch(kernel, x, y))


# -- what Triton compiled is thrown away


@pytest.mark.parametrize("launch", WAYS)
def test_caches_that_are_cleared_and_collected_between_launches_are_filled_again(launch):
    kernel, (x, y) = tuned_copy(), tensors()
    for _ in range(4):
        launch(kernel, x, y)
        assert_hit(lambda: launch(kernel, x, y))
        kernel.fn.device_caches.clear()
        gc.collect()
        torch.cuda.empty_cache()
        y.fill_(float("nan"))
        with counted_runs() as runs:
            launch(kernel, x, y)
        assert runs.jit == 1
        assert torch.equal(x, y)


def test_a_kernel_that_is_dropped_is_unloaded_while_others_go_on():
    x, y = tensors()
    kept = tuned_copy()
    by_subscript(kept, x, y)
    for _ in range(20):
        dropped = tuned_copy()
        by_function(dropped, x, y)
        by_function(dropped, x, y)
        del dropped
        gc.collect()
        y.fill_(float("nan"))
        assert_hit(lambda: by_subscript(kept, x, y))
        assert torch.equal(x, y)


# -- graphs, streams, threads


@pytest.mark.parametrize("launch", WAYS)
def test_a_captured_hit_is_replayed_on_new_contents(launch):
    kernel, (x, y) = tuned_copy(), tensors()
    launch(kernel, x, y)
    graph = torch.cuda.CUDAGraph()
    y.fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.graph(graph), counted_runs() as runs:
        launch(kernel, x, y)
    assert runs.total == 0
    assert y.isnan().all(), "what is captured is not executed"
    for _ in range(3):
        x.normal_()
        y.fill_(float("nan"))
        graph.replay()
        assert torch.equal(x, y)
    y.fill_(float("nan"))
    launch(kernel, x, y)
    assert torch.equal(x, y)


@pytest.mark.parametrize("launch", WAYS)
def test_launches_of_two_streams_in_turn_are_ordered_within_each(launch):
    kernel = tuned_copy()
    streams = [torch.cuda.Stream() for _ in range(2)]
    pairs = [tensors() for _ in streams]
    sums = [torch.zeros(N, device="cuda") for _ in streams]
    launch(kernel, *pairs[0])
    torch.cuda.synchronize()
    for turn in range(30):
        for stream, (x, y), total in zip(streams, pairs, sums, strict=True):
            with torch.cuda.stream(stream):
                # Long enough that a launch on the other stream would come too early.
                torch.cuda._sleep(300_000)
                x.fill_(turn)
                assert_hit(lambda x=x, y=y: launch(kernel, x, y))
                total.add_(y)
    torch.cuda.synchronize()
    for total in sums:
        assert torch.equal(total, torch.full_like(total, sum(range(30))))


@pytest.mark.parametrize("launch", WAYS)
def test_threads_launch_at_once_each_on_its_stream(launch):
    kernel = tuned_copy()

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            x, y = tensors(1000 + 16 * index)
            for turn in range(200):
                x.fill_(turn * 10 + index)
                y.fill_(float("nan"))
                launch(kernel, x, y)
                if turn % 20 == 0:
                    torch.cuda.current_stream().synchronize()
                    assert (y == turn * 10 + index).all()
            torch.cuda.current_stream().synchronize()
            return torch.equal(x, y)

    assert in_threads(4, work) == [True] * 4


@pytest.mark.parametrize("launch", WAYS)
def test_a_thread_may_begin_with_a_hit(launch):
    """It has no CUDA context yet, and the driver refuses a launch without one."""
    kernel, (x, y) = tuned_copy(), tensors()
    launch(kernel, x, y)
    y.fill_(float("nan"))
    torch.cuda.synchronize()
    raised = []

    def first_act():
        try:
            launch(kernel, x, y)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=first_act)
    thread.start()
    thread.join()
    assert raised == []
    torch.cuda.synchronize()
    assert torch.equal(x, y)


# -- two GPUs


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("launch", WAYS)
def test_two_gpus_in_turn_hit_plans_of_their_own(launch):
    kernel = tuned_copy()
    pairs = [tensors(device=f"cuda:{index}") for index in range(2)]
    for (x, y), index in zip(pairs, range(2), strict=True):
        with torch.cuda.device(index):
            launch(kernel, x, y)
    for turn in range(10):
        for (x, y), index in zip(pairs, range(2), strict=True):
            with torch.cuda.device(index):
                x.fill_(turn)
                assert_hit(lambda x=x, y=y: launch(kernel, x, y))
    for index, (x, y) in enumerate(pairs):
        torch.cuda.synchronize(index)
        assert (y == 9).all()
        assert torch.equal(x, y)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("launch", WAYS)
def test_threads_on_two_gpus_launch_at_once(launch):
    kernel = tuned_copy()

    def work(index):
        with torch.cuda.device(index % 2):
            x, y = tensors(2000 + index, device=f"cuda:{index % 2}")
            for turn in range(100):
                x.fill_(turn + index)
                launch(kernel, x, y)
            torch.cuda.synchronize()
            return torch.equal(x, y) and bool((y == 99 + index).all())

    assert in_threads(4, work) == [True] * 4
