"""A tuning shows how far it is: on a terminal, while it runs, and nowhere else."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
import torch
from benching import Bench, grid_of_block, kernel_with, launched_block, too_big

import launchkit
from launchkit import settings
from launchkit.configs import TunedConfig, identify
from launchkit.dispatch.tuning import progress as tuning_progress

pytestmark = pytest.mark.usefixtures("measuring")

TIMES = {16: 3.0, 32: 1.0, 64: too_big()}


class Screen(io.StringIO):
    """What is written to a terminal, or to a file."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    shown = Screen(terminal=True)
    use(monkeypatch, shown)
    return shown


def use(monkeypatch, stream):
    # pytest puts its own stream into sys between a fixture and its test.
    monkeypatch.setattr(tuning_progress, "sys", SimpleNamespace(stderr=stream))


def test_terminal_sees_kernel_key_configs_done_and_the_best_and_then_nothing(screen):
    assert launched_block(kernel_with(Bench(TIMES), name="a.kernel[of mine]"), n=61) == 32
    text = screen.getvalue()
    for part in ("tuning a.kernel[of mine]", "n=61", "3/3", "best 1000.0 us: BLOCK=32"):
        assert part in text
    assert text.rstrip("\r\n").endswith("\x1b[2K")  # the line is erased


def test_next_launch_shows_nothing(screen):
    kernel = kernel_with(Bench(TIMES))
    launched_block(kernel)
    length = len(screen.getvalue())
    launched_block(kernel)
    launched_block(kernel_with(Bench({})))
    assert len(screen.getvalue()) == length


def test_log_of_a_service_sees_nothing(screen):
    screen.terminal = False
    launched_block(kernel_with(Bench(TIMES)))
    assert screen.getvalue() == ""


@pytest.mark.parametrize("stream", [None, object()], ids=["none", "no stream"])
def test_program_without_standard_error_tunes(monkeypatch, stream):
    use(monkeypatch, stream)
    assert launched_block(kernel_with(Bench(TIMES))) == 32


def test_closed_standard_error_is_no_terminal(monkeypatch, screen):
    closed = io.StringIO()
    closed.close()
    use(monkeypatch, closed)
    assert launched_block(kernel_with(Bench(TIMES))) == 32


def test_setting_switches_it_off(screen, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_PROGRESS", "0")
    settings.reload()
    launched_block(kernel_with(Bench(TIMES)))
    assert screen.getvalue() == ""


def test_what_a_program_prints_meanwhile_is_printed(screen, capsys):
    def bench(call, quantiles):
        call()
        print("from the benchmark")  # noqa: T201 - a program's own output
        return [1.0] * 3

    launched_block(kernel_with(bench))
    assert capsys.readouterr().out == "from the benchmark\n" * 3
    assert "from the benchmark" not in screen.getvalue()


def test_tuning_within_a_tuning_has_no_bar_of_its_own(screen):
    inner = kernel_with(Bench(TIMES), name="the.inner")

    def bench(call, quantiles):
        x = torch.empty(64)
        launchkit.launch_autotuned(inner, grid_of_block, x, x, 5, 1)
        call()
        return [1.0] * 3

    launched_block(kernel_with(bench, name="the.outer"))
    assert "the.outer" in screen.getvalue()
    assert "the.inner" not in screen.getvalue()
    launched_block(kernel_with(Bench(TIMES), name="the.next"))
    assert "the.next" in screen.getvalue()


def test_error_while_tuning_leaves_the_terminal_to_the_next_one(screen):
    with pytest.raises(RuntimeError):
        launched_block(kernel_with(Bench({16: RuntimeError("no")})))
    launched_block(kernel_with(Bench(TIMES), name="the.next"))
    assert "the.next" in screen.getvalue()


def test_long_names_and_keys_are_cut():
    assert len(tuning_progress._short("x" * 1000)) == tuning_progress.MAX_TEXT
    assert tuning_progress._tail("package." * 100 + "kernel").endswith("package.kernel")


def test_steps_know_the_best_so_far():
    steps = tuning_progress.Steps()
    slow, fast = (
        TunedConfig.measured(identify({"B": b}), t, reps=1, method="eager")
        for b, t in ((1, 2.0), (2, 1.0))
    )
    failed = TunedConfig.failed(identify({"B": 3}), "no", method="eager")
    seen = []
    for tuned in (failed, slow, fast, failed, slow):
        steps.done(tuned)
        seen.append(steps.best)
    assert seen == [None, slow, fast, fast, fast]


def test_seconds_of_tuning_are_stored_and_add_up(memory_store, monkeypatch):
    readings = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr("launchkit.clock.now_ns", lambda: next(readings))
    launched_block(kernel_with(Bench(TIMES)))
    (first,) = memory_store.records()
    assert first.seconds >= 1.0
    launched_block(kernel_with(Bench({128: 0.5}), blocks=(16, 32, 128)))
    (second,) = memory_store.records()
    assert second.seconds >= first.seconds + 1.0
