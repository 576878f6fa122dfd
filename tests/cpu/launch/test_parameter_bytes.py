"""Every kernel parameter that is written against the table of parameters in the cubin itself.

The table (KPARAM_INFO) is what the assembler says about the kernel's parameter area, whatever
Triton's launcher, launchkit or the host-only driver believe.
"""

from __future__ import annotations

import importlib.util
import random
import struct

import pytest
import torch
from launching import counted_runs, outcome, triton_launch

import launchkit
from launchkit import hostonly
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native.layout import direct_layout
from launchkit.hostonly.cubin import param_layout

pytestmark = pytest.mark.usefixtures("each_core", "host")

SIZES = {"i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4,
         "u32": 4, "fp32": 4, "i64": 8, "u64": 8, "fp64": 8}  # fmt: skip
ANNOTATIONS = {
    # Triton 3.6 refuses negative ones.
    "tl.int8": lambda rng: rng.randrange(0 if seam.GENERATES_LAUNCHERS else -(2**7), 2**7),
    "tl.uint8": lambda rng: rng.randrange(2**8),
    "tl.int16": lambda rng: rng.randrange(-(2**15), 2**15),
    "tl.uint16": lambda rng: rng.randrange(2**16),
    "tl.int32": lambda rng: rng.randrange(-(2**31), 2**31),
    "tl.uint32": lambda rng: rng.randrange(2**32),
    "tl.int64": lambda rng: rng.randrange(-(2**63), 2**63),
    "tl.uint64": lambda rng: rng.randrange(2**64),
    "tl.float16": lambda rng: rng.choice((0.5, -65504.0, 2.0**-24)),
    "tl.float32": lambda rng: rng.uniform(-1e30, 1e30),
    "tl.float64": lambda rng: rng.uniform(-1e300, 1e300),
}
PLAIN = {
    "tensor": lambda rng: torch.empty(80)[rng.randrange(9) :],
    "bytes": lambda rng: torch.empty(80, dtype=torch.int8)[rng.randrange(33) :],
    "none": lambda rng: None,
    "int": lambda rng: rng.choice((0, 1, 16, 7, -5, 2**31 - 1, -(2**31))),
    "wide": lambda rng: rng.choice((2**31, 2**40 + 16, -(2**63), 2**63 - 1)),
    "large": lambda rng: rng.choice((2**63, 2**64 - 1)),
    "float": lambda rng: rng.choice((0.0, -0.0, 1.5, 1e300, float("inf"))),
    "bool": lambda rng: rng.random() < 0.5,
}


def load_kernel(folder, name, parameters):
    path = folder / f"kernel_{name}.py"
    path.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        f"def kernel({', '.join(parameters)}):\n    tl.store(x_ptr, 1.0)\n"
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def make_kernel(folder, seed):
    """Return a kernel of random parameters that uses the first, and what makes each argument."""
    rng = random.Random(seed)
    kinds = rng.choices([*PLAIN, *ANNOTATIONS], k=rng.choice((1, 2, 5, 12, 30)))
    texts, makers = ["x_ptr"], {"x_ptr": PLAIN["tensor"]}
    for index, kind in enumerate(kinds):
        name = f"p{index}"
        constexpr = kind in ("int", "bool") and rng.random() < 0.3
        annotation = kind if kind in ANNOTATIONS else "tl.constexpr" if constexpr else None
        texts.append(name if annotation is None else f"{name}: {annotation}")
        makers[name] = {**PLAIN, **ANNOTATIONS}[kind]
    return load_kernel(folder, seed, texts), makers, rng


def size_of(kind):
    return 8 if kind.startswith("*") else SIZES[kind]


def encoded(kind, value):
    """The bytes of one parameter, from Python's own numbers."""
    if kind.startswith("*"):
        return (0 if value is None else value.data_ptr()).to_bytes(8, "little")
    if kind in ("fp16", "fp32", "fp64"):
        if kind == "fp32" and value in (1e300, -1e300):
            value = float("inf")  # as C converts it
        return struct.pack({"fp16": "<e", "fp32": "<f", "fp64": "<d"}[kind], value)
    size = SIZES[kind]
    return (int(value) % 2 ** (8 * size)).to_bytes(size, "little")


def table_of(compiled):
    return param_layout(compiled.asm["cubin"], compiled.metadata.name)


def aligned(sizes):
    """Offsets of parameters one behind the other, each at a multiple of its size."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(-(-end // size) * size)
        end = offsets[-1] + size
    return tuple(offsets)


@pytest.mark.parametrize("seed", range(10))
def test_offsets_sizes_and_bytes_are_those_of_the_cubins_own_table(seed, tmp_path):
    kernel, makers, rng = make_kernel(tmp_path, seed)
    hits, variants = 0, {}
    for _ in range(12):
        values = {name: make(rng) for name, make in makers.items()}
        for again in range(2):
            hostonly.clear()
            with counted_runs() as runs:
                compiled = launchkit.launch(kernel, (1,), **values)
            hits += again and runs.total == 0
            kinds = {n: k for n, k in compiled.src.signature.items() if k != "constexpr"}
            table = table_of(compiled)
            expected = [encoded(kind, values[name]) for name, kind in kinds.items()]
            expected += [bytes(8), bytes(8)]  # Triton's two pointers to scratch memory
            assert table.sizes == tuple(map(len, expected)), kinds
            assert table.offsets == aligned(table.sizes), kinds
            (launched,) = hostonly.launches()
            assert list(launched.params) == expected, kinds
            variants[id(compiled)] = compiled
    assert hits == 12  # each second launch took its shortcut
    assert variants


LIMITS = [2**bits + offset for bits in (7, 8, 15, 16, 31, 32, 63, 64) for offset in (-1, 0)]
ODD = [5, 0, True, None, 1.5, -2.0, 70000.0, 1e300, float("nan"), -3, *LIMITS]
ODD += [-limit for limit in LIMITS] + [5, -3, False]


@pytest.mark.parametrize("annotation", [*ANNOTATIONS, "tl.int1", "tl.bfloat16"])
def test_values_at_and_beyond_the_limits_of_a_declared_type_are_tritons(annotation, tmp_path):
    kernel = load_kernel(tmp_path, annotation.replace(".", "_"), ["x_ptr", f"value: {annotation}"])
    x = torch.empty(64)
    for value in ODD:
        expected = outcome(lambda: triton_launch(kernel, (1,), (x, value), {}))  # noqa: B023
        for _ in range(2):
            found = outcome(lambda: launchkit.launch(kernel, (1,), x, value))  # noqa: B023
            assert found == expected, value


@pytest.mark.parametrize("seed", range(10))
def test_layout_that_the_c_core_goes_by_has_the_tables_sizes(seed, tmp_path):
    kernel, makers, rng = make_kernel(tmp_path, seed)
    compiled = launchkit.launch(kernel, (1,), **{name: make(rng) for name, make in makers.items()})
    names = list(makers)
    params = direct_layout(compiled, {name: index for index, name in enumerate(names)})[-1]
    table = table_of(compiled)
    assert tuple(size_of(kind) for _, kind in params) == table.sizes[:-2]
    assert table.sizes[-2:] == (8, 8)
    indices = [index for index, _ in params]
    assert indices == sorted(indices)
