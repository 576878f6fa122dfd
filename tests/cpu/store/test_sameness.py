"""Which devices and toolchains count as the same: by policy, and never by a careless spelling."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchkit.keys import DeviceId, Toolchain, same_device, same_product, same_toolchain

H100 = DeviceId("cuda", "NVIDIA H100 80GB HBM3", "sm_90", 132, 232448, 80)
SPELLINGS = [
    "NVIDIA H100 80GB HBM3",
    "NVIDIA_H100_80GB_HBM3",
    "nvidia-h100-80gb-hbm3",
    "H100 80GB HBM3",
    "NVIDIA H100",
    "H100",
    "H100_80GB",
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_product_is_itself_however_it_is_spelled(name) -> None:
    assert same_device(H100, replace(H100, name=name), "exact")
    assert same_device(replace(H100, name=name), H100, "exact")


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H100 64GB HBM2",
        "NVIDIA H1000",
        "NVIDIA H200",
        "NVIDIA GH200 480GB",
        "NVIDIA",
        "",
        "Ünbekannt",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    ],
)
def test_another_product_is_another_with_equal_figures_too(name) -> None:
    assert not same_device(H100, replace(H100, name=name), "exact")
    assert same_device(H100, replace(H100, name=name), "compatible")


@pytest.mark.parametrize(
    "changes",
    [
        {"multiprocessors": 114},
        {"memory_gib": 94},
        {"shared_bytes": 101376},
        {"arch": "sm_90a"},
        {"backend": "hip"},
    ],
)
def test_another_figure_is_another_device(changes) -> None:
    other = replace(H100, **changes)
    assert not same_device(H100, other, "exact")
    runs = set(changes) <= {"multiprocessors", "memory_gib"}
    assert same_device(H100, other, "compatible") == runs


def test_a_mig_slice_is_neither_its_gpu_nor_a_slice_of_another_profile() -> None:
    def part(profile: str) -> DeviceId:
        return replace(H100, name=f"{H100.name} MIG {profile}", multiprocessors=16, memory_gib=10)

    small = part("1g.10gb")
    assert same_device(small, replace(small, name="NVIDIA_H100_80GB_HBM3_MIG_1g_10gb"), "exact")
    assert not same_device(small, part("1g.20gb"), "exact")
    assert not same_device(small, part("1g.10gb+me"), "exact")
    assert not same_device(small, replace(small, name=H100.name), "exact")
    assert not same_device(small, H100, "exact")


def test_names_alone_are_compared_by_their_words() -> None:
    assert same_product("AMD Instinct MI300X", "AMD_Instinct_MI300X")
    assert same_product("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB")
    assert not same_product("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")
    assert not same_product("NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-80GB")
    assert not same_product("NVIDIA H20", "NVIDIA H20-3e")
    assert not same_product("ö", "ä")
    assert not same_product("80GB", "40GB")


def test_what_tells_devices_apart_leaves_their_directories_as_they_were() -> None:
    assert H100.slug == "NVIDIA_H100_80GB_HBM3-sm_90-5b8fb27d"


@pytest.mark.parametrize(
    ("one", "other", "minor"),
    [
        ("3.9.0", "3.9.1", True),
        ("3.9.0", "3.9.0+git1a2b", True),
        ("3.9.0rc1", "3.9", True),
        ("3.9.0", "3.90.0", False),
        ("3.9.0", "3.10.0", False),
        ("3.9.0", "4.9.0", False),
        ("main", "main", True),
        ("main", "head", False),
        ("main", "3.9.0", False),
        ("unknown", "3.9.0", False),
        ("unknown", "unknown", False),
        ("", "", False),
    ],
)
def test_toolchains_are_the_same_by_policy(one, other, minor) -> None:
    made, found = Toolchain(one), Toolchain(other)
    assert same_toolchain(made, found, "minor") == same_toolchain(found, made, "minor") == minor
    assert same_toolchain(made, found, "exact") == (one == other and made.known)
    assert same_toolchain(made, found, "any")
