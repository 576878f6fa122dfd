"""Triton's own .autotune.json files become records, or are left out with a reason."""

from __future__ import annotations

import json
import math
import os

import pytest
from foreign_files import CONTEXT, given, reasons, refused, write_json

from launchkit.configs import identify
from launchkit.errors import UsageError
from launchkit.keys import KeyValue
from launchkit.store.foreign import read

NAME = "scale_rows.autotune.json"


def attributes(**changes):
    """A config as Triton's attributes of it."""
    fields = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}
    empty = {"maxnreg": None, "pre_hook": None, "ir_override": None}
    return {"kwargs": {"BLOCK": 128}} | fields | empty | changes


def content(key=(1024, "torch.float16", "torch.float32"), timings=None):
    if timings is None:
        slow = [attributes(kwargs={"BLOCK": 256}), [0.5, 0.25, 0.75]]
        timings = [slow, [attributes(), [0.25, 0.125, 0.375]]]
    return {"key": list(key), "configs_timings": timings}


def only(tmp_path, document, context=CONTEXT):
    result = read("triton", write_json(tmp_path / NAME, document), context)
    assert result.skipped == ()
    return result.records[0]


def refusal(tmp_path, document, context=CONTEXT):
    return refused("triton", write_json(tmp_path / NAME, document), context)


def test_file_becomes_a_record_with_every_time(tmp_path):
    record = only(tmp_path, content())
    assert record.identity[:3] == (CONTEXT.kernel, CONTEXT.device, CONTEXT.toolchain)
    assert record.key.values == (KeyValue("n", "int", "1024"),)
    dtypes = ("torch.float16", "torch.float32", None, None)
    assert record.key.dtypes == tuple(zip(CONTEXT.parameters, dtypes, strict=True))
    slow, fast = record.configs
    assert (fast.median_us, fast.p20_us, fast.p80_us, fast.reps) == (250.0, 125.0, 375.0, None)
    assert slow.median_us == 500.0
    assert {tuned.method for tuned in record.configs} == {"imported:triton"}
    fields = {"BLOCK": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    assert record.chosen == identify(fields)


def test_dtypes_are_named_in_the_order_of_the_call(tmp_path):
    record = only(tmp_path, content(), given(tensors=("y_ptr", "x_ptr")))
    assert dict(record.key.dtypes)["x_ptr"] == "torch.float32"
    assert dict(record.key.dtypes)["y_ptr"] == "torch.float16"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, ("int", "1")),
        (True, ("bool", "True")),
        (1.0, ("float", "1.0")),
        ("1", ("str", "1")),
        ("0.5", ("str", "0.5")),
        ("on", ("str", "on")),
        ("torch.float16", ("str", "torch.float16")),
        (None, ("none", "None")),
        (2**70, ("int", str(2**70))),
        (math.nan, ("float", "nan")),
        (-0.0, ("float", "0.0")),
        ("", ("str", "")),
        ("a, b\\\n'\"é", ("str", "a, b\\\n'\"é")),
        ([1, [2.0]], ("tuple", '[["int","1"],["tuple",[["float","2.0"]]]]')),
    ],
)
def test_key_value_keeps_the_type_that_the_file_gives_it(tmp_path, value, expected):
    record = only(tmp_path, content(key=(value, "torch.float16", "torch.float32")))
    assert (record.key.values[0].type, record.key.values[0].value) == expected


@pytest.mark.parametrize("time", [math.inf, math.nan, 0.0, -1.0, 10**400])
def test_strange_time_is_a_failure_and_never_wins(tmp_path, time):
    failed = [attributes(kwargs={"BLOCK": 256}), [time, time, time]]
    record = only(tmp_path, content(timings=[failed, [attributes(), [0.25, 0.125, 0.375]]]))
    assert not record.configs[0].ok
    assert record.winner.median_us == 250.0


@pytest.mark.parametrize("time", [math.inf, math.nan])
def test_file_in_which_all_failed_has_no_winner(tmp_path, time):
    assert "all failed" in refusal(tmp_path, content(timings=[[attributes(), [time] * 3]]))


@pytest.mark.parametrize("times", ["12", [True, 1, 1], [], ["1", "2", "3"], None, {}])
def test_time_that_is_no_number_refuses_the_file(tmp_path, times):
    reason = refusal(tmp_path, content(timings=[[attributes(), times]]))
    assert reason == "a config's times are not numbers"


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ([], "no JSON object"),
        (None, "no JSON object"),
        ({}, "its key is no JSON array"),
        (content(timings=[]), "there are none"),
        (content(timings=[[attributes()]]), "no pair"),
        (content(timings=[[attributes(num_warps=None), [1.0]]]), "num_warps of a config is not"),
        (content(timings=[[attributes(num_warps=True), [1.0]]]), "num_warps of a config is True"),
        (content(timings=[[attributes(num_warps=4.0), [1.0]]]), "num_warps of a config is 4.0"),
        (content(timings=[[attributes(pre_hook="f"), [1.0]]]), "'pre_hook', which is not known"),
        (content(timings=[[attributes(later=1), [1.0]]]), "'later', which is not known"),
        (content(timings=[[attributes(kwargs=[]), [1.0]]]), "no kwargs"),
        (content(timings=[[attributes(kwargs={"B": {}}), [1.0]]]), "cannot be part"),
        (content(timings=[[attributes(), [1.0]], [attributes(), [2.0]]]), "stands twice"),
        (content(key=(1024, "torch.float16")), "dtypes of 1 arguments, not of the 2"),
        (content(key=(1024, "torch.float16", 3)), "3 is no dtype"),
        (content(key=()), "fewer than the 1"),
        (content(key=({}, "torch.float16", "torch.float32")), "cannot be part"),
    ],
)
def test_file_with_no_one_meaning_is_refused(tmp_path, document, part):
    assert part in refusal(tmp_path, document)


def test_every_truncation_is_refused(tmp_path):
    data = json.dumps(content()).encode()
    path = tmp_path / NAME
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert refused("triton", path)


@pytest.mark.parametrize(
    "data",
    [
        b'{"key": [], "key": [], "configs_timings": []}',
        json.dumps(content()).encode("utf-16"),
        b"\xef\xbb\xbf" + json.dumps(content()).encode(),
        b"[" * 100_000,
        b'{"key": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"key": [' + b"9" * 5000 + b"]}",
        b"\xff\xfe",
    ],
)
def test_broken_bytes_are_refused(tmp_path, data):
    (tmp_path / NAME).write_bytes(data)
    assert refused("triton", tmp_path / NAME)


def test_lone_surrogate_in_a_config_name_is_refused(tmp_path):
    odd = attributes(kwargs={"\ud800": 1})
    assert "plain text" in refusal(tmp_path, content(timings=[[odd, [1.0]]]))


def test_tunable_named_as_a_field_is_hidden_by_it_as_in_triton(tmp_path):
    odd = attributes(kwargs={"num_warps": 16, "BLOCK": 1})
    record = only(tmp_path, content(timings=[[odd, [1.0]]]))
    assert {value.name: value.value for value in record.chosen}["num_warps"] == "4"


def test_tree_gives_this_kernels_files_alone(tmp_path):
    write_json(tmp_path / "A" / NAME, content())
    write_json(tmp_path / "B" / NAME, content(key=(7, "torch.float16", "torch.float32")))
    write_json(tmp_path / "C" / "other.autotune.json", content())
    (tmp_path / "C" / "scale_rows.ptx").write_text("not read")
    result = read("triton", tmp_path, CONTEXT)
    assert [record.key.values[0].value for record in result.records] == ["1024", "7"]
    assert reasons(result) == "it is of another function than scale_rows"


def test_two_results_of_one_key_are_both_left_out(tmp_path):
    write_json(tmp_path / "A" / NAME, content())
    write_json(tmp_path / "B" / NAME, content(timings=[[attributes(), [9.0, 9.0, 9.0]]]))
    result = read("triton", tmp_path, CONTEXT)
    assert result.records == ()
    assert "another result for the same key" in reasons(result)


def test_two_equal_files_are_one_record(tmp_path):
    write_json(tmp_path / "A" / NAME, content())
    write_json(tmp_path / "B" / NAME, content())
    result = read("triton", tmp_path, CONTEXT)
    assert (len(result.records), result.skipped) == (1, ())


def test_context_gives_the_method(tmp_path):
    record = only(tmp_path, content(), given(method="eager+cold"))
    assert record.winner.method == "eager+cold"


@pytest.mark.parametrize("field", ["kernel", "device", "toolchain", "keys", "tensors"])
def test_missing_context_is_named_with_its_option(tmp_path, field):
    with pytest.raises(UsageError, match=f"do not say: {field}. Give --"):
        read("triton", tmp_path, given(**{field: None}))


def test_place_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        read("triton", tmp_path / "absent", CONTEXT)


def test_unknown_format_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="Give one of: triton"):
        read("tritonn", tmp_path, CONTEXT)


def test_reason_is_short_and_plain_text_whatever_the_file_holds(tmp_path):
    long = "\ud800" + "x" * 100_000
    for content_of in (content(key=(1, long, "torch.float16")), {"key": [], long: 1}):
        reason = refusal(tmp_path, content_of)
        assert len(reason.encode()) < 2000
    reason = refusal(tmp_path, content(key=(1, long, "torch.float16")))
    assert reason.endswith("is no dtype of x_ptr")


def test_huge_file_fifo_and_loop_of_links_cost_nothing(tmp_path):
    for folder in ("huge", "fifo", "link"):
        (tmp_path / folder).mkdir()
    with open(tmp_path / "huge" / NAME, "wb") as file:
        file.truncate(2**30)
    os.mkfifo(tmp_path / "fifo" / NAME)
    (tmp_path / "link" / "again").symlink_to(tmp_path / "link")
    (tmp_path / "link" / NAME).symlink_to(tmp_path / "nowhere")
    result = read("triton", tmp_path, CONTEXT)
    assert result.records == ()
    assert len(result.skipped) == 3
    for part in ("more than", "not a regular file", "cannot be read"):
        assert part in reasons(result)


def test_directory_that_cannot_be_read_is_left_out_with_a_warning(tmp_path, monkeypatch, caplog):
    write_json(tmp_path / "A" / NAME, content())
    (tmp_path / "B").mkdir()
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("B"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert len(read("triton", tmp_path, CONTEXT).records) == 1
    assert "Permission denied" in caplog.text
