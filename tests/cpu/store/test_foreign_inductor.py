"""PyTorch Inductor's .best_config files become untimed winners, or are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from foreign_files import CONTEXT, given, reasons, refused, write_json

from launchkit.configs import identify
from launchkit.errors import UsageError
from launchkit.store.foreign import FORMATS, read, write

INDUCTOR = given(dtypes={"x_ptr": "torch.float32"}, key_values={"n": 4096}, tensors=None)
CONTENT = {
    "BLOCK": 64,
    "num_warps": 8,
    "num_stages": 1,
    "configs_hash": "ab",
    "found_by_coordesc": False,
    "time_taken_ms": 12,
    "triton_cache_hash": "CD",
}


def refusal(tmp_path, content, context=INDUCTOR):
    return refused("inductor", write_json(tmp_path / "a.best_config", content), context)


def test_file_becomes_an_untimed_winner(tmp_path):
    path = write_json(tmp_path / "ab" / "x.best_config", CONTENT)
    result = read("inductor", path, INDUCTOR)
    (record,) = result.records
    assert record.chosen == identify({"BLOCK": 64, "num_warps": 8, "num_stages": 1, "num_ctas": 1})
    assert record.key.text == "n=4096 x_ptr:torch.float32"
    # The file's time is that of the whole tuning.
    assert (record.winner.median_us, record.winner.method) == (None, "imported:inductor")
    assert any("all tuning" in gap for gap in result.gaps)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"configs_hash": None}, None),
        ({"extra_options": {"a": 1}}, "beyond those of a Triton config"),
        ({"num_consumer_groups": 2}, "beyond those of a Triton config"),
        ({"num_consumer_groups": 0, "num_buffers_warp_spec": 0}, None),
        ({"later": 1}, "later in it is no parameter"),
        ({"num_warps": "8"}, "num_warps of a config is '8'"),
        ({"num_stages": None}, "num_stages of a config is not said"),
        ({"BLOCK": {"a": 1}}, "cannot be part"),
    ],
)
def test_entry_is_taken_only_where_it_has_one_meaning(tmp_path, changes, part):
    if part is None:
        path = write_json(tmp_path / "a.best_config", CONTENT | changes)
        assert len(read("inductor", path, INDUCTOR).records) == 1
    else:
        assert part in refusal(tmp_path, CONTENT | changes)


@pytest.mark.parametrize("name", ["configs_hash", "num_warps", "time_taken_ms"])
def test_tunable_of_a_reserved_name_is_refused(tmp_path, name):
    context = replace(INDUCTOR, parameters=(*CONTEXT.parameters, name))
    assert f"the kernel's {name} has a name" in refusal(tmp_path, CONTENT, context)


def test_other_json_is_refused(tmp_path):
    assert "no configs_hash" in refusal(tmp_path, {"BLOCK": 64, "num_warps": 8, "num_stages": 1})


def test_key_must_be_given(tmp_path):
    context = replace(INDUCTOR, key_values={})
    assert "--key-value n=TYPE:VALUE" in refusal(tmp_path, CONTENT, context)


def test_tree_of_unlike_winners_gives_none(tmp_path):
    write_json(tmp_path / "a.best_config", CONTENT)
    write_json(tmp_path / "b.best_config", CONTENT | {"BLOCK": 128})
    result = read("inductor", tmp_path, INDUCTOR)
    assert (result.records, "another result" in reasons(result)) == ((), True)


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.write is None])
def test_format_that_is_only_read_says_so(tmp_path, name):
    with pytest.raises(UsageError, match="Give one that is written: fla, vllm"):
        write(name, [], tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_what_it_needs_and_lacks(name, tmp_path):
    form = FORMATS[name]
    assert form.gaps
    assert read(name, tmp_path, _full()).gaps == form.gaps
    for field in form.needs:
        with pytest.raises(UsageError, match="do not say"):
            read(name, tmp_path, replace(_full(), **{field: {"key_types": None}.get(field)}))


def _full():
    return given(dtypes={}, key_types={"n": "int"}, config_types={"BLOCK": "int"})
