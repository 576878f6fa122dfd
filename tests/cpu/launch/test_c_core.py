"""The C core under misuse: nothing leaks, nothing crashes, and what is odd goes through Triton."""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import sys
import weakref
from dataclasses import replace

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs, hit, outcome, triton_launch

import launchkit
from launchkit import hostonly
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native import extension, layout

pytestmark = pytest.mark.usefixtures("c_core", "host")


def tuned(**options):
    return launchkit.autotuned(sample_kernels.configs(16, 32), ["n"], **options)(
        sample_kernels.copy
    )


def core_of(kernel):
    return kernel._launchkit_entry._core


class TestReferences:
    """Counts of references are the same after many launches as before."""

    def counts(self, things):
        gc.collect()  # else garbage of other tests goes in between, and takes its references along
        return [sys.getrefcount(thing) for thing in things]

    def forms(self, kernel):
        x, y, large = torch.empty(64), torch.empty(64), 10**12
        named = {"x_ptr": x, "y_ptr": y, "n": large, "stride": 2}
        shape = (2, 1)

        def grid(meta):
            return shape

        def failing(meta):
            raise LookupError

        def fails():
            with pytest.raises(LookupError):
                launchkit.launch_autotuned(kernel, failing, **named)

        calls = [
            lambda: launchkit.launch_autotuned(kernel, shape, x, y, large, 2),
            lambda: launchkit.launch_autotuned(kernel, shape, x_ptr=x, y_ptr=y, n=large, stride=2),
            lambda: launchkit.launch_autotuned(kernel, grid, **named),
            lambda: launchkit.launch(kernel, shape, x, y, stride=2, n=large),
            lambda: kernel[shape](x, y, large, 2),
            lambda: kernel[grid](**named),
            fails,
        ]
        return calls, [x, y, large, shape, grid, named, kernel]

    def test_no_form_of_a_hit_leaks(self):
        kernel = tuned()
        calls, things = self.forms(kernel)
        for call in calls * 3:
            call()
        core = core_of(kernel)
        (plan,) = core.plans()
        things += [plan, plan.compiled, plan.config, core.launch, kernel._launchkit_entry]
        things += [None, True, False]
        for call in calls:
            before = self.counts(things)
            for _ in range(100):
                call()
            after = self.counts(things)
            changes = [b - a for a, b in zip(before, after, strict=True)]
            assert all(abs(change) < 20 for change in changes), f"{call}: {changes}"

    def test_memory_does_not_grow_with_launches(self):
        kernel = tuned()
        calls, _ = self.forms(kernel)

        def blocks():
            for call in calls:
                for _ in range(300):
                    call()
            hostonly.clear()
            gc.collect()
            return sys.getallocatedblocks()

        blocks()
        assert abs(blocks() - blocks()) < 50

    def test_memory_does_not_grow_with_misses_and_errors(self):
        x = torch.empty(64)
        launchkit.launch(odd_kernels.scalar, (1,), x, 3)

        def blocks():
            for _ in range(300):
                for args, kwargs in [
                    ((x,), {}),
                    ((x, 3, 4), {}),
                    ((x, 3), {"value": 3}),
                    ((x, object()), {}),
                    ((x, 3), {"num_warps": object()}),
                ]:
                    with pytest.raises(Exception):  # noqa: B017
                        launchkit.launch(odd_kernels.scalar, (1,), *args, **kwargs)
            gc.collect()
            return sys.getallocatedblocks()

        blocks()
        assert abs(blocks() - blocks()) < 200

    def test_dropped_kernel_is_collected_with_its_core(self):
        kernel = tuned()
        x = torch.empty(64)
        for _ in range(3):
            kernel[lambda meta, kernel=kernel: (1,)](x, x, 64, 1)
        seen = weakref.ref(kernel)
        entry = weakref.ref(kernel._launchkit_entry)
        del kernel
        gc.collect()
        assert seen() is None
        assert entry() is None


class Word(str):
    __slots__ = ()

    def __hash__(self):
        return hash(str(self))


class TestCalls:
    def test_names_that_are_no_plain_strings_are_bound_as_python_binds_them(self):
        x = torch.empty(64)
        plain = launchkit.launch(odd_kernels.scalar, (1,), x_ptr=x, value=3)
        for name in (Word("value"), "".join(["va", "lue"])):
            assert launchkit.launch(odd_kernels.scalar, (1,), x, **{name: 3}) is plain

    def test_without_kernel_or_grid_is_a_type_error(self):
        for function in (launchkit.launch, launchkit.launch_autotuned):
            for args in ((), (sample_kernels.copy,)):
                with pytest.raises(TypeError, match="needs a kernel and a grid"):
                    function(*args)
        with pytest.raises(TypeError, match="needs a grid"):
            launchkit.launch(odd_kernels.scalar, (1,), torch.empty(4), 3)
            core_of(odd_kernels.scalar).launch()

    def test_hundreds_of_unknown_keywords_raise_what_triton_raises(self):
        x = torch.empty(64)
        launchkit.launch(odd_kernels.scalar, (1,), x, 3)
        for count in (1, 15, 16, 17, 255, 300):
            unknown = {f"option_{index}": 1 for index in range(count)}
            with pytest.raises(KeyError):
                launchkit.launch(odd_kernels.scalar, (1,), x, 3, **unknown)
        hit(odd_kernels.scalar, x, 3)

    def test_many_spellings_of_one_call_are_one_plan(self):
        x, rng = torch.empty(64), random.Random(1)
        values = {"x_ptr": x, "y_ptr": x, "n": 64, "stride": 1, "BLOCK": 16}
        kernel = triton.jit(sample_kernels.copy.fn)  # what others launched is not its
        launchkit.launch(kernel, (2,), **values)
        with counted_runs() as runs:
            for _ in range(200):
                names = list(values)
                cut = rng.randrange(len(names) + 1)
                rest = rng.sample(names[cut:], len(names) - cut)
                args = [values[name] for name in names[:cut]]
                launchkit.launch(kernel, (2,), *args, **{name: values[name] for name in rest})
        assert runs.total == 0
        assert len(core_of(kernel)) == 1

    def test_launch_functions_are_functions_to_whoever_looks_at_them(self):
        import inspect

        for function in (launchkit.launch, launchkit.launch_autotuned):
            assert function.__name__ in repr(function)
            assert next(iter(inspect.signature(function).parameters)) == "kernel"
            assert isinstance(function, functools.partial)
            assert callable(function)

    def test_subscript_is_repeatable_and_says_what_it_is(self):
        kernel, x = tuned(name="mine"), torch.empty(64)
        bound = kernel[(3,)]
        assert "mine" in repr(bound)
        assert "(3,)" in repr(bound)
        for _ in range(3):
            bound(x, x, 64, 1)
            assert hostonly.launches()[-1].grid == (3, 1, 1)


class TestPlansOfConverted:
    """Values that Triton's launcher converts: the same bytes, or Triton's own launcher."""

    @pytest.mark.parametrize(
        "half", [0.5, -0.0, 65504.0, 65520.0, 1e-8, float("inf"), float("nan"), 3, True]
    )
    @pytest.mark.parametrize("n", [5, True, 2**31, -(2**63)])
    def test_annotated_scalars_have_the_bytes_that_triton_gives_them(self, half, n):
        x = torch.empty(64)
        arguments = (x, n, 3, 1.5, half, 2.5)
        theirs = outcome(lambda: triton_launch(odd_or_typed(), (1,), arguments, {}))
        for _ in range(3):
            ours = outcome(lambda: launchkit.launch(odd_or_typed(), (1,), *arguments))
            assert ours == theirs


def odd_or_typed():
    return sample_kernels.typed


class TestFromPython:
    """The extension's own types, called with anything at all."""

    REFUSALS = (TypeError, ValueError, KeyError, OverflowError, AttributeError, IndexError)

    def anything(self):
        return [
            None, 0, -1, 2**70, 1.5, "text", b"", b"12345678" * 3, (), [], {}, ((),), (1, 2), object(),
            int, print, torch.empty(1), {"a": 1}, ({}, {}, None, False, 0),
        ]  # fmt: skip

    def test_methods_refuse_or_ignore_anything(self):
        x, rng = torch.empty(64), random.Random(2)
        launchkit.launch(odd_kernels.scalar, (1,), x, 3)
        core = core_of(odd_kernels.scalar).launch
        native = extension.load()
        targets = [
            core.arm, core.slot, core.find, core.holds, core.insert, native.Core, native.WatchSet,
            native.Entry, native.Subscript, native.make_launch_function, core,
        ]  # fmt: skip
        things = self.anything()
        for _ in range(4000):
            target = rng.choice(targets)
            args = [rng.choice(things) for _ in range(rng.randrange(8))]
            with contextlib.suppress(*self.REFUSALS):
                target(*args)
        gc.collect()
        assert launchkit.launch(odd_kernels.scalar, (1,), x, 3) is not None

    def test_entry_without_a_launcher_is_adopted_anew(self):
        native, x = extension.load(), torch.empty(64)
        kernel = tuned()
        kernel._launchkit_entry = native.Entry()
        kernel[(1,)](x, x, 64, 1)
        assert kernel._launchkit_entry.kernel is kernel

    def test_slot_of_before_a_clear_keeps_nothing(self):
        x = torch.empty(64)
        launchkit.launch(odd_kernels.scalar, (1,), x, 3)
        core = core_of(odd_kernels.scalar)
        (plan,) = core.plans()
        slot = core.slot((x, 3), {})
        core.clear()
        core.insert(slot, plan)
        assert len(core) == 0
        assert core.slot((x, 3), {}) != slot

    def test_every_launch_attribute_of_a_kernel_fits(self):
        compiled = launchkit.launch(odd_kernels.scalar, (1,), torch.empty(64), 3)
        bound = replace(seam.bind_launch(compiled), pdl=True, cooperative=True)
        attributes = tuple(layout._attributes(bound, 2, 2**20))
        assert len(attributes) == (5 if seam.VERSION >= (3, 8) else 4)
        core = core_of(odd_kernels.scalar)._core
        slot = core.slot((torch.empty(64), 4), {})
        nothing = extension.load().WatchSet((), ())
        how = (1, 32, 2**20, 2, attributes, ())
        assert core.insert(slot, None, None, None, (None, None), nothing, how)
        core.clear()  # nothing may launch it

    def test_watches_tell_changes_in_dictionaries_classes_and_lists(self):
        native = extension.load()

        class Owner:
            attribute = 1

        from launchkit.dispatch.native import premises

        owner, listed = Owner(), [1, 2]
        made = native.WatchSet((premises.attributes(owner, ["attribute"]),), ((listed, (1, 2)),))
        assert made.hold()
        listed.append(3)
        assert not made.hold()
        listed.pop()
        assert made.hold()
        owner.attribute = 1
        assert not made.hold()
        del owner.attribute
        assert made.hold()
        Owner.attribute = 2
        assert not made.hold()


def test_config_is_announced_when_configs_alternate():
    kernel, x = tuned(), torch.empty(64)
    theirs = triton.autotune(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    for n in (64, 7, 64, 7):
        kernel[(1,)](x, x, n, 1)
        theirs[(1,)](x, x, n, 1)
        assert kernel.best_config.kwargs == theirs.best_config.kwargs


class Listed(list):
    pass


def test_config_list_of_a_class_of_its_own_is_launched_as_by_triton():
    kernel, x = tuned(), torch.empty(64)
    kernel[(1,)](x, x, 64, 1)
    kernel.configs = Listed(sample_kernels.configs(32))
    for _ in range(2):
        kernel[lambda meta: (meta["BLOCK"],)](x, x, 64, 1)
        assert hostonly.launches()[-1].grid == (32, 1, 1)
