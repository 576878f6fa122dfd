"""flash-linear-attention's config files: read into records, and written so that it finds them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from foreign_files import CONTEXT, H100, given, reasons, refused, write_json

from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.errors import UsageError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store.foreign import read, write

CONFIG = {"kwargs": {"BLOCK": 128, "MODE": "0.5"}, "num_warps": 4, "num_stages": 3, "num_ctas": 1}
KEY = [1024, "torch.float16", "torch.float32"]


def digest(key):
    """What flash-linear-attention looks an entry up by."""
    return hashlib.md5(json.dumps(key, separators=(",", ":"), sort_keys=True).encode()).hexdigest()


def content(key=KEY, config=CONFIG, **changes):
    entries = {digest(key): {"autotune_key": key, "config": config}}
    known = {"kernel_name": "scale_rows", "triton_version": "3.6.0"}
    return known | {"autotune_entries": entries} | changes


def refusal(tmp_path, document, context=CONTEXT):
    return refused("fla", write_json(tmp_path / "scale_rows.json", document), context)


def test_entry_becomes_an_untimed_winner(tmp_path):
    path = write_json(tmp_path / "scale_rows.json", content())
    result = read("fla", path, given(toolchain=None))
    (record,) = result.records
    assert record.chosen == identify({**CONFIG["kwargs"], "num_warps": 4, "num_stages": 3,
                                      "num_ctas": 1})  # fmt: skip
    assert dict((v.name, v.type) for v in record.chosen)["MODE"] == "str"  # noqa: C402
    assert (record.winner.timed, record.winner.method) == (False, "imported:fla")
    assert record.key.text == "n=1024 x_ptr:torch.float16 y_ptr:torch.float32"
    assert record.toolchain == Toolchain("3.6.0")


@pytest.mark.parametrize("value", [1, True, 1.0, "1", None, 2**70, "a, b\\\n'é😀", [1, [2]]])
def test_md5_is_recomputed_for_every_kind_of_key(tmp_path, value):
    key = [value, *KEY[1:]]
    path = write_json(tmp_path / "scale_rows.json", content(key))
    assert len(read("fla", path, CONTEXT).records) == 1
    wrong = content(key, autotune_entries={"0" * 32: {"autotune_key": key, "config": CONFIG}})
    assert "md5" in refusal(tmp_path, wrong)


@pytest.mark.parametrize(
    ("document", "part"),
    [
        (content(kernel_name="other"), "function 'other'"),
        (content(autotune_entries=[]), "no JSON object"),
        (content(autotune_entries={digest(KEY): []}), "no JSON object"),
        (content(config={}), "no kwargs"),
        (content(config=CONFIG | {"num_ctas": None}), "num_ctas of a config is not said"),
        (content(config=CONFIG | {"later": 1}), "'later', which is not known"),
        (content(key=[1024, "torch.float16"]), "dtypes of 1 arguments"),
        (content(key=[1024, "torch.float16", "a b"]), "'a b' is no dtype"),
        (content(triton_version="3.5.1"), "of Triton 3.5.1, not of 3.6.0"),
        (content(triton_version="unknown"), "'unknown' is no version"),
        (CONFIG, "config for any key alone"),
    ],
)
def test_entry_with_no_one_meaning_is_refused(tmp_path, document, part):
    assert part in refusal(tmp_path, document)


def test_config_for_any_key_is_left_out_beside_its_entries(tmp_path):
    path = write_json(tmp_path / "scale_rows.json", content(default_config=CONFIG))
    result = read("fla", path, CONTEXT)
    assert len(result.records) == 1
    assert "for any key" in reasons(result)


# -- what is written


def record(n=1024, dtypes=("torch.float16", "torch.float32"), **changes):
    key = LaunchKey(
        (encode_value("n", n),),
        tuple(zip(CONTEXT.parameters, (*dtypes, None, None), strict=True)),
    )
    config = identify({"BLOCK": 128, "scale": 0.5, "num_warps": 8, "num_ctas": 1, "num_stages": 2})
    tuned = TunedConfig.measured(config, 1.0, reps=3, method="eager")
    made = TunedRecord(CONTEXT.kernel, H100, Toolchain("3.6.0"), key, (tuned,), config)
    return replace(made, **changes)


def looked_up(place, device, function, key):
    """The config that flash-linear-attention takes for a key, with the fields that it needs."""
    document = json.loads((place / device / f"{function}.json").read_text())
    found = document["autotune_entries"][digest(key)]["config"]
    return found["kwargs"], found["num_warps"], found["num_stages"], found["num_ctas"]


def test_written_entry_is_found_by_the_key_of_a_launch(tmp_path):
    result = write("fla", [record(), record(7)], tmp_path)
    assert result.skipped == ()
    for n in (1024, 7):
        found = looked_up(tmp_path, "NVIDIA_H100_80GB_HBM3", "scale_rows", [n, *KEY[1:]])
        assert found == ({"BLOCK": 128, "scale": 0.5}, 8, 2, 1)


@pytest.mark.parametrize("n", [1, True, 1.0, "1", None, 1e16, 0.1, "é\n", (1, (2.0, "x"))])
def test_written_record_reads_back_with_its_types(tmp_path, n):
    write("fla", [record(n)], tmp_path)
    (back,) = read("fla", tmp_path, CONTEXT).records
    assert (back.key, back.chosen, back.toolchain) == (
        record(n).key, record().chosen, record().toolchain
    )  # fmt: skip


def test_tensors_are_written_in_the_order_of_the_call(tmp_path):
    write("fla", [record()], tmp_path, given(tensors=("y_ptr", "x_ptr")))
    key = [1024, "torch.float32", "torch.float16"]
    assert looked_up(tmp_path, "NVIDIA_H100_80GB_HBM3", "scale_rows", key)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"n": float("nan")}, "which JSON does not have"),
        ({"n": 2**64}, "more than 63 bits"),
        ({"kernel": KernelId("a.<locals>", "0" * 64)}, "no function's name"),
        ({"kernel": KernelId("a.../b", "0" * 64)}, "no function's name"),
    ],
)
def test_record_that_the_layout_cannot_hold_is_left_out(tmp_path, changes, part):
    result = write("fla", [record(**changes)], tmp_path)
    assert (result.paths, part in reasons(result)) == ((), True)
    assert list(tmp_path.iterdir()) == []


def test_two_kernels_of_one_function_name_do_not_share_a_file(tmp_path):
    other = KernelId("elsewhere.scale_rows", "1" * 64)
    result = write("fla", [record(), record(7, kernel=other)], tmp_path)
    assert "already holds another kernel" in reasons(result)


def test_two_gpus_whose_folders_are_one_do_not_share_a_file(tmp_path):
    alike = DeviceId("cuda", "NVIDIA-H100 80GB HBM3", "sm_90", 114, 232448, 80)
    result = write("fla", [record(), record(7, device=alike)], tmp_path)
    assert "already holds another" in reasons(result)


def test_file_in_the_way_is_an_error_and_stays(tmp_path):
    path = write_json(tmp_path / "NVIDIA_H100_80GB_HBM3" / "scale_rows.json", {})
    with pytest.raises(UsageError, match="exists and differs"):
        write("fla", [record()], tmp_path)
    assert path.read_text() == "{}"


def test_writing_twice_is_one_file(tmp_path):
    assert write("fla", [record()], tmp_path) == write("fla", [record()], tmp_path)
