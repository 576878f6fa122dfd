"""keys: typed, injective, the same in every process, and closed to what they do not know."""

from __future__ import annotations

import enum
import hashlib
import math
import pickle
import subprocess
import sys
from collections import namedtuple
from decimal import Decimal

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchkit import jsonio
from launchkit.errors import UnfingerprintableError, UsageError
from launchkit.keys import DeviceId, KernelId, KeyValue, LaunchKey, Toolchain, encode_value


class Order(enum.Enum):
    ROW = 1
    COLUMN = 2
    ALSO_ROW = 1  # noqa: PIE796 (an alias, on purpose)


class Number(enum.IntEnum):
    ONE = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Meters(int):
    pass


class Name(str):
    pass


Point = namedtuple("Point", "x y")


def test_values_that_python_calls_equal_stay_apart() -> None:
    look_alikes = [1, True, 1.0, "1", Number.ONE, (1,), "True", "1.0", None, "None", "none", ""]
    encoded = [encode_value("n", value) for value in look_alikes]
    assert len(set(encoded)) == len(look_alikes)
    assert len({LaunchKey((each,), ()).digest for each in encoded}) == len(look_alikes)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (2**80, "int", str(2**80)),
        (-1, "int", "-1"),
        (False, "bool", "False"),
        (1e308, "float", "1e+308"),
        (0.1, "float", "0.1"),
        (float("inf"), "float", "inf"),
        (None, "none", "None"),
        ("", "str", ""),
        ("é, \"'\n\\", "str", "é, \"'\n\\"),
        ("\ud800", "str-escaped", "'\\ud800'"),
        ((), "tuple", "[]"),
        ((1, ("1", None)), "tuple", '[["int","1"],["tuple",[["str","1"],["none","None"]]]]'),
        (Order.COLUMN, f"enum:{__name__}.Order", "COLUMN"),
        (Order.ALSO_ROW, f"enum:{__name__}.Order", "ROW"),
        (Number.ONE, f"enum:{__name__}.Number", "ONE"),
    ],
)
def test_each_type_has_its_documented_text(value: object, kind: str, text: str) -> None:
    assert encode_value("n", value) == KeyValue("n", kind, text)


def test_nan_has_one_key_and_minus_zero_is_zero() -> None:
    nans = {encode_value("n", value) for value in (math.nan, -math.nan, math.inf - math.inf)}
    assert len(nans) == 1
    assert encode_value("n", -0.0) == encode_value("n", 0.0) == KeyValue("n", "float", "0.0")
    assert encode_value("n", (-0.0,)) == encode_value("n", (0.0,))


def test_an_escaped_text_and_the_text_of_its_escape_differ() -> None:
    assert encode_value("n", "\ud800") != encode_value("n", ascii("\ud800"))


@pytest.mark.parametrize(
    "value",
    [
        [1],
        {"a": 1},
        {1},
        b"1",
        1j,
        object(),
        Decimal(1),
        numpy.int64(1),
        numpy.float64(1.0),
        numpy.float32(1.0),
        numpy.zeros(2),
        Meters(1),
        Name("1"),
        Point(1, 2),
        (1, [2]),
        Flags(0),
        len,
        int,
    ],
)
def test_a_value_without_a_stable_text_is_unfingerprintable(value: object) -> None:
    with pytest.raises(UnfingerprintableError, match="cannot be part of a stored key"):
        encode_value("n", value)


def test_an_enum_made_inside_a_function_is_unfingerprintable() -> None:
    class Local(enum.Enum):
        A = 1

    with pytest.raises(UnfingerprintableError, match="inside a function"):
        encode_value("n", Local.A)


def test_an_int_too_long_for_text_and_deep_tuples_are_unfingerprintable() -> None:
    nested: object = 1
    for _ in range(100_000):
        nested = (nested,)
    with pytest.raises(UnfingerprintableError, match="nested"):
        encode_value("n", nested)
    if hasattr(sys, "get_int_max_str_digits"):
        with pytest.raises(UnfingerprintableError, match="too long"):
            encode_value("n", 10**5000)


@pytest.mark.parametrize("name", [1, None, Name("n"), "\ud800"])
def test_a_name_that_is_not_plain_text_is_unfingerprintable(name: object) -> None:
    with pytest.raises(UnfingerprintableError):
        encode_value(name, 1)  # type: ignore[arg-type]


def test_dtypes_and_their_names_differ() -> None:
    torch = pytest.importorskip("torch")
    tl = pytest.importorskip("triton.language")
    assert encode_value("n", torch.float16) == KeyValue("n", "torch.dtype", "torch.float16")
    assert encode_value("n", tl.float16) == KeyValue("n", "tl.dtype", "fp16")
    values = [torch.float16, "torch.float16", tl.float16, "fp16", torch.bfloat16, tl.float32]
    assert len({encode_value("n", value) for value in values}) == len(values)
    for value in (
        torch.zeros(1),
        torch.tensor(1),
        tl.pointer_type(tl.float16),
        torch.float16.__class__,
    ):
        with pytest.raises(UnfingerprintableError):
            encode_value("n", value)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(Order)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def same(one: object, other: object) -> bool:
    """Reference equality: types and values, NaN equal to itself, -0.0 to 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


@given(VALUES, VALUES)
def test_two_values_share_a_text_only_if_they_are_the_same(one: object, other: object) -> None:
    assert (encode_value("n", one) == encode_value("n", other)) == same(one, other)


@given(VALUES)
def test_every_encoded_value_can_be_stored(value: object) -> None:
    encoded = encode_value("n", value)
    fields = [encoded.name, encoded.type, encoded.value]
    assert jsonio.loads(jsonio.dumps(fields), source="x", limit_bytes=2**20) == fields


def test_digest_is_pinned_for_ever() -> None:
    key = LaunchKey(
        (encode_value("n", 128), encode_value("mode", "é")), (("x", "torch.float16"), ("y", None))
    )
    canonical = (
        '{"dtypes":[["x","torch.float16"],["y",null]],'
        '"values":[["n","int","128"],["mode","str","é"]]}'
    )
    assert key.digest == key.digest == hashlib.sha256(canonical.encode()).hexdigest()
    assert key.digest == "255f4b46326aab9d2d181b58b781377ffa43360de73d456e89d339d45d5a7c97"


def test_dtype_of_each_parameter_by_name_with_explicit_none() -> None:
    def digest(*dtypes: tuple[str, str | None]) -> str:
        return LaunchKey((), dtypes).digest

    variants = {
        digest(("x", "fp16"), ("y", None), ("z", "fp32")),
        digest(("x", "fp16"), ("y", "fp32"), ("z", None)),
        digest(("x", "fp16"), ("y", "fp32")),
        digest(("x", "fp16"), ("y", "None")),
        digest(("x", "fp16"), ("y", None)),
        digest(),
    }
    assert len(variants) == 6


def test_a_name_given_twice_is_refused() -> None:
    one = encode_value("n", 1)
    with pytest.raises(UsageError):
        LaunchKey((one, one), ())
    with pytest.raises(UsageError):
        LaunchKey((), (("x", None), ("x", "fp16")))


def test_keys_survive_pickling_equal_and_hash_equal() -> None:
    key = LaunchKey((encode_value("n", 1),), (("x", None),))
    before = pickle.loads(pickle.dumps(key))
    assert key.digest == before.digest
    after = pickle.loads(pickle.dumps(key))
    assert before == after == key
    assert hash(before) == hash(after) == hash(key)


def test_key_text_is_for_people() -> None:
    key = LaunchKey(
        (encode_value("n", 128), encode_value("mode", "fast")),
        (("x", "torch.float16"), ("y", None)),
    )
    assert key.text == "n=128 mode='fast' x:torch.float16"


DIGEST = "0123456789ab" + "c" * 52


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_kernel_slug_is_one_safe_path_component(name: str) -> None:
    slug = KernelId(name, DIGEST).slug
    assert slug.isascii()
    assert "/" not in slug
    assert "\0" not in slug
    assert len(slug) < 120
    assert not slug.startswith((".", "-"))
    assert slug.endswith("-0123456789ab")


def test_odd_and_long_kernel_names_stay_distinct() -> None:
    names = [
        "a b",
        "a_b",
        "a/b",
        "a\nb",
        "..",
        ".",
        "é",
        "è",
        "k" * 300,
        "k" * 301,
        "<lambda>",
        "a~b",
    ]
    assert len({KernelId(name, DIGEST).slug for name in names}) == len(names)
    assert KernelId("pkg.kernel_1", DIGEST).slug == "pkg.kernel_1-0123456789ab"


@pytest.mark.parametrize(
    "digest", ["", "../../../etc", "0" * 63, "0" * 65, "G" * 64, "0" * 64 + "\n"]
)
def test_a_digest_that_is_no_sha256_is_refused(digest: str) -> None:
    with pytest.raises(UsageError):
        KernelId("kernel", digest)


def test_an_empty_or_unwritable_kernel_name_is_refused() -> None:
    for name in ("", "\ud800"):
        with pytest.raises(UsageError):
            KernelId(name, DIGEST)


H200 = DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 141)


def test_each_field_of_a_device_is_part_of_its_directory() -> None:
    others = [
        DeviceId("hip", "NVIDIA H200", "sm_90", 132, 232448, 141),
        DeviceId("cuda", "NVIDIA_H200", "sm_90", 132, 232448, 141),
        DeviceId("cuda", "NVIDIA-H200", "sm_90", 132, 232448, 141),
        DeviceId("cuda", "NVIDIA H200", "sm_90a", 132, 232448, 141),
        DeviceId("cuda", "NVIDIA H200", "sm_90", 16, 232448, 141),
        DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 101376, 141),
        DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 18),
        DeviceId("cuda", "../../NVIDIA", "sm_90", 132, 232448, 141),
    ]
    slugs = {each.slug for each in [H200, *others]}
    assert len(slugs) == 9
    assert all("/" not in slug and not slug.startswith(".") for slug in slugs)


def test_compatible_devices_share_backend_arch_and_shared_memory() -> None:
    h100 = DeviceId("cuda", "NVIDIA H100 PCIe", "sm_90", 114, 232448, 80)
    assert H200.compatible == h100.compatible == ("cuda", "sm_90", 232448)
    assert DeviceId("cuda", "NVIDIA L4", "sm_89", 58, 101376, 24).compatible != H200.compatible


def test_an_unknown_toolchain_says_so() -> None:
    assert Toolchain("3.9.0").known
    assert Toolchain("3.9.0").fields == {"triton": "3.9.0"}
    assert not any(Toolchain(text).known for text in ("", " ", "unknown", "Unknown"))


def test_keys_import_neither_torch_nor_triton() -> None:
    script = (
        "import sys, launchkit.keys, launchkit.configs, launchkit.store\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
