"""A declared grid launches what a function of the same expression launches, or raises clearly."""

from __future__ import annotations

import copy
import functools
import pickle
import random
import weakref

import pytest
import sample_kernels
import torch
import triton
from launching import hit, outcome, triton_launch
from torch.utils import _triton as torch_triton

import launchkit
from launchkit import cdiv, hostonly
from launchkit.errors import GridError, GridNameError, GridValueError

pytestmark = pytest.mark.usefixtures("each_core", "host")

NAMES = ("n", "stride", "BLOCK")
INTS = (1, 2, 3, 5, 7, 16, 100)
VALUES = (1, 16, 7, 33, 0, -5, 2**20, 2**31 + 16, 2**62)


def plain(value, meta):
    return meta[value] if isinstance(value, str) else value


def random_term(rng, depth=3):
    """A term, and a function of Triton's mapping that computes the same in plain Python."""
    if depth == 0 or rng.random() < 0.3:
        leaf = rng.choice((*NAMES, *INTS))
        return leaf, lambda meta: plain(leaf, meta)
    left, left_value = random_term(rng, depth - 1)
    right, right_value = random_term(rng, depth - 1)
    kind = rng.choice(("+", "-", "*", "//", "cdiv", "at_most", "at_least"))
    term = cdiv(left, right) if kind == "cdiv" else None
    if kind != "cdiv":
        first = left if isinstance(left, launchkit.dispatch.grids.Term) else cdiv(left, 1)
        term = {
            "+": lambda: first + right,
            "-": lambda: first - right,
            "*": lambda: first * right,
            "//": lambda: first // right,
            "at_most": lambda: first.at_most(right),
            "at_least": lambda: first.at_least(right),
        }[kind]()
    compute = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "//": lambda a, b: a // b,
        "cdiv": triton.cdiv,
        "at_most": min,
        "at_least": max,
    }[kind]
    return term, lambda meta: compute(left_value(meta), right_value(meta))


def random_grid(rng):
    terms = [random_term(rng) for _ in range(rng.randrange(1, 4))]
    return (
        launchkit.grid(*(term for term, _ in terms)),
        lambda meta: tuple(value(meta) for _, value in terms),
    )


def known_kinds():
    x = torch.empty(64)
    for n in VALUES:
        for stride in (1, 16, 3):
            for block in (16, 32):
                yield x, x, n, stride, block


def test_random_expressions_launch_as_their_functions_do_through_triton():
    rng = random.Random("declared grids")
    arguments = list(known_kinds())
    for args in arguments:
        launchkit.launch(sample_kernels.copy, (1,), *args)
    launched = refused = 0
    for _ in range(300):
        declared, function = random_grid(rng)
        for args in rng.sample(arguments, 4):
            launch = functools.partial(launchkit.launch, sample_kernels.copy, declared, *args)
            expected = outcome(
                functools.partial(triton_launch, sample_kernels.copy, function, args, {})
            )
            for ours in (outcome(launch), outcome(launch)):
                refused_too = (ours, expected) == (GridValueError, ZeroDivisionError)
                assert ours == expected or refused_too, (declared, args, ours, expected)
            launched += isinstance(expected, tuple) and len(expected[1]) == 1
            refused += not isinstance(expected, tuple)
    assert launched > 100
    assert refused > 50


def test_grid_object_gives_the_values_of_its_function():
    rng = random.Random("values")
    for _ in range(500):
        declared, function = random_grid(rng)
        meta = {"n": rng.choice(VALUES), "stride": rng.choice(INTS), "BLOCK": rng.choice(INTS)}
        try:
            expected = function(meta)
        except ZeroDivisionError:
            with pytest.raises(GridValueError):
                declared(meta)
        else:
            assert declared(meta) == expected
            assert declared.names <= set(NAMES)


def test_representation_evaluates_to_an_equal_grid_of_the_same_hash():
    rng = random.Random("repr")
    scope = {"grid": launchkit.grid, "cdiv": cdiv}
    for _ in range(300):
        declared, _ = random_grid(rng)
        read = eval(repr(declared), scope)
        same = all(isinstance(d, launchkit.dispatch.grids.Term) for d in read.dims)
        assert same
        assert repr(read) == repr(declared)
        assert read == declared
        assert hash(read) == hash(declared)
    assert launchkit.grid("M") != launchkit.grid("N")
    assert launchkit.grid("M", 1) != launchkit.grid("M")


def test_grid_is_immutable_and_can_be_copied_and_pickled():
    declared = launchkit.grid(cdiv("n", "BLOCK") * 2, "stride")
    for other in (copy.deepcopy(declared), pickle.loads(pickle.dumps(declared))):
        assert other == declared
    with pytest.raises(AttributeError):
        declared.dims = ()
    assert str(declared) == "grid(cdiv('n', 'BLOCK') * 2, 'stride')"
    assert declared.names == {"n", "BLOCK", "stride"}


def test_declared_grid_reads_what_a_config_supplies():
    tuned = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    theirs = triton.autotune(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    x, declared = torch.empty(64), launchkit.grid(cdiv("n", "BLOCK"), "stride", 3)
    theirs[declared](x, x, 100, 2)
    (expected,) = hostonly.launches()
    assert expected.grid == (7, 2, 3)
    for launch in (
        lambda: launchkit.launch_autotuned(tuned, declared, x, x, 100, 2),
        lambda: tuned[declared](x, x, stride=2, n=100),
        lambda: launchkit.launch(tuned, declared, x, x, n=100, stride=2),
    ):
        for _ in range(2):
            hostonly.clear()
            launch()
            assert hostonly.launches() == [expected]


def test_a_known_launch_with_a_declared_grid_is_a_hit():
    x, declared = torch.empty(64), launchkit.grid(cdiv("n", "BLOCK"))
    launchkit.launch(sample_kernels.copy, declared, x, x, 64, 1, BLOCK=16)
    assert hit(sample_kernels.copy, x, x, 64, 1, grid=declared, BLOCK=16).grid == (4, 1, 1)
    assert hit(sample_kernels.copy, x, x, 96, 1, grid=declared, BLOCK=16).grid == (6, 1, 1)


def test_c_core_evaluates_a_known_grid_without_python(each_core, monkeypatch):
    if each_core != "c":
        pytest.skip("the Python core calls the grid")
    x, declared = torch.empty(64), launchkit.grid(cdiv("n", "BLOCK"), "stride")
    launchkit.launch(sample_kernels.copy, declared, x, x, 64, 1, BLOCK=16)

    def forbidden(self, meta):
        raise AssertionError("a declared grid was called")

    monkeypatch.setattr(type(declared), "__call__", forbidden)
    assert hit(sample_kernels.copy, x, x, 64, 1, grid=declared, BLOCK=16).grid == (4, 1, 1)
    with pytest.raises(AssertionError, match="was called"):
        launchkit.launch(
            sample_kernels.copy, launchkit.grid(cdiv("n", 1) * 2**62), x, x, 64, 1, BLOCK=16
        )


def test_more_grids_than_a_core_remembers_stay_apart():
    x = torch.empty(64)
    grids = [launchkit.grid(cdiv("n", 1) + extra) for extra in range(40)]
    launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
    for _ in range(2):
        for extra, declared in enumerate(grids):
            found = hit(sample_kernels.copy, x, x, 64, 1, grid=declared, BLOCK=16)
            assert found.grid == (64 + extra, 1, 1)


@pytest.mark.parametrize("plan", ["first launch", "known launch"])
def test_name_that_the_kernel_does_not_have_is_named_with_those_that_it_has(plan):
    x = torch.empty(64)
    if plan == "known launch":
        launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
    with pytest.raises(
        GridNameError, match=r"'m' in the grid's cdiv.*x_ptr, y_ptr, n, stride"
    ) as e:
        launchkit.launch(
            sample_kernels.copy, launchkit.grid(cdiv("m", "BLOCK")), x, x, 64, 1, BLOCK=16
        )
    assert e.value.fields["name"] == "m"
    assert e.value.fields["names"] == ("x_ptr", "y_ptr", "n", "stride", "BLOCK")


@pytest.mark.parametrize(
    ("grid", "name", "reason"),
    [
        (launchkit.grid("a_ptr"), "a_ptr", "is Tensor, not an int"),
        (launchkit.grid("flag"), "flag", "is bool, not an int"),
        (launchkit.grid(1, cdiv("alpha", 2)), "alpha", "is float, not an int"),
        (launchkit.grid(1, "MODE"), "MODE", "is str, not an int"),
        (launchkit.grid(cdiv("SIZE", cdiv("n", 1) - 7)), "cdiv", "divides by zero"),
        (launchkit.grid(cdiv("SIZE", 1) // "n", cdiv(1, 0)), "cdiv", "divides by zero"),
        (launchkit.grid(cdiv(3, 1) // 0), "//", "divides by zero"),
    ],
)
def test_value_that_makes_no_grid_is_named(grid, name, reason):
    x = torch.empty(64)
    args = (x, x, 7, True, 0.5, "plain")
    launchkit.launch(sample_kernels.mixed, (1,), *args)
    for _ in range(2):
        with pytest.raises(GridValueError, match=f"{name} in the grid's .* {reason}") as caught:
            launchkit.launch(sample_kernels.mixed, grid, *args)
        assert caught.value.fields["name"] == name
    assert len(hostonly.launches()) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: launchkit.grid(),
        lambda: launchkit.grid(1, 2, 3, 4),
        lambda: launchkit.grid(1.0),
        lambda: launchkit.grid(True),
        lambda: launchkit.grid(None),
        lambda: launchkit.grid("M * N"),
        lambda: launchkit.grid((1, 2)),
        lambda: launchkit.grid(lambda meta: 1),
        lambda: cdiv("M", 2.0),
        lambda: cdiv(torch.tensor(3), 1),
        lambda: cdiv("M", 1) + None,
        lambda: 0.5 * cdiv("M", 1),
        lambda: cdiv("M", 1).at_most(False),
    ],
)
def test_what_makes_no_grid_is_refused_when_it_is_given(make):
    with pytest.raises(GridError):
        make()


@pytest.mark.parametrize("tuned", [False, True])
def test_declared_grid_is_traced_by_torch_compile(tuned, monkeypatch):
    monkeypatch.setattr(torch_triton, "has_triton", lambda: True)
    kernel = sample_kernels.copy
    if tuned:
        kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(kernel)
    declared = launchkit.grid(cdiv("n", "BLOCK"), cdiv("stride", 1) * 2)
    options = {} if tuned else {"BLOCK": 16}

    def function(x):
        y = torch.empty_like(x)
        launchkit.launch(kernel, declared, x, y, x.numel(), 2, **options)
        return y

    hostonly.clear()
    torch._dynamo.reset()
    torch.compile(function, backend="eager", fullgraph=True)(torch.empty(100))
    torch._dynamo.reset()
    (launch,) = hostonly.launches()
    assert launch.grid == (7, 4, 1)


def test_grid_whose_finalizer_launches_over_others_gives_way_to_its_own_successor():
    x = torch.empty(64)

    def launch(size):
        launchkit.launch(sample_kernels.copy, launchkit.grid(size), x, x, 100, 1, BLOCK=16)

    def finalizer():
        for size in (7, 8, 9, 10, 11):
            launch(size)

    launch(1)
    for size in (2, 3, 4) * 10:
        grid = launchkit.grid(1)
        weakref.finalize(grid, finalizer)
        launchkit.launch(sample_kernels.copy, grid, x, x, 100, 1, BLOCK=16)
        del grid
        for _ in range(5):
            hostonly.clear()
            launch(size)
            assert hostonly.launches()[-1].grid == (size, 1, 1)
