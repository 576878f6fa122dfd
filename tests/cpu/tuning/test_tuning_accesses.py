"""Which arguments a kernel reads and writes is found in its Triton IR: never too few."""

from __future__ import annotations

import access_kernels as kernels
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from launchkit import hostonly
from launchkit.dispatch.layers import triton_run
from launchkit.dispatch.tuning.accesses import Accesses, accesses, accesses_of

F, INT = torch.empty(64), torch.zeros(64, dtype=torch.int32)
TABLE = torch.zeros(64, dtype=torch.int64)
BLOCK = {"BLOCK": 16}

# kernel: (its arguments, what it reads, what it writes)
CASES = {
    "copies": ((F, F, 9), {"x_ptr"}, {"y_ptr"}),
    "doubles": ((F, 9), {"x_ptr"}, {"x_ptr"}),
    "counts": ((F, F, 9), {"x_ptr", "sum_ptr"}, {"sum_ptr"}),
    "locks": ((INT, F), {"lock_ptr"}, {"lock_ptr", "y_ptr"}),
    "scatters": ((INT, F, F), {"index_ptr", "x_ptr"}, {"y_ptr"}),
    "walks": ((F, F, 9), {"x_ptr"}, {"y_ptr"}),
    "swaps": ((F, F, 9), {"x_ptr", "y_ptr"}, {"x_ptr", "y_ptr"}),
    # What a while loop carries is taken together.
    "waits": ((F, F, 9), {"x_ptr", "y_ptr"}, {"y_ptr"}),
    "selects": ((F, F, F, 9), {"x_ptr"}, {"y_ptr", "z_ptr"}),
    "renames": ((F, F, F), {"x_ptr", "y_ptr"}, {"z_ptr"}),
    "carries": ((F, F, 9), set(), {"x_ptr", "y_ptr"}),
    "branches": ((F, F, F, 9), {"y_ptr", "z_ptr"}, {"x_ptr", "y_ptr"}),
    "returns_early": ((F, F, 9), {"x_ptr"}, {"y_ptr"}),
    "calls": ((F, F), {"x_ptr"}, {"y_ptr"}),
    "calls_noinline": ((F, F), {"x_ptr", "y_ptr"}, {"y_ptr"}),
    "assembles": ((INT, INT), {"x_ptr"}, {"y_ptr"}),
    "assembles_a_store": ((INT, INT), {"x_ptr", "y_ptr"}, {"y_ptr"}),
    "takes_tuple": (((F, F), F), {"pair"}, {"pair", "y_ptr"}),
    "describes": ((F, F, 64), {"x_ptr"}, {"y_ptr"}),
    "optional": ((None, F, 9), set(), {"y_ptr"}),
    "says": ((F, F), {"x_ptr"}, {"y_ptr"}),
}


def compiled(kernel, *args):
    options = {name: value for name, value in BLOCK.items() if name in kernel.arg_names}
    with hostonly.activate():
        return triton_run(kernel)(*args, grid=(1,), warmup=True, **options)


def found(kernel, *args):
    return accesses_of(compiled(kernel, *args))


@pytest.mark.parametrize("name", CASES)
def test_arguments_that_a_kernel_reads_and_writes_are_found(name):
    args, read, written = CASES[name]
    does = found(getattr(kernels, name), *args)
    # A dead load is dropped by the compiler, so fewer may be read.
    assert does.written == written
    assert does.read <= read
    assert does.read >= read - ({"x_ptr"} if name == "assembles_a_store" else set())
    assert not does.indirect


def test_writing_through_a_loaded_address_is_seen():
    assert found(kernels.follows, TABLE, F) == Accesses(
        frozenset({"table_ptr", "x_ptr"}), frozenset(), indirect=True
    )


@pytest.mark.parametrize(
    ("name", "read"), [("is_described", {"x"}), ("adds_up_described", {"x", "y"})]
)
def test_descriptors_of_the_host_are_arguments_too(name, read):
    matrix = torch.empty(64, 64, dtype=torch.float16)
    x, y = (TensorDescriptor.from_tensor(matrix, [16, 32]) for _ in range(2))
    does = found(getattr(kernels, name), x, y)
    assert does == Accesses(frozenset(read), frozenset({"y"}), indirect=False)


def test_no_ir_and_no_kernel_are_unknown():
    assert accesses_of(None) is None
    assert accesses_of(object()) is None
    for text in ("", "module {\n}\n", "nothing", "tt.func public @k(%x: !tt.ptr<f32>) {\n"):
        assert accesses(text, [("x", "tensordesc")]) is None


X, Y = ("x", "ptr"), ("y", "ptr")


@pytest.mark.parametrize("pointers", [[], [X], [X, Y, X], [X, ("y", "tensordesc")]])
def test_other_pointers_than_the_signature_has_make_all_unknown(pointers):
    ir = compiled(kernels.copies, F, F, 9).asm["ttir"]
    assert accesses(ir, [X, Y]) is not None
    assert accesses(ir, pointers) is None


OPERATION = """
module {
  tt.func public @k(%x: !tt.ptr<f32> loc("x"(#loc)), %y: !tt.ptr<f32> loc("y"(#loc))) {
    %0 = tt.load %x : !tt.ptr<f32>
    OPERATION
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    "line",
    [
        '"newdialect.writes"(%y, %0) : (!tt.ptr<f32>, f32) -> ()',
        "newdialect.writes %y, %0 : !tt.ptr<f32>, f32",
        "%1 = newdialect.does %y, %0 : !tt.ptr<f32>, f32 -> f32",
        "tt.new_effect %y, %0 : !tt.ptr<f32>, f32",
        "tt.call @f(%y, %0) : (!tt.ptr<f32>, f32) -> ()",
    ],
)
def test_operation_that_is_not_known_may_do_anything_to_what_it_gets(line):
    does = accesses(OPERATION.replace("OPERATION", line), [X, Y])
    assert does == Accesses(frozenset({"x", "y"}), frozenset({"y"}), indirect=False)


@pytest.mark.parametrize("line", ["?", "%1 =", "^bb1(%p: !tt.ptr<f32>):", "store %y, %0"])
def test_line_that_is_not_understood_makes_all_unknown(line):
    assert accesses(OPERATION.replace("OPERATION", line), [X, Y]) is None


IR = compiled(kernels.walks, F, F, 9).asm["ttir"]


@given(st.data())
def test_ir_cut_or_changed_anywhere_never_raises(data):
    lines = IR.splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    text = data.draw(st.sampled_from(["", "}", "{", "%a = %b", "^bb0(%c: f32):", "\0", "x" * 99]))
    changed = [*lines[:place], text, *lines[place + data.draw(st.integers(0, 3)) :]]
    result = accesses("\n".join(changed), [X, Y])
    assert result is None or isinstance(result, Accesses)
