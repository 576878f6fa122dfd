"""annotate: what reaches NVTX, what reaches a recorder, and that nothing does when off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from subprocesses import in_python

from launchkit.errors import UsageError
from launchkit.profiling import annotate, ranges


class FakeDomain:
    """Stands for nvtx.Domain: attributes are the tuple they were made from."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, int | None]] = []
        self.events: list[Any] = []

    def get_event_attributes(self, message: str, category: str, payload: int | None) -> object:
        self.made.append((message, category, payload))
        return self.made[-1]

    def push_range(self, attributes: object) -> None:
        self.events.append(attributes)

    def pop_range(self) -> None:
        self.events.append("pop")


@pytest.fixture
def domain() -> Iterator[FakeDomain]:
    fake = FakeDomain()
    ranges._use_domain(fake)
    yield fake
    ranges._use_domain(None)


@pytest.fixture
def seen() -> Iterator[list[tuple[str, str, int | None]]]:
    events: list[tuple[str, str, int | None]] = []
    ranges.set_range_slot(
        (
            lambda entered: events.append(("enter", entered.name, entered.layer)),
            lambda left: events.append(("exit", left.name, left.layer)),
        )
    )
    yield events
    ranges.set_range_slot(None)


class TestNvtx:
    def test_a_range_has_its_name_its_op_as_category_and_its_layer_as_payload(
        self, domain: FakeDomain
    ) -> None:
        with annotate("ssd", layer=3, op="mamba"):
            assert domain.events == [("ssd", "mamba", 3)]
        assert domain.events == [("ssd", "mamba", 3), "pop"]

    def test_the_category_is_the_name_where_no_op_is_given(self, domain: FakeDomain) -> None:
        with annotate("conv"):
            pass
        assert domain.events == [("conv", "conv", None), "pop"]

    def test_attributes_are_made_once_per_name_layer_and_op(self, domain: FakeDomain) -> None:
        for _ in range(3):
            for layer in (0, 1):
                with annotate("ssd", layer), annotate("ssd", layer, op="scan"):
                    pass
        assert sorted(domain.made, key=str) == [
            ("ssd", "scan", 0),
            ("ssd", "scan", 1),
            ("ssd", "ssd", 0),
            ("ssd", "ssd", 1),
        ]

    def test_one_object_can_be_entered_again_and_within_itself(self, domain: FakeDomain) -> None:
        again = annotate("again")
        with again, again:
            pass
        with again:
            pass
        attributes = ("again", "again", None)
        assert domain.events == [attributes, attributes, "pop", "pop", attributes, "pop"]

    def test_an_exception_passes_and_the_range_is_popped(self, domain: FakeDomain) -> None:
        with pytest.raises(KeyError), annotate("fails"):
            raise KeyError
        assert domain.events == [("fails", "fails", None), "pop"]

    def test_a_decorated_function_runs_in_its_range_and_keeps_its_face(
        self, domain: FakeDomain
    ) -> None:
        @annotate("step", op="model")
        def step(x: int, *, scale: int = 2) -> int:
            """Scale x."""
            domain.events.append(x)
            return x * scale

        assert step(4, scale=5) == 20
        assert (step.__name__, step.__doc__) == ("step", "Scale x.")
        assert domain.events == [("step", "model", None), 4, "pop"]

    def test_a_decorated_function_that_raises_pops_its_range(self, domain: FakeDomain) -> None:
        @annotate("step")
        def step() -> None:
            raise KeyError

        with pytest.raises(KeyError):
            step()
        assert domain.events == [("step", "step", None), "pop"]

    def test_a_function_decorated_before_a_tool_was_there_is_annotated(self) -> None:
        decorated = annotate("early")(lambda: None)
        fake = FakeDomain()
        ranges._use_domain(fake)
        try:
            decorated()
        finally:
            ranges._use_domain(None)
        assert fake.events == [("early", "early", None), "pop"]

    def test_threads_push_and_pop_on_their_own_thread(self, domain: FakeDomain) -> None:
        threads: list[tuple[int, str]] = []
        domain.push_range = lambda attributes: threads.append((threading.get_ident(), "push"))
        domain.pop_range = lambda: threads.append((threading.get_ident(), "pop"))
        ranges._use_domain(domain)
        shared, barrier = annotate("shared"), threading.Barrier(2)

        def work() -> None:
            with shared:
                barrier.wait(timeout=30)

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        by_thread = {ident: [what for i, what in threads if i == ident] for ident, _ in threads}
        assert list(by_thread.values()) == [["push", "pop"], ["push", "pop"]]

    def test_text_that_no_c_string_can_hold_is_replaced(self, domain: FakeDomain) -> None:
        with annotate("a\0b", op="\ud800"):
            pass
        assert domain.made == [("a?b", "?", None)]


class TestOff:
    def test_the_ends_of_a_range_do_nothing(self) -> None:
        names = [*annotate.__enter__.__code__.co_names, *annotate.__exit__.__code__.co_names]
        assert names == []
        assert annotate("x").__enter__().name == "x"

    def test_a_recorder_that_leaves_restores_the_same_functions(
        self, seen: list[tuple[str, str, int | None]]
    ) -> None:
        assert annotate.__enter__ is not ranges._absent_ends[0]
        ranges.set_range_slot(None)
        assert (annotate.__enter__, annotate.__exit__) == ranges._absent_ends
        with annotate("after"):
            pass
        assert seen == []

    def test_a_recorder_that_leaves_restores_the_functions_of_a_tool(
        self, domain: FakeDomain
    ) -> None:
        before = annotate.__enter__, annotate.__exit__
        ranges.set_range_slot((lambda _: None, lambda _: None))
        assert annotate.__enter__ is not before[0]
        ranges.set_range_slot(None)
        assert annotate.__enter__ is before[0]
        assert annotate.__exit__ is before[1]

    def test_importing_ranges_leaves_torch_and_triton_out(self) -> None:
        code = (
            "import sys, launchkit.profiling.ranges, launchkit.profiling\n"
            "print(sorted({'torch', 'triton', 'launchkit.dispatch'} & set(sys.modules)))"
        )
        assert in_python(code) == "[]"


class TestRangeSlot:
    def test_callbacks_get_each_range_inside_out(
        self, seen: list[tuple[str, str, int | None]]
    ) -> None:
        with annotate("outer", layer=1), annotate("inner"):
            pass
        assert seen == [
            ("enter", "outer", 1),
            ("enter", "inner", None),
            ("exit", "inner", None),
            ("exit", "outer", 1),
        ]

    def test_tool_and_callbacks_both_see_a_range(
        self, domain: FakeDomain, seen: list[tuple[str, str, int | None]]
    ) -> None:
        ranges.set_range_slot((lambda _: seen.append("on"), lambda _: seen.append("off")))
        with annotate("both"):
            pass
        assert domain.events == [("both", "both", None), "pop"]
        assert seen == ["on", "off"]

    def test_a_range_left_after_the_slot_was_emptied_is_not_an_error(
        self, seen: list[tuple[str, str, int | None]]
    ) -> None:
        with annotate("outlives"):
            ranges.set_range_slot(None)
        assert seen == [("enter", "outlives", None)]


def inner(x: torch.Tensor) -> torch.Tensor:
    return x * 2


decorated_inner = annotate("inner")(inner)


def whole(x: torch.Tensor, layer: int) -> torch.Tensor:
    with annotate("outer", layer=layer):
        return decorated_inner(x) + 1


def broken(x: torch.Tensor) -> torch.Tensor:
    with annotate("broken"):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2


class TestTorchCompile:
    @pytest.fixture(autouse=True)
    def fresh(self) -> Iterator[None]:
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    @pytest.mark.parametrize("listening", ["nobody", "tool", "recorder", "both"])
    def test_a_traced_range_keeps_the_graph_whole_and_does_nothing(
        self, listening: str, request: pytest.FixtureRequest
    ) -> None:
        fixtures = {"tool": ["domain"], "recorder": ["seen"], "both": ["domain", "seen"]}
        used = [request.getfixturevalue(name) for name in fixtures.get(listening, [])]
        compiled = torch.compile(whole, backend="eager", fullgraph=True)
        for layer in range(3):
            assert torch.equal(compiled(torch.ones(2), layer), torch.full((2,), 3.0))
        assert all(not getattr(found, "events", found) for found in used)

    def test_a_graph_break_inside_leaves_pushes_and_pops_balanced(self, domain: FakeDomain) -> None:
        compiled = torch.compile(broken, backend="eager")
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
        assert domain.events.count("pop") == len(domain.events) / 2


async def coroutine() -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> Any:
    yield 1


class TestBadUse:
    @pytest.mark.parametrize("name", ["", None, 3, b"x"])
    def test_a_name_must_be_text(self, name: Any) -> None:
        with pytest.raises(UsageError, match="needs a name"):
            annotate(name)

    @pytest.mark.parametrize("layer", [True, 1.0, "1"])
    def test_a_layer_must_be_an_int(self, layer: Any) -> None:
        with pytest.raises(UsageError, match=r"Pass int\(layer\)"):
            annotate("x", layer)

    @pytest.mark.parametrize("layer", [2**63, -(2**63) - 1])
    def test_a_layer_must_fit_the_payload(self, layer: int) -> None:
        with pytest.raises(UsageError, match="int64"):
            annotate("x", layer)

    @pytest.mark.parametrize("op", ["", 1])
    def test_an_op_must_be_text(self, op: Any) -> None:
        with pytest.raises(UsageError, match="op="):
            annotate("x", op=op)

    @pytest.mark.parametrize("function", [coroutine, generator, async_generator])
    def test_a_function_that_suspends_cannot_be_decorated(self, function: Any) -> None:
        with pytest.raises(UsageError, match="suspends itself"):
            annotate("x")(function)

    @pytest.mark.parametrize("what", [42, "text", dict, classmethod(len), property(len)])
    def test_only_a_function_can_be_decorated(self, what: Any) -> None:
        with pytest.raises(UsageError, match="Decorate a function or a method"):
            annotate("x")(what)
