"""However a tensor is read, a launch with it is Triton's: same variant, same address, same refusal."""

from __future__ import annotations

import gc
import weakref

import odd_kernels
import pytest
import torch
from launching import hit, launch_as_triton, plans

from launchkit import hostonly
from launchkit.dispatch.native import extension

pytestmark = pytest.mark.usefixtures("host")


def floats(*shape):
    return torch.empty(*shape or (80,))


def launch(x):
    """Launch with launchkit twice and with Triton, and expect the same of all three."""
    return launch_as_triton(odd_kernels.any_pointer, x, floats())


def resized_to_nothing():
    x = floats()
    x.untyped_storage().resize_(0)
    return x


def with_data_of(other):
    x = floats()
    x.data = other
    return x


def swapped():
    x, y = floats(), torch.empty(80, dtype=torch.int8)
    torch.utils.swap_tensors(x, y)
    return x


def in_inference():
    with torch.inference_mode():
        return floats()


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return floats()


def complex_conj():
    return torch.empty(80, dtype=torch.complex64).conj()


MAKERS = {
    "view": lambda: floats()[3:],
    "expanded": lambda: floats(1).expand(80),
    "scalar": lambda: torch.tensor(2.0),
    "empty": lambda: floats(0),
    "parameter": lambda: torch.nn.Parameter(floats()),
    "requires grad": lambda: floats().requires_grad_(),
    "has history": lambda: floats().requires_grad_() * 2,
    "inference": in_inference,
    "lazy clone": lambda: torch._lazy_clone(floats()),
    "resized to nothing": resized_to_nothing,
    "other data": lambda: with_data_of(floats()[1:]),
    "swapped": swapped,
    "conj": complex_conj,
    "neg": lambda: complex_conj().imag,
    "half": lambda: torch.empty(80, dtype=torch.float16),
    "e4m3fn": lambda: torch.empty(80, dtype=torch.float8_e4m3fn),
    "e5m2": lambda: torch.empty(80, dtype=torch.float8_e5m2),
    "e4m3fnuz": lambda: torch.empty(80, dtype=torch.float8_e4m3fnuz),
    "e8m0fnu": lambda: torch.empty(80, dtype=torch.float8_e8m0fnu),
    "uint16": lambda: torch.empty(80, dtype=torch.uint16),
    "uint64": lambda: torch.empty(80, dtype=torch.uint64),
    "bits8": lambda: torch.empty(80, dtype=torch.bits8),
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(80), 0.1, 0, torch.qint8),
    "sparse coo": lambda: torch.zeros(4, 4).to_sparse(),
    "sparse csr": lambda: torch.zeros(4, 4).to_sparse_csr(),
    "mkldnn": lambda: torch.zeros(4, 4).to_mkldnn(),
    "meta": lambda: torch.empty(80, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([floats(3), floats(4)]),
    "jagged": lambda: torch.nested.nested_tensor([floats(3), floats(4)], layout=torch.jagged),
    "fake": fake,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_of_tensor_is_launched_or_refused_as_by_triton(reader, kind):
    launch(floats())  # there is a plan for what looks like it
    for _ in range(2):
        launch(MAKERS[kind]())


@pytest.mark.parametrize("kind", ["view", "parameter", "inference", "lazy clone", "other data"])
def test_new_tensor_of_a_known_kind_is_a_hit_with_its_own_address(reader, kind):
    launch(MAKERS[kind]())
    x = MAKERS[kind]()
    launched = hit(odd_kernels.any_pointer, x, floats())
    assert int.from_bytes(launched.params[0], "little") == x.data_ptr()


def test_lazy_clone_is_a_tensor_of_its_own_once_it_was_launched(reader):
    launch(floats())
    x = floats()
    clone = torch._lazy_clone(x)
    launched = hit(odd_kernels.any_pointer, clone, floats())
    assert int.from_bytes(launched.params[0], "little") == clone.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad, torch.func.functionalize])
def test_tensors_inside_a_transform_are_launched_or_refused_as_by_triton(reader, transform):
    launch(floats())
    seen = []

    def function(x):
        seen.append(launch(x))
        return x.sum()

    transform(function)(torch.ones(4, 80) if transform is torch.vmap else torch.ones(80))
    assert len(seen) == 1


def test_dtypes_of_one_size_have_plans_of_their_own(reader):
    names = ("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
             "float8_e5m2fnuz", "float8_e8m0fnu", "float16", "bfloat16", "int16")  # fmt: skip
    x = {name: torch.empty(80, dtype=getattr(torch, name)) for name in names}
    found = {name: launch(x[name]) for name in names}
    launched = {name: each for name, each in found.items() if isinstance(each, tuple)}
    assert plans(odd_kernels.any_pointer) == len(launched) >= 6
    assert len({id(compiled) for compiled, _ in launched.values()}) == len(launched)
    for name, (_, (expected,)) in launched.items():
        assert hit(odd_kernels.any_pointer, x[name], floats()).function == expected.function


def test_reading_keeps_no_tensor(reader):
    x = floats()
    launch(x)
    hit(odd_kernels.any_pointer, x, floats())
    gone = weakref.ref(x)
    hostonly.clear()
    del x
    gc.collect()
    assert gone() is None


def test_probes_that_are_not_what_they_say_are_not_believed(c_core):
    native = extension.active()
    try:
        for address, dtypes, strided in ((1, (0, 1), True), (0, (0, 0), True), (0, (0, 1), False)):
            assert not _tells(native, address, dtypes, strided)
        launch(floats())  # by DLPack
        found = _tells(native, 0, (0, 1), True)
    finally:
        assert extension.read_tensors_directly(native) == found


def _tells(native, further, dtypes, strided):
    """Whether the core believes two probes whose facts are these; 0, (0, 1), True are true."""
    aoti = torch._C._aoti
    tensors = [torch.empty(3), torch.empty(3, dtype=torch.int8)]
    handles = aoti.unsafe_alloc_void_ptrs_from_tensors(tensors)
    try:
        facts = zip(tensors, handles, dtypes, strict=True)
        return native.read_tensors_directly(
            tuple((x, handle, x.data_ptr() + further, d, strided) for x, handle, d in facts)
        )
    finally:
        aoti.alloc_tensors_by_stealing_from_void_ptrs(handles)
