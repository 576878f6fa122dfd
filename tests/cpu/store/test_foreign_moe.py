"""vLLM's and SGLang's fused-MoE files: read into records, and written so that they find them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from foreign_files import CONTEXT, H100, given, reasons, refused, write_json

from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.keys import DeviceId, LaunchKey, Toolchain, encode_value
from launchkit.store.foreign import read, write

MOE = given(keys=("M", "N", "E"), dtypes={"x_ptr": "torch.bfloat16"}, tensors=None)
H200 = DeviceId("cuda", "NVIDIA H200 NVL", "sm_90", 132, 232448, 140)
NAME = "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3.json"
BLOCKS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
CONFIG = BLOCKS | {"num_warps": 4, "num_stages": 3}


def named(tmp_path, name, content, context=MOE, flavour="vllm"):
    return read(flavour, write_json(tmp_path / name, content), context)


def test_each_token_count_becomes_an_untimed_winner(tmp_path):
    result = named(tmp_path, NAME, {"triton_version": "3.6.0", "1": CONFIG, "64": CONFIG})
    assert result.skipped == ()
    assert [record.key.text for record in result.records] == [
        f"M={count} N=3584 E=8 x_ptr:torch.bfloat16" for count in (1, 64)
    ]
    record = result.records[0]
    assert record.chosen == identify(CONFIG | {"num_ctas": 1})
    assert (record.winner.timed, record.winner.method) == (False, "imported:vllm")


@pytest.mark.parametrize(
    ("name", "field", "expected"),
    [
        ("E=8,N=3584,device_name=D,dtype=fp8_w8a8.json", "dtype", "fp8_w8a8"),
        ("E=8,N=3584,device_name=D,dtype=fp8_w8a8,block_shape=[128,64].json", "block_k", "64"),
        ("E=8,N=3584,device_name=D,dtype=fp8_w8a8,block_shape=[128, 64].json", "block_n", "128"),
        ("E=8,N=3584,device_name=D,block_shape=[128, 64]_down.json", "block_k", "64"),
        ("E=8,N=3584,device_name=D,dtype=fp8_w8a8_down.json", "dtype", "fp8_w8a8"),
        ("E=8,N=3584,device_name=D,dtype=x,per_channel_quant=True.json", "dtype", "x"),
        ("E=8,N=3584,device_name=D.json", "dtype", "None"),
    ],
)
def test_name_is_read_in_both_spellings(tmp_path, name, field, expected):
    context = replace(MOE, keys=("M", "kind"), key_fields={"kind": field})
    name = name.replace("=D", "=NVIDIA_H100_80GB_HBM3")
    (record,) = named(tmp_path, name, {"1": CONFIG}, context).records
    assert record.key.values[1].value == expected


@pytest.mark.parametrize(
    "device", ["Intel(R)_Arc(TM)_Pro_B60", "A, B", "odd [1,2] {x}", "A=B", "Orin_(nvgpu)", "a.json"]
)
def test_device_name_may_have_commas_brackets_and_spaces(tmp_path, device):
    context = replace(MOE, device=replace(H100, name=device))
    name = f"E=8,N=3584,device_name={device.replace(' ', '_')},dtype=fp8_w8a8.json"
    assert len(named(tmp_path, name, {"1": CONFIG}, context).records) == 1


@pytest.mark.parametrize(
    "name",
    [
        "x.json",
        "E=8,N=3584.json",
        "E=8,N=3584,device_name=.json",
        "E=,N=3584,device_name=NVIDIA_H100_80GB_HBM3.json",
        "E=08,N=3584,device_name=NVIDIA_H100_80GB_HBM3.json",
        "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3,dtype=a,dtype=b.json",
        "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3,block_shape=[128].json",
        "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3,block_shape=[0128,1].json",
        "E=8,N=3584,device_name=NVIDIA_A100-SXM4-80GB.json",
        "E=8,N=3584,device_name=NVIDIA_H100.json",
    ],
)
def test_other_name_or_gpu_is_refused(tmp_path, name):
    assert refused("vllm", write_json(tmp_path / name, {"1": CONFIG}), MOE)


def test_vllm_takes_the_h200_family_for_one_gpu(tmp_path):
    context = replace(MOE, device=H200)
    for device in ("NVIDIA_H200", "NVIDIA_H200_NVL"):
        name = f"E=8,N=3584,device_name={device}.json"
        assert len(named(tmp_path, name, {"1": CONFIG}, context).records) == 1


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"01": CONFIG}, "no number of tokens"),
        ({"-1": CONFIG}, "no number of tokens"),
        ({"٣": CONFIG}, "no number of tokens"),
        ({"1": []}, "no JSON object"),
        ({"1": BLOCKS}, "give --config-value num_warps=TYPE:VALUE"),
        ({"1": CONFIG | {"num_warps": "4"}}, "num_warps of a config is '4'"),
        ({"1": CONFIG | {"BLOCK_SIZE_M": {}}}, "cannot be part"),
        ({"triton_version": "3.5.1", "1": CONFIG}, "of Triton 3.5.1, not of 3.6.0"),
        ({"triton_version": 3, "1": CONFIG}, "3 is no version"),
    ],
)
def test_entry_with_no_one_meaning_is_refused(tmp_path, content, part):
    assert part in refused("vllm", write_json(tmp_path / NAME, content), MOE)


def test_version_comes_from_sglangs_folder(tmp_path):
    path = write_json(tmp_path / "triton_3_4_0" / NAME, {"1": CONFIG})
    (record,) = read("sglang", path, replace(MOE, toolchain=None)).records
    assert (record.toolchain, record.winner.method) == (Toolchain("3.4.0"), "imported:sglang")


def test_missing_version_key_part_and_warps_name_their_options(tmp_path):
    path = write_json(tmp_path / NAME, {"1": CONFIG})
    assert "--triton VERSION" in refused("vllm", path, replace(MOE, toolchain=None))
    assert "--key-value K=TYPE:VALUE" in refused("vllm", path, replace(MOE, keys=("M", "K")))
    filled = replace(MOE, config_values={"num_warps": 8, "num_stages": 4})
    (record,) = named(tmp_path, NAME, {"1": BLOCKS}, filled).records
    assert record.chosen == identify(BLOCKS | {"num_warps": 8, "num_stages": 4, "num_ctas": 1})


def test_key_without_the_token_count_takes_none_of_unlike_entries(tmp_path):
    unlike = {"1": CONFIG, "2": CONFIG | {"num_warps": 8}}
    result = named(tmp_path, NAME, unlike, replace(MOE, keys=("N", "E")))
    assert (result.records, "another result" in reasons(result)) == ((), True)


# -- what is written


def record(m, n=3584, experts=8, warps=4, triton="3.6.0", device=H100, **changes):
    values = [encode_value(name, v) for name, v in {"M": m, "N": n, "E": experts}.items()]
    dtypes = tuple((name, (MOE.dtypes or {}).get(name)) for name in CONTEXT.parameters)
    config = identify(CONFIG | {"num_warps": warps, "num_ctas": 1} | changes)
    tuned = TunedConfig.measured(config, 1.0, reps=3, method="eager")
    key = LaunchKey(tuple(values), dtypes)
    return TunedRecord(CONTEXT.kernel, device, Toolchain(triton), key, (tuned,), config)


def served(folder, name, tokens):
    """The config that a server takes: of the nearest count, the first of equals."""
    document = json.loads((folder / name).read_text())
    document.pop("triton_version", None)
    counts = {int(count): config for count, config in document.items()}
    return counts[min(counts, key=lambda count: abs(count - tokens))]


@pytest.mark.parametrize(
    ("flavour", "folder"), [("vllm", ""), ("sglang", "triton_3_6_0")], ids=["vllm", "sglang"]
)
def test_server_finds_what_was_written(tmp_path, flavour, folder):
    records = [record(m, warps=warps) for m, warps in ((1024, 8), (2, 2), (128, 4), (16, 1))]
    result = write(flavour, records, tmp_path)
    assert result.paths == (tmp_path / folder / NAME,)
    for m, warps in ((1024, 8), (2, 2), (128, 4), (16, 1), (4096, 8), (576, 4), (9, 2), (72, 1)):
        assert served(tmp_path / folder, NAME, m) == CONFIG | {"num_warps": warps}


def test_version_stands_in_vllms_file_and_not_in_sglangs(tmp_path):
    write("vllm", [record(1)], tmp_path)
    write("sglang", [record(1)], tmp_path)
    assert json.loads((tmp_path / NAME).read_text())["triton_version"] == "3.6.0"
    assert list(json.loads((tmp_path / "triton_3_6_0" / NAME).read_text())) == ["1"]


@pytest.mark.parametrize(
    ("flavour", "name"),
    [
        ("vllm", "E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,64].json"),
        (
            "sglang",
            "triton_3_6_0/"
            "E=8,N=3584,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128, 64].json",
        ),
    ],
)
def test_each_server_gets_its_own_spelling_of_the_name(tmp_path, flavour, name):
    constants = {"dtype": "fp8_w8a8", "block_n": 128, "block_k": 64}
    context = replace(MOE, key_values=constants, device=H200)
    result = write(flavour, [record(1, device=H200)], tmp_path, context)
    assert result.paths == (tmp_path / name,)
    (back,) = read(flavour, tmp_path, replace(context, key_values={})).records
    assert (back.key, back.chosen) == (record(1).key, record(1).chosen)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"m": "1"}, "has '1' as M"),
        ({"m": True}, "has True as M"),
        ({"m": -1}, "has -1 as M"),
        ({"num_ctas": 2}, "no place"),
        ({"mode": (1, 2)}, "tuple"),
        ({"BLOCK_SIZE_M": float("inf")}, "which JSON does not have"),
        ({"device": replace(H100, name="a/../b")}, "no file's name"),
        ({"device": replace(H100, name="a,dtype=b")}, "read as another name"),
        ({"device": replace(H100, name="x" * 300)}, "no file's name"),
    ],
)
def test_record_that_the_layout_cannot_hold_is_left_out(tmp_path, changes, part):
    result = write("vllm", [record(**({"m": 1} | changes))], tmp_path)
    assert part in reasons(result)
    assert list(tmp_path.rglob("*")) == []


def test_two_versions_and_two_configs_do_not_share_a_place(tmp_path):
    records = [record(1), record(2, triton="3.5.1"), record(1, warps=8)]
    result = write("vllm", records, tmp_path)
    assert "of Triton 3.6.0 already" in reasons(result)
    assert "another config for 1 tokens" in reasons(result)
    assert "would not be found" in reasons(write("sglang", [record(1, triton="3.6.0+x")], tmp_path))


def test_missing_experts_name_their_options(tmp_path):
    short = replace(record(1), key=LaunchKey((encode_value("M", 1),), record(1).key.dtypes))
    assert "--key-value E=TYPE:VALUE" in reasons(write("vllm", [short], tmp_path))
    context = replace(MOE, key_values={"E": 8, "N": 3584})
    assert write("vllm", [short], tmp_path, context).paths == (tmp_path / NAME,)
