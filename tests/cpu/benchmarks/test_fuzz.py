"""No file makes a reader crash, write elsewhere, or take what breaks the rules of a record.

The same readers and checks as ``launchkit bench fuzz``, a few thousand inputs of them.
"""

from __future__ import annotations

import copy
import itertools
import logging
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launchkit import jsonio
from launchkit.benchmarks.fuzz import manifests, seeds
from launchkit.benchmarks.fuzz.mutations import everywhere
from launchkit.benchmarks.fuzz.one_input import Counts, check_records, run_one
from launchkit.benchmarks.fuzz.targets import TARGETS
from launchkit.errors import UsageError

LIMITS = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
CONTENTS = {
    "triton": ("AB/scale_rows.autotune.json", seeds.triton()),
    "dejavu": ("scale_rows/cache.json", seeds.dejavu()),
    "fla": ("GPU/scale_rows.json", seeds.fla()),
    "vllm": ("E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3.json", seeds.moe()),
    "inductor": ("x.best_config", seeds.inductor()),
    "manifest": ("manifest.json", manifests.manifest()),
}
RECORDS = [name for name, target in TARGETS.items() if target.check is None]
OTHERS = [name for name in TARGETS if name not in RECORDS]
TEXT = st.text(st.characters(codec=None, categories=None), max_size=8)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.just(2**80), st.just("None")
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("launchkit"), "disabled", True)


@pytest.mark.parametrize("target", RECORDS)
@settings(max_examples=100, **LIMITS)
@given(number=st.integers(0, 2**32))
def test_changed_file_is_refused_or_a_valid_record(target, number, tmp_path):
    counts = Counts(target)
    run_one(target, f"{number}:{target}:0", tmp_path, counts)
    assert counts.failures == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", OTHERS)
@settings(max_examples=20, **LIMITS)
@given(number=st.integers(0, 2**32))
def test_changed_capture_or_manifest_is_refused_or_read_by_its_rules(target, number, tmp_path):
    counts = Counts(target)
    run_one(target, f"{number}:{target}:0", tmp_path, counts)
    assert counts.failures == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=40, **LIMITS)
@given(data=st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_bytes_of_no_kind_are_refused(target, data, tmp_path):
    # The files of a valid input, each with these bytes.
    for name in TARGETS[target].make(Random(1)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    records, _ = TARGETS[target].take(tmp_path)
    assert list(records) == []


@pytest.mark.parametrize("target", CONTENTS)
@settings(max_examples=100, **LIMITS)
@given(st.data())
def test_any_value_in_any_place_is_refused_or_read_by_the_rules(target, tmp_path, data):
    name, content = CONTENTS[target]
    root = [copy.deepcopy(content)]
    places = list(everywhere(root))
    parent, key = places[data.draw(st.integers(0, len(places) - 1))]
    parent[key] = data.draw(JSON)
    try:
        spelled = jsonio.dumps_python_compact(root[0])
    except UsageError:
        return
    path = Path(tmp_path / name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(spelled)
    records, reasons = TARGETS[target].take(tmp_path)
    (TARGETS[target].check or check_records)(records)
    assert records or reasons
    for reason in reasons:
        reason.encode()


@pytest.mark.parametrize("target", TARGETS)
def test_unchanged_file_is_taken_whole(target, tmp_path, monkeypatch):
    from launchkit.benchmarks.fuzz import mutations, samples, targets, timelines, traces

    for module, name in itertools.product((mutations, targets), ("mutated", "damaged")):
        monkeypatch.setattr(module, name, lambda rng, content: content)
    monkeypatch.setattr(targets, "_changed", lambda rng, content: content)
    for module in (timelines, samples):
        monkeypatch.setattr(module, "damaged", lambda rng, content: content)
    monkeypatch.setattr(timelines, "_changed", lambda rng: timelines.export())
    compact = jsonio.dumps_python_compact
    monkeypatch.setattr(traces, "changed", lambda rng, content, exact: compact(content))
    for module in (mutations, targets):
        monkeypatch.setattr(module, "spelled", lambda rng, content: compact(content))
    counts = Counts(target)
    inputs = 30 if target in RECORDS else 6
    for number in range(inputs):
        run_one(target, f"{number}:{target}:0", tmp_path, counts)
    assert counts.failures == []
    assert counts.taken > 2 * inputs // 3
