"""The config document: version 1 is readable for ever, and nothing that breaks its rules is."""

from __future__ import annotations

import copy
import json
import math
import pathlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchkit.errors import BadDocumentError, UsageError
from launchkit.keys import DeviceId, KernelId, KeyValue, Toolchain
from launchkit.store import document

GOLDEN_PATH = pathlib.Path(__file__).parents[2] / "data" / "config_document_v1.json"
GOLDEN = GOLDEN_PATH.read_bytes()


def parse(data: bytes) -> document.ConfigDocument:
    return document.parse(data, source="golden.json")


def edited(**changes: object) -> bytes:
    """The golden document with parts replaced; a name is the path of a part: records__0__key."""
    raw = json.loads(GOLDEN)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        place = raw
        for part in parents:
            place = place[part]
        place[last] = value
    return json.dumps(raw).encode()


def test_version_1_loads_with_every_value() -> None:
    loaded = parse(GOLDEN)
    assert loaded.kernel == KernelId("state_passing_kernel", "5e" * 32)
    assert loaded.device == DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 141)
    assert len(loaded.records) == 3
    newest = next(each for each in loaded.records if len(each.configs) == 3)
    assert newest.toolchain == Toolchain("3.9.0")
    assert KeyValue("headdim", "int", "64") in newest.key.values
    assert KeyValue("mode", "str", 'varlen, "é"\n') in newest.key.values
    assert newest.key.dtypes[:2] == (("states_ptr", "torch.float16"), ("initial_ptr", None))
    assert (newest.winner.median_us, newest.winner.p20_us, newest.winner.p80_us) == (
        9.984,
        9.75,
        10.25,
    )
    assert newest.winner.text == "BLOCK=128 num_ctas=1 num_stages=3 num_warps=4"
    assert [each.ok for each in newest.configs] == [True, True, False]
    assert "OutOfResources" in (newest.configs[2].error or "")


def test_version_1_is_written_back_byte_for_byte() -> None:
    loaded = parse(GOLDEN)
    assert document.dump(loaded) == GOLDEN
    assert document.dump(replace(loaded, records=loaded.records[::-1])) == GOLDEN


def test_a_newer_schema_is_told_from_a_broken_document() -> None:
    for data in (edited(schema=2), b'{"schema": 7}', edited(schema=2, records="otherwise")):
        with pytest.raises(BadDocumentError, match="Upgrade") as caught:
            parse(data)
        assert caught.value.newer


@pytest.mark.parametrize("schema", [0, -1, True, 1.0, 2.5, "1", "2", None, [2]])
def test_a_schema_that_is_no_version_is_bad_not_newer(schema: object) -> None:
    with pytest.raises(BadDocumentError) as caught:
        parse(edited(schema=schema))
    assert not caught.value.newer


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"1",
        b'"text"',
        b"{}",
        b'{"schema": 1}',
        b"\xef\xbb\xbf" + GOLDEN,
        GOLDEN.decode().encode("utf-16"),
        GOLDEN.decode().encode("utf-8").replace("é".encode(), b"\xe9"),
        GOLDEN + b"x",
        GOLDEN + GOLDEN,
        b"[" * 100_000,
        GOLDEN.replace(b'"schema": 1', b'"schema": 1, "schema": 1'),
        GOLDEN.replace(b'"median_us": 9.984', b'"median_us": NaN'),
        GOLDEN.replace(b'"median_us": 9.984', b'"median_us": Infinity'),
        GOLDEN.replace(b'"median_us": 9.984', b'"median_us": 1e999'),
        GOLDEN.replace(b'"median_us": 9.984', b'"median_us": 9.984, "median_us": 9.984'),
    ],
)
def test_what_is_not_one_whole_document_is_bad(data: bytes) -> None:
    assert data != GOLDEN
    with pytest.raises(BadDocumentError):
        parse(data)


def test_a_document_cut_at_any_byte_is_bad() -> None:
    for length in range(len(GOLDEN) - 1):
        with pytest.raises(BadDocumentError):
            parse(GOLDEN[:length])
    assert parse(GOLDEN[:-1]) == parse(GOLDEN)  # only the last newline is missing


RECORD = json.loads(GOLDEN)["records"][0]
CONFIG = "records__0__configs__0__"


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": 1},
        {"kernel__extra": 1},
        {"device__name": None},
        {"device__multiprocessors": "132"},
        {"device__multiprocessors": 132.0},
        {"device__multiprocessors": -1},
        {"device__shared_bytes": True},
        {"device__memory_gib": 2**64},
        {"kernel__digest": "5e"},
        {"kernel__digest": "../../../../../../../../etc/passwd"},
        {"kernel__name": ""},
        {"records": {}},
        {"records": [RECORD, RECORD]},
        {"records__0__extra": 1},
        {"records__0__toolchain": "3.9.0"},
        {"records__0__toolchain": {}},
        {"records__0__key__0__value": 64},
        {"records__0__key__0__type": None},
        {"records__0__key": [RECORD["key"][0], RECORD["key"][0]]},
        {"records__0__dtypes": [{"name": "x", "dtype": None}] * 2},
        {"records__0__dtypes": [{"name": "x"}]},
        {"records__0__dtypes": [["x", None]]},
        {"records__0__configs": []},
        {"records__0__configs": [RECORD["configs"][0]] * 2},
        {"records__0__chosen": []},
        {"records__0__chosen": [{"name": "BLOCK", "type": "int", "value": "4096"}]},
        {"records__0__chosen": None},
        {CONFIG + "median_us": "12.288"},
        {CONFIG + "median_us": None},
        {CONFIG + "median_us": 0},
        {CONFIG + "median_us": -1.0},
        {CONFIG + "median_us": True},
        {CONFIG + "median_us": [1.0]},
        {CONFIG + "p20_us": 1e6},
        {CONFIG + "p20_us": 0.0},
        {CONFIG + "p80_us": 1e-6},
        {CONFIG + "reps": 0},
        {CONFIG + "reps": 1.5},
        {CONFIG + "error": "failed, yet timed"},
        {CONFIG + "method": None},
        {CONFIG + "pre_hook": None},
        {CONFIG + "config": [{"name": "BLOCK", "type": "int", "value": "64"}] * 2},
    ],
)
def test_a_document_that_breaks_a_rule_is_bad_and_says_where(changes: dict[str, object]) -> None:
    with pytest.raises(BadDocumentError) as caught:
        parse(edited(**changes))
    assert "golden.json" in str(caught.value)
    assert not caught.value.newer


def test_a_missing_field_is_bad() -> None:
    raw = json.loads(GOLDEN)
    for part in (raw, raw["device"], raw["records"][0], raw["records"][0]["configs"][0]):
        for name in list(part):
            kept = part.pop(name)
            with pytest.raises(BadDocumentError):
                parse(json.dumps(raw).encode())
            part[name] = kept
    assert parse(json.dumps(raw).encode()) == parse(GOLDEN)


def test_a_failed_config_cannot_be_the_chosen_one() -> None:
    raw = json.loads(GOLDEN)
    record = next(each for each in raw["records"] if len(each["configs"]) == 3)
    record["chosen"] = record["configs"][2]["config"]
    with pytest.raises(BadDocumentError, match="not measured"):
        parse(json.dumps(raw).encode())


def test_a_config_field_of_a_later_triton_is_kept() -> None:
    raw = json.loads(GOLDEN)
    record = raw["records"][0]
    record["configs"][0]["config"].append({"name": "new_knob", "type": "int", "value": "1"})
    record["chosen"] = copy.deepcopy(record["configs"][0]["config"])
    loaded = parse(json.dumps(raw).encode())
    texts = [each.text for each in loaded.records[0].configs]
    assert any("new_knob=1" in text for text in texts)
    assert parse(document.dump(loaded)) == loaded


def test_values_in_another_order_are_the_same_config() -> None:
    raw = json.loads(GOLDEN)
    raw["records"][0]["chosen"].reverse()
    assert parse(json.dumps(raw).encode()) == parse(GOLDEN)


def test_a_document_holds_records_of_one_kernel_on_one_device() -> None:
    loaded = parse(GOLDEN)
    other = replace(loaded.records[0], kernel=KernelId("other", "0" * 64))
    for records in ((other,), (loaded.records[0],) * 2):
        with pytest.raises(UsageError):
            replace(loaded, records=records)


def test_the_largest_document_is_bounded() -> None:
    with pytest.raises(BadDocumentError, match="more than"):
        parse(GOLDEN + b" " * document.LIMIT_BYTES)


def check_rules(loaded: document.ConfigDocument) -> None:
    """The rules again, written independently of the parser."""
    identities = [(each.toolchain, each.key) for each in loaded.records]
    assert len(set(identities)) == len(identities)
    for record in loaded.records:
        assert (record.kernel, record.device) == (loaded.kernel, loaded.device)
        measured = {each.config for each in record.configs if each.error is None}
        assert record.chosen in measured
        results = {(each.config, each.method) for each in record.configs}
        assert len(results) == len(record.configs)
        for tuned in record.configs:
            times = [
                each for each in (tuned.p20_us, tuned.median_us, tuned.p80_us) if each is not None
            ]
            assert times == sorted(times)
            assert all(0 < each < math.inf for each in times)
            untimed = tuned.error is not None or tuned.method.startswith("imported:")
            assert tuned.median_us is not None or untimed
            assert tuned.error is None or not times


def accept_or_refuse(data: bytes) -> None:
    try:
        loaded = parse(data)
    except BadDocumentError:
        return
    check_rules(loaded)
    again = parse(document.dump(loaded))
    assert set(again.records) == set(loaded.records)  # a changed key can change the order
    assert document.dump(again) == document.dump(loaded)


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_never_a_crash(data: bytes) -> None:
    accept_or_refuse(data)


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, len(GOLDEN) - 1), st.integers(0, 200), st.binary(max_size=8))
def test_a_golden_document_with_bytes_replaced_breaks_no_rule(
    at: int, cut: int, put: bytes
) -> None:
    accept_or_refuse(GOLDEN[:at] + put + GOLDEN[at + cut :])


def paths_of(part: object, prefix: str = "") -> list[str]:
    below = (
        part.items()
        if isinstance(part, dict)
        else enumerate(part)
        if isinstance(part, list)
        else ()
    )
    found = []
    for name, inner in below:
        found += [f"{prefix}{name}", *paths_of(inner, f"{prefix}{name}__")]
    return found


PATHS = paths_of(json.loads(GOLDEN))
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([[], {}, [[]], {"schema": 1}, "12.5", -0.0, 1e-320]),
    st.sampled_from(json.loads(GOLDEN)["records"]),
    st.sampled_from(RECORD["configs"]),
)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(PATHS), STRANGE)
def test_a_golden_document_with_any_part_replaced_breaks_no_rule(path: str, value: object) -> None:
    accept_or_refuse(edited(**{path: value}))


def test_time_of_tuning_is_written_where_it_is_known_and_nowhere_else() -> None:
    loaded = parse(GOLDEN)
    assert {record.tuned_at for record in loaded.records} == {None}
    first, *others = loaded.records
    dated = replace(first, tuned_at="2026-02-28T23:59:59Z")
    data = document.dump(replace(loaded, records=(dated, *others)))
    assert data.count(b"tuned_at") == 1
    assert set(parse(data).records) == {dated, *others}


@pytest.mark.parametrize(
    "time", ["", "2026-02-30T00:00:00Z", "2026-2-3T1:1:1Z", "2026-02-28T23:59:59", "\u0662026", 7]
)
def test_a_time_of_tuning_of_another_form_is_refused(time) -> None:
    with pytest.raises(BadDocumentError):
        parse(edited(records__0__tuned_at=time))


def test_a_document_cannot_pin() -> None:
    with pytest.raises(BadDocumentError, match="pinned"):
        parse(edited(records__0__pinned=True))
    pinned = replace(parse(GOLDEN).records[0], pinned=True)
    assert "pinned" not in document.record_object(pinned)


def test_seconds_and_the_chosen_method_are_written_where_they_are_known() -> None:
    loaded = parse(GOLDEN)
    first, *others = loaded.records
    again = tuple(replace(tuned, method="graph+cold") for tuned in first.configs)
    both = replace(
        first, configs=first.configs + again, chosen_method="graph+cold", seconds=math.pi
    )
    data = document.dump(replace(loaded, records=(both, *others)))
    assert data.count(b"chosen_method") == data.count(b'"seconds"') == 1
    assert set(parse(data).records) == {both, *others}
    assert next(r for r in parse(data).records if r == both).winner.method == "graph+cold"


@pytest.mark.parametrize(
    "changes", [{"seconds": -1.0}, {"seconds": "1"}, {"chosen_method": 1}, {"chosen_method": "no"}]
)
def test_seconds_or_methods_that_cannot_be_are_refused(changes) -> None:
    with pytest.raises(BadDocumentError):
        parse(edited(**{f"records__0__{name}": value for name, value in changes.items()}))
