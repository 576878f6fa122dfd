"""``launchkit bench fuzz``: each kind of failure is seen, a seed makes the same input again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
import typer

from launchkit.benchmarks import trials
from launchkit.benchmarks.fuzz import bench, seeds
from launchkit.benchmarks.fuzz import watch as fuzz_watch
from launchkit.benchmarks.fuzz.one_input import Counts, check_records, run_one
from launchkit.benchmarks.fuzz.targets import TARGETS, Target
from launchkit.errors import UsageError
from launchkit.tools import bench_fuzz


def failures(monkeypatch, tmp_path, take, **options):
    """What is counted as a failure where ``take`` is the reader."""
    target = Target(lambda rng: {"a.json": b"{}"}, take)
    monkeypatch.setitem(TARGETS, "planted", target)
    counts = Counts("planted")
    run_one("planted", "1:planted:0", tmp_path, counts, **options)
    return [failure["error"] for failure in counts.failures]


def test_exception_that_no_reader_documents_is_a_failure(monkeypatch, tmp_path):
    def take(folder):
        raise KeyError("num_warps")

    assert failures(monkeypatch, tmp_path, take) == ["KeyError: 'num_warps'"]


@pytest.mark.parametrize("name", ["in/b.json", "in/a.json", "outside"])
def test_file_that_is_written_is_a_failure(monkeypatch, tmp_path, name):
    def take(folder):
        (folder / ".." / name).write_text("written")
        return (), ()

    assert "files were changed" in failures(monkeypatch, tmp_path, take)[0]


def broken_records():
    record = seeds.records()[0]
    first, *others = record.configs

    def forged(config, **changes):
        made = replace(config)
        for name, value in changes.items():
            object.__setattr__(made, name, value)
        return made

    slow = forged(first, median_us=float("inf"), p80_us=None)
    nothing = forged(first, median_us=None, p20_us=None, p80_us=None)
    return [
        forged(record, configs=(slow, *others)),
        forged(record, configs=(nothing, *others)),
        forged(record, configs=tuple(others), chosen=others[1].config),
    ]


@pytest.mark.parametrize("record", broken_records())
def test_record_that_breaks_a_rule_is_a_failure(monkeypatch, tmp_path, record):
    assert failures(monkeypatch, tmp_path, lambda folder: ([record], ()))


def test_records_of_the_seeds_pass_every_rule():
    check_records(seeds.records())


WATCHED = """
import os, pathlib, sys
from launchkit.benchmarks.fuzz.watch import Watch
inside, outside = map(pathlib.Path, sys.argv[1:])
open(outside / "old", "w").close()
watch = Watch(inside)
def seen(act):
    with watch.on() as found:
        act()
    return bool(found)
print([seen(act) for act in (
    lambda: open(inside / "a", "w").close(),
    lambda: open(outside / "old").close(),
    lambda: open(outside / "a", "w").close(),
    lambda: (outside / "b").mkdir(),
    lambda: (inside / ".." / "c").symlink_to("d"),
    lambda: os.rename(inside / "a", outside / "a2"),
    lambda: os.remove(outside / "old"),
    lambda: os.system("true"),
    lambda: eval("1"),
    lambda: __import__("this_is_not_there", globals()) if 0 else __import__("colorsys"),
)])
"""


def test_worker_sees_writes_elsewhere_and_code(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", WATCHED, tmp_path / "in", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str([False, False] + [True] * 8), done.stderr


def test_worker_loads_no_torch():
    code = "import sys, launchkit.benchmarks.fuzz.bench; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


def test_input_that_takes_too_long_is_a_failure(monkeypatch, tmp_path):
    monkeypatch.setattr(fuzz_watch, "LIMIT_S", 0.05)
    monkeypatch.setattr(fuzz_watch.sys, "addaudithook", lambda hook: None)

    def take(folder):
        time.sleep(30)

    watch = fuzz_watch.Watch(tmp_path).on
    assert "TimeoutError" in failures(monkeypatch, tmp_path, take, watch=watch)[0]


STANDS_STILL = """
import ctypes, pathlib, signal, sys
from launchkit.benchmarks.fuzz import watch
watch.LIMIT_S = watch.DEAD_S = 0.1
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
with watch.Watch(pathlib.Path(sys.argv[1])).on():
    ctypes.PyDLL(None).pause()  # holds the interpreter
"""


def test_reader_that_stands_still_in_native_code_ends_its_process(tmp_path):
    command = [sys.executable, "-c", STANDS_STILL, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Timeout" in done.stderr


def test_input_that_a_process_dies_of_is_named(monkeypatch, tmp_path):
    def take(folder):
        raise SystemExit

    monkeypatch.setitem(TARGETS, "planted", Target(lambda rng: {"a.json": b"{}"}, take))
    monkeypatch.setattr(bench, "_warm_up", lambda target: None)
    watch = SimpleNamespace(on=contextlib.nullcontext)
    monkeypatch.setattr(bench, "_watch", lambda: watch)
    place, notes = tmp_path / "place", tmp_path / "notes"
    monkeypatch.setattr(bench, "_place", lambda: SimpleNamespace(name=str(place)))
    place.mkdir()
    notes.mkdir()
    with pytest.raises(SystemExit):
        bench._run(str(notes), trials.Chunk("planted", 7, 1, 3))
    assert "were read: 3:planted:7." in bench._died(str(notes))


def test_what_is_seen_of_a_reader_is_a_failure(monkeypatch, tmp_path):
    def watch():
        return contextlib.nullcontext(["open /etc/x", "exec 'code'"])

    found = failures(monkeypatch, tmp_path, lambda folder: ((), ()), watch=watch)
    assert found == ["it did: open /etc/x; exec 'code'"]


@pytest.mark.parametrize("target", TARGETS)
def test_seed_makes_the_same_input_and_another_seed_others(target):
    made = [str(TARGETS[target].make(Random(f"{seed}"))) for seed in (1, 1, *range(2, 12))]
    assert made[0] == made[1]
    assert len(set(made[1:])) > 5


def test_result_counts_every_input(tmp_path, capsys):
    output = tmp_path / "out.json"
    bench_fuzz.fuzz(inputs=21, target=["vllm", "lock"], seed=5, processes=1, output=output)
    document = json.loads(output.read_bytes())
    assert [(row["target"], row["inputs"]) for row in document["rows"]] == [
        ("vllm", 11),
        ("lock", 10),
    ]
    assert (document["inputs"], document["failures"]) == (21, 0)
    assert document["accepted"] == sum(row["accepted"] for row in document["rows"])
    assert document["peak_bytes"] > 2**20
    assert "21 inputs, 0 failures" in " ".join(capsys.readouterr().out.split())


def test_failure_is_printed_with_its_seed_and_is_exit_code_1(monkeypatch, capsys):
    def take(folder):
        raise KeyError("num_warps")

    monkeypatch.setitem(TARGETS, "vllm", replace(TARGETS["vllm"], take=take))
    with pytest.raises(typer.Exit) as left:
        bench_fuzz.fuzz(replay="5:vllm:3")
    assert left.value.exit_code == 1
    assert "5:vllm:3: KeyError: 'num_warps'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs": 0}, "--inputs must be at least 1"),
        ({"processes": 0}, "--processes must be at least 1"),
        ({"target": ["no_such"]}, "no target named no_such"),
        ({"replay": "1:no_such:2"}, "is no input's seed"),
        ({"replay": "vllm"}, "is no input's seed"),
    ],
)
def test_bad_use_is_refused_before_a_process_starts(options, said, monkeypatch):
    monkeypatch.setattr(trials, "ProcessPoolExecutor", lambda *_: pytest.fail("started"))
    with pytest.raises(UsageError, match=said):
        bench_fuzz.fuzz(**{"processes": 1, **options})


def test_what_is_left_in_the_sandbox_is_removed(tmp_path):
    run_one("store", "1:store:5", tmp_path, Counts("store"))
    assert os.listdir(tmp_path) == []
