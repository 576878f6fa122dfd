"""install(): kernels of every kind launch fast, exactly as Triton would launch them."""

from __future__ import annotations

import copy
import importlib.util
import sys
import textwrap

import pytest
import sample_kernels
import torch
import triton
from installing import fast, installed, triton_launches
from launching import outcome
from sample_kernels import plain

import launchkit
from launchkit import hostonly
from launchkit.errors import UsageError


@pytest.fixture(autouse=True)
def never_left_installed(host):
    yield
    launchkit.uninstall()


def autotuned(kernel=None):
    return triton.autotune(sample_kernels.configs(16, 32), ["n"])(kernel or plain())


def with_heuristics(kernel=None):
    return triton.heuristics({"BLOCK": lambda args: 16 if args["n"] < 50 else 64})(
        kernel or plain()
    )


def heuristics_above_autotuner():
    jit = triton.jit(sample_kernels.mixed.fn)
    tuned = triton.autotune([triton.Config({"SIZE": 32}, num_warps=2)], ["n"])(jit)
    return triton.heuristics({"MODE": lambda args: "shift" if args["n"] > 5 else "none"})(tuned)


def autotuner_above_heuristics():
    jit = triton.jit(sample_kernels.mixed.fn)
    layer = triton.heuristics({"MODE": lambda args: "shift" if args["SIZE"] > 16 else "none"})(jit)
    configs = [triton.Config({"SIZE": size}, num_warps=2) for size in (32, 64)]
    return triton.autotune(configs, ["n"])(layer)


X = torch.empty(128)
COPY = (X, X, 100, 3)
MIXED = (X, X, 7, True, 1.5)
KINDS = {
    "plain": (plain, COPY, {"BLOCK": 32, "num_warps": 8}),
    "autotuned": (autotuned, COPY, {}),
    "heuristics": (with_heuristics, COPY, {}),
    "heuristics above autotuner": (heuristics_above_autotuner, MIXED, {}),
    "autotuner above heuristics": (autotuner_above_heuristics, MIXED, {}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grid", [(3, 2), lambda args: (args["n"], 2)], ids=["tuple", "callable"])
def test_kernel_of_each_kind_launches_fast_and_as_triton_would(kind, grid):
    make, args, kwargs = KINDS[kind]
    kernel = make()
    expected = triton_launches(kernel, *args, grid=grid, **kwargs)
    assert len(expected) == 1
    with installed() as runs:
        kernel[grid](*args, **kwargs)
        assert fast(runs, lambda: kernel[grid](*args, **kwargs)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_launch_through_run_is_fast_too(kind):
    make, args, kwargs = KINDS[kind]
    kernel = make()
    expected = triton_launches(kernel, *args, grid=(3,), **kwargs)

    def launch():
        return kernel.run(*args, grid=(3,), warmup=False, **kwargs)

    with installed() as runs:
        launch()
        assert fast(runs, launch) == expected


def test_returned_kernel_is_tritons():
    kernel = autotuned()
    compiled = kernel[(2,)](*COPY)
    with installed():
        assert kernel[(2,)](*COPY) is compiled
        assert kernel[(2,)](*COPY) is compiled


def test_inner_kernel_of_an_autotuned_one_launches_fast_by_itself():
    kernel = autotuned()
    with installed() as runs:
        kernel[(2,)](*COPY)
        kernel.fn[(2,)](*COPY, BLOCK=64)
        (launch,) = fast(runs, lambda: kernel.fn[(2,)](*COPY, BLOCK=64))
    assert launch in triton_launches(kernel.fn, *COPY, BLOCK=64)


def test_warmup_compiles_and_launches_nothing():
    with installed():
        kernel = plain()
        compiled = kernel.warmup(torch.float32, torch.float32, 16, 16, BLOCK=16, grid=(1,))
        assert hostonly.launches() == []
        assert compiled.metadata.name == "copy"
        autotuned().warmup(torch.float32, torch.float32, 16, 16, grid=(1,))
        assert hostonly.launches() == []


def test_kernel_of_a_module_that_is_imported_later_launches_fast(tmp_path):
    source = """
        import triton, triton.language as tl

        @triton.autotune([triton.Config({"BLOCK": 16})], ["n"])
        @triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
        @triton.jit
        def later(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
            tl.store(x_ptr + tl.arange(0, BLOCK), n + EVEN)
    """
    path = tmp_path / "imported_later.py"
    path.write_text(textwrap.dedent(source))
    spec = importlib.util.spec_from_file_location("imported_later", path)
    with installed() as runs:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.later[(2,)](X, 7)
        (launch,) = fast(runs, lambda: module.later[(2,)](X, 9))
    assert [launch] == triton_launches(module.later, X, 9)


def test_heuristics_and_grid_are_called_at_each_launch_with_tritons_own_mapping():
    seen = []

    def heuristic(args):
        seen.append(dict(args))
        return 16

    def grid(args):
        seen.append(dict(args))
        return (2,)

    kernel = triton.heuristics({"BLOCK": heuristic})(plain())
    kernel[grid](X, X, n=10, stride=2)
    expected, seen[:] = list(seen), []
    with installed():
        for _ in range(3):
            kernel[grid](X, X, n=10, stride=2)
    assert len(expected) == 2
    assert seen == expected * 3
    assert [list(each) for each in seen] == [list(each) for each in expected] * 3


def test_second_heuristic_sees_the_value_of_the_first_and_no_other_change():
    def first(args):
        args["n"] = 1000  # a mapping of its own
        return 2

    values = {"stride": first, "BLOCK": lambda args: 16 * args["stride"] if args["n"] == 10 else 0}
    kernel = triton.heuristics(values)(plain())
    expected = triton_launches(kernel, X, X, n=10)
    with installed() as runs:
        kernel[(2,)](X, X, n=10)
        assert fast(runs, lambda: kernel[(2,)](X, X, n=10)) == expected


def failing_grid(args):
    raise ZeroDivisionError


WRONG_CALLS = {
    "missing argument": lambda k: k[(1,)](X, X, 3),
    "surplus argument": lambda k: k[(1,)](X, X, 3, 1, 16, 17, 18),
    "argument twice": lambda k: k[(1,)](X, X, 3, 1, n=3),
    "unknown option": lambda k: k[(1,)](X, X, 3, 1, no_such_option=1, BLOCK=16),
    "grid without an entry": lambda k: k[()](X, X, 3, 1, BLOCK=16),
    "grid that is none": lambda k: k[7](X, X, 3, 1, BLOCK=16),
    "grid that raises": lambda k: k[failing_grid](X, X, 3, 1, BLOCK=16),
    "a type that Triton refuses": lambda k: k[(1,)](X, X, object(), 1, BLOCK=16),
    "config value given": lambda k: k[(1,)](X, X, 3, 1, BLOCK=16),
    "run without a grid": lambda k: k.run(X, X, 3, 1, warmup=False),
    "run without warmup": lambda k: k.run(X, X, 3, 1, grid=(1,), BLOCK=16),
}


@pytest.mark.parametrize("wrong", WRONG_CALLS)
@pytest.mark.parametrize("make", [plain, autotuned, with_heuristics])
def test_wrong_call_comes_to_what_it_comes_to_in_triton(wrong, make):
    call, kernel = WRONG_CALLS[wrong], make()
    expected = outcome(lambda: call(kernel))
    with installed():
        found = [outcome(lambda: call(kernel)) for _ in range(2)]
    if isinstance(expected, type):
        assert found == [expected] * 2
    else:
        assert [launches for _, launches in found] == [expected[1]] * 2


def test_exception_of_a_heuristic_arrives_and_the_next_launch_works():
    def heuristic(args):
        if args["n"] < 0:
            raise LookupError("negative")
        return 16

    kernel = triton.heuristics({"BLOCK": heuristic})(plain())
    with installed() as runs:
        kernel[(1,)](X, X, 5, 1)
        with pytest.raises(LookupError, match="negative"):
            kernel[(1,)](X, X, -5, 1)
        assert len(fast(runs, lambda: kernel[(1,)](X, X, 5, 1))) == 1


def test_launch_hook_set_later_sees_the_next_launch(monkeypatch):
    kernel, seen = plain(), []
    with installed():
        for _ in range(2):
            kernel[(1,)](*COPY, BLOCK=16)
        monkeypatch.setattr(
            triton.knobs.runtime, "launch_enter_hook", lambda metadata: seen.append(metadata.get())
        )
        kernel[(1,)](*COPY, BLOCK=16)
    assert [each["name"] for each in seen] == ["copy"]


def test_copy_of_a_launched_kernel_launches_by_itself():
    kernel = with_heuristics()
    with installed() as runs:
        kernel[(1,)](*COPY)
        other = copy.copy(kernel)
        other.values = {"BLOCK": lambda args: 32}
        other[(1,)](*COPY)
        (launch,) = fast(runs, lambda: other[(1,)](*COPY))
        assert fast(runs, lambda: kernel[(1,)](*COPY)) != [launch]
    assert [launch] == triton_launches(other, *COPY, grid=(1,))


def test_own_kernels_launch_as_before():
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"], name="own")(plain())
    expected = triton_launches(kernel, *COPY)
    with installed() as runs:
        kernel[(2,)](*COPY)
        assert fast(runs, lambda: kernel[(2,)](*COPY)) == expected
        assert fast(runs, lambda: launchkit.launch_autotuned(kernel, (2,), *COPY)) == expected


def test_explicit_launch_and_subscript_share_plans():
    kernel = plain()
    with installed() as runs:
        launchkit.launch(kernel, (2,), *COPY, BLOCK=16)
        assert len(fast(runs, lambda: kernel[(2,)](*COPY, BLOCK=16))) == 1


def test_twice_autotuned_kernel_goes_through_triton():
    kernel = triton.autotune([triton.Config({}, num_warps=2)], [])(autotuned())
    expected = outcome(lambda: kernel[(1,)](*COPY))
    with installed():
        assert outcome(lambda: kernel[(1,)](*COPY)) == expected
    with pytest.raises(UsageError, match="autotuned twice"):
        launchkit.launch(kernel, (1,), *COPY)


def test_recording_sees_launches_of_kernels_that_know_nothing_of_launchkit():
    kernel = plain()
    with installed(), launchkit.profile_launches() as profile:
        for _ in range(3):
            kernel[(1,)](*COPY, BLOCK=16)
    assert [(row.kernel, row.launches) for row in profile.rows] == [("sample_kernels.copy", 3)]


def test_importing_launchkit_installs_nothing():
    assert "__getitem__" not in vars(triton.JITFunction)
    assert "launchkit" in sys.modules


@pytest.mark.parametrize("wrong", [3, None, [""], ["a.*", 3], b"a.*"])
def test_patterns_that_are_no_text_are_refused_and_nothing_is_installed(wrong):
    for option in ("include", "exclude"):
        with pytest.raises(UsageError, match=f"{option} holds"):
            launchkit.install(**{option: wrong})
    assert "__getitem__" not in vars(triton.JITFunction)
