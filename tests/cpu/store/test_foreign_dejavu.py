"""triton-dejavu's trees become records by the types that are given, or are left out."""

from __future__ import annotations

import pytest
from foreign_files import CONTEXT, given, reasons, refused, write_json

from launchkit.configs import identify
from launchkit.errors import UsageError
from launchkit.store.foreign import read

DEJAVU = given(key_types={"n": "int"}, config_types={"BLOCK": "int"}, toolchain=None)
PLACE = "dejavu_0.7/cuda_12.8/triton_3.6.0/gpu_NVIDIA_H100_80GB_HBM3/scale_rows/autotune_config-1/t"
PRINTED = "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"


def key_text(*parts):
    return str((*parts, "torch.float16", "torch.float32"))


def content(*parts, config=PRINTED, times=(0.25, 0.2, 0.3), **changes):
    key = key_text(*(parts or ("1024",)))
    known = {"signature": "…", "total_bench_time_s": 1.0, "evaluated_configs": 9, "keys": ["n"]}
    timings = {"timings": {key: list(times)}, "timings_data": {"cuda_graphs": False}}
    return known | timings | {"cache": {key: config}} | changes


def only(tmp_path, document, context=DEJAVU, place=PLACE):
    write_json(tmp_path / place / "cache.json", document)
    result = read("dejavu", tmp_path, context)
    assert result.skipped == ()
    return result.records[0]


def refusal(tmp_path, document, context=DEJAVU, place=PLACE):
    write_json(tmp_path / place / "cache.json", document)
    return refused("dejavu", tmp_path, context)


def test_entry_becomes_the_record_of_a_winner(tmp_path):
    record = only(tmp_path, content())
    assert record.toolchain.triton == "3.6.0"
    assert record.key.text == "n=1024 x_ptr:torch.float16 y_ptr:torch.float32"
    assert record.chosen == identify({"BLOCK": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 3})
    (winner,) = record.configs
    # What stands behind the first time is a least and a greatest one, not p20 and p80.
    assert (winner.median_us, winner.p20_us, winner.p80_us) == (250.0, None, None)
    assert winner.method == "imported:dejavu:eager"


def test_folders_above_the_tree_say_nothing(tmp_path):
    place = f"triton_dev/gpu_farm/rocm_x/{PLACE}"
    assert only(tmp_path, content(), place=place).toolchain.triton == "3.6.0"
    alone = given(key_types=DEJAVU.key_types, config_types=DEJAVU.config_types)
    assert only(tmp_path / "triton_dev", content(), alone, "").toolchain == CONTEXT.toolchain


def test_older_file_keeps_its_times_deeper(tmp_path):
    key = key_text("1024")
    times = {key: {"values": [0.5, 0.4, 0.6], "lables": ["ms", "min_ms", "max_ms"]}}
    document = content(timings=times)
    del document["timings_data"]
    winner = only(tmp_path, document).winner
    assert (winner.median_us, winner.method) == (500.0, "imported:dejavu")


def test_entry_without_a_time_is_an_imported_winner(tmp_path):
    assert not only(tmp_path, content(timings={})).winner.timed


@pytest.mark.parametrize(
    ("kind", "part", "expected"),
    [
        ("int", "1024", ("int", "1024")),
        ("str", "1024", ("str", "1024")),
        ("float", "0.5", ("float", "0.5")),
        ("bool", "True", ("bool", "True")),
        ("none", "None", ("none", "None")),
        ("str", "None", ("str", "None")),
        ("int|none", "None", ("none", "None")),
        ("int|none", "7", ("int", "7")),
        ("str", "", ("str", "")),
        ("str", "a, b", ("str", "a, b")),
        ("str", "back\\slash\n'\"\x00é\u200b\U0001f600", ("str", "back\\slash\n'\"\x00é\u200b😀")),
        ("str", "\ud800", ("str-escaped", "'\\ud800'")),
    ],
)
def test_key_part_is_read_by_the_given_type(tmp_path, kind, part, expected):
    context = given(key_types={"n": kind}, config_types={"BLOCK": "int"})
    record = only(tmp_path, content(part), context)
    assert (record.key.values[0].type, record.key.values[0].value) == expected


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("int", "1024.0"),
        ("int", "0x10"),
        ("int", " 1"),
        ("int", "1_0"),
        ("int", "٣"),
        ("float", "1"),
        ("float", "1e3"),
        ("bool", "1"),
        ("bool", "true"),
        ("none", ""),
        ("str|none", "None"),
        ("int", "9" * 5000),
        ("list", "[]"),
    ],
)
def test_key_part_of_another_type_is_refused(tmp_path, kind, part):
    context = given(key_types={"n": kind}, config_types={"BLOCK": "int"})
    assert "n" in refusal(tmp_path, content(part), context)


def test_single_key_without_dtypes_is_read(tmp_path):
    document = content()
    document["cache"] = {"('1024',)": PRINTED}
    record = only(tmp_path, document, given(tensors=(), key_types=DEJAVU.key_types,
                                            config_types=DEJAVU.config_types))  # fmt: skip
    assert record.key.text == "n=1024"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "()",
        "1024",
        "(1024, 'torch.float16', 'torch.float32')",
        "('1024', 'torch.float16', 'torch.float32'",
        "('1024','torch.float16','torch.float32')",
        '("1024", "torch.float16", "torch.float32")',
        "('10\\q24', 'torch.float16', 'torch.float32')",
        "('1024', 'torch.float16', 'torch.float32', __import__('os').getcwd())",
        "('1024')",
        "('\\U00110000', 'torch.float16', 'torch.float32')",
        "((((" * 1000,
    ],
)
def test_key_that_no_tuple_of_strings_prints_is_refused(tmp_path, key):
    assert refusal(tmp_path, content(cache={key: PRINTED}))


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (PRINTED.replace("128", "0.5"), "BLOCK is '0.5', which is no int"),
        (PRINTED.replace("BLOCK: 128, ", ""), "does not have BLOCK"),
        (PRINTED.replace("num_warps: 4, ", ""), "num_warps of a config is not said"),
        (PRINTED.replace("num_warps: 4", "num_warps: on"), "num_warps is 'on'"),
        (PRINTED + ", MODE: a", "give --config-type MODE=TYPE"),
        (PRINTED + ", BLOCK: 5", "BLOCK stands twice"),
        (PRINTED + ", b", "'b' is no name and value"),
        (PRINTED + ", ir_override: other.ptx", "ir_override is 'other.ptx'"),
        ("", "no name and value"),
        (None, "no name and value"),
    ],
)
def test_config_with_no_one_meaning_is_refused(tmp_path, config, part):
    assert part in refusal(tmp_path, content(config=config))


def test_ir_override_that_is_none_is_not_set(tmp_path):
    record = only(tmp_path, content(config=f"{PRINTED}, ir_override: None"))
    assert "ir_override" not in {value.name for value in record.chosen}


def test_value_that_holds_a_separator_is_refused_not_cut(tmp_path):
    context = given(key_types={"n": "int"}, config_types={"BLOCK": "int", "MODE": "str"})
    odd = PRINTED.replace("BLOCK", "MODE: a, BLOCK: 256, BLOCK")
    assert "BLOCK stands twice" in refusal(tmp_path, content(config=odd), context)


@pytest.mark.parametrize(
    ("place", "part"),
    [
        (PLACE.replace("H100_80GB_HBM3", "A100"), "of the GPU NVIDIA_A100"),
        (PLACE.replace("cuda_12.8", "rocm_6.2"), "it is of rocm"),
        (PLACE.replace("scale_rows", "other"), "another function than scale_rows"),
    ],
)
def test_tree_of_another_gpu_or_function_is_refused(tmp_path, place, part):
    assert part in refusal(tmp_path, content(), place=place)


def test_triton_version_that_differs_from_the_given_one_is_refused(tmp_path):
    context = given(key_types=DEJAVU.key_types, config_types=DEJAVU.config_types)
    place = PLACE.replace("3.6.0", "3.5.1")
    assert "of Triton 3.5.1, not of 3.6.0" in refusal(tmp_path, content(), context, place)


@pytest.mark.parametrize(
    "changes",
    [{"cache": []}, {"keys": "n"}, {"keys": [1]}, {"keys": ["m"]}, {"timings": []}],
)
def test_file_of_another_shape_is_refused(tmp_path, changes):
    assert refusal(tmp_path, content(**changes))


@pytest.mark.parametrize("times", [["1"], [float("inf")], [float("nan")], [0], [True]])
def test_winner_with_a_time_that_is_none_is_refused(tmp_path, times):
    assert refusal(tmp_path, content(times=times))


def test_good_entries_of_a_file_are_taken_beside_bad_ones(tmp_path):
    document = content()
    document["cache"] = {key_text("7"): PRINTED, "broken": PRINTED, key_text("x"): PRINTED}
    write_json(tmp_path / PLACE / "cache.json", document)
    result = read("dejavu", tmp_path, DEJAVU)
    assert [record.key.values[0].value for record in result.records] == ["7"]
    assert reasons(result).count("\n") == 1


def test_types_must_be_given():
    with pytest.raises(UsageError, match="--config-type NAME=TYPE"):
        read("dejavu", ".", CONTEXT)
