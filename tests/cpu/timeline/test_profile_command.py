"""launchkit profile: real captures of programs whose ranges and frames are known, and a stand-in nsys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import captures
import pytest
from typer.testing import CliRunner

from launchkit import settings
from launchkit.profiling.timeline import analyse, read_timeline
from launchkit.tools import cli, profile_runs

KNOWN = """
import sys, threading
import launchkit
from launchkit import clock

def spin(ms):
    end = clock.now_ns() + ms * 1_000_000
    while clock.now_ns() < end:
        pass

def dynamic_func(ms):
    end = clock.now_ns() + ms * 1_000_000
    while clock.now_ns() < end:
        pass

def work():
    for _ in range(24):
        with launchkit.annotate("step"):
            with launchkit.annotate("binds", layer=3):
                dynamic_func(30)
            spin(20)

def idle():
    with launchkit.annotate("idle"):
        stop.wait()

stop = threading.Event()
thread = threading.Thread(target=idle)
thread.start()
work()
stop.set()
thread.join()
print("its output", file=sys.stdout)
"""


def run(*arguments):
    return CliRunner().invoke(cli.app, ["profile", *map(str, arguments)])


def in_shell(*arguments, cwd=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "launchkit", "profile", *map(str, arguments)],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False, cwd=cwd,
    )  # fmt: skip


def script(folder, text):
    path = folder / "known.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """A capture of KNOWN under py-spy: the command's outcome, and its analysis.

    Where the machine is too busy for py-spy, it is taken again.
    """
    for _ in range(3):
        folder = tmp_path_factory.mktemp("sampled")
        done = in_shell("--py-spy", "--rate", 100, "-o", folder / "out", "--json",
                        folder / "did.json", "--", script(folder, KNOWN))  # fmt: skip
        assert done.returncode == 0, done.stderr
        did = json.loads((folder / "did.json").read_text())
        assert did["files"] == [str(folder / "out" / "samples.json.gz")], did
        analysis = analyse(read_timeline(did["files"][0]))
        if not any("fell behind" in warning for warning in analysis.warnings):
            break
    return done, did, analysis


def shares(analysis, name):
    rows = analysis.python.filter(analysis.python["range"] == name)
    return {row["name"]: row for row in rows.iter_rows(named=True)}


def test_samples_fall_into_the_ranges_and_buckets_of_the_program(sampled) -> None:
    _, _, analysis = sampled
    binds, step, idle = (shares(analysis, name) for name in ("binds", "step", "idle"))
    assert max(binds, key=lambda name: binds[name]["count"]) == "Triton binder"
    assert binds["Triton binder"]["share"] > 0.6
    assert 0.2 < step["Triton binder"]["share"] < 0.9
    assert step["own code"]["share"] > 0.1
    assert max(idle, key=lambda name: idle[name]["count"]) == "waiting"
    assert "Triton binder" not in idle
    for row in (*binds.values(), *step.values()):
        assert row["low"] < row["share"] < row["high"] or row["share"] in (0, 1)


def test_leaf_frames_are_named_by_range(sampled) -> None:
    _, _, analysis = sampled
    frames = analysis.frames.filter(analysis.frames["range"] == "binds")
    assert frames["name"][0].startswith("dynamic_func (")


def test_ranges_of_the_run_are_all_there_and_none_of_their_times_is_reported(sampled) -> None:
    _, did, analysis = sampled
    timeline = read_timeline(did["files"][0])
    counts = dict(timeline.ranges.group_by("name").len().rows())
    assert counts == {"step": 24, "binds": 24, "idle": 1}
    assert timeline.ranges.filter(timeline.ranges["name"] == "binds")[
        "payload"
    ].unique().to_list() == ["3"]
    assert timeline.source.calibration["clock_uncertainty_ns"] < 20e6
    assert analysis.ranges.is_empty()
    assert any("no time is taken" in warning for warning in analysis.warnings)
    assert timeline.counts["samples"].dropped["of the capture itself"] > 0


def test_output_of_the_program_goes_past_pyspys(sampled) -> None:
    done, did, _ = sampled
    assert done.stdout == "its output\n"
    assert "Samples:" in done.stderr
    assert "Captured. To read it: launchkit report " in done.stderr
    assert did["mode"] == "py-spy"
    assert did["commands"][0][1] == "record"


LAUNCHING = """
import sys
import torch, triton
import triton.language as tl
import launchkit
from launchkit import hostonly

@triton.jit
def kernel(x, n, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)

with hostonly.activate(arch=90):
    x = torch.empty(64)
    for _ in range(5):
        with launchkit.annotate("layer", layer=2, op="mix"):
            launchkit.launch(kernel, (1,), x, 64, 64)
        torch.add(x, x)
sys.exit(7)
"""


def quiet():
    return {"TRITON_DEFAULT_FP_FUSION": "1"}


def test_launches_and_ranges_of_a_program_are_recorded_and_its_exit_code_kept(tmp_path) -> None:
    done = in_shell("-o", tmp_path / "out", "--", script(tmp_path, LAUNCHING), **quiet())
    assert done.returncode == 7, done.stderr
    assert "the program ended with exit code 7\n" in done.stderr
    (file,) = (tmp_path / "out").glob("launches-*.json.gz")
    timeline = read_timeline(file)
    assert timeline.ranges["name"].to_list() == ["layer"] * 5
    assert timeline.calls["name"].to_list() == ["__main__.kernel"] * 5


def test_torch_traces_the_program_with_its_ranges(tmp_path) -> None:
    done = in_shell("--torch", "-o", tmp_path / "out", "--", script(tmp_path, LAUNCHING), **quiet())
    assert done.returncode == 7, done.stderr
    (file,) = (tmp_path / "out").glob("trace-*.json.gz")
    ranges = read_timeline(file).ranges
    assert ranges["name"].to_list().count("aten::add") == 5
    own = ranges.filter(domain="launchkit").select("name", "category", "payload").rows()
    assert own == [("layer", "mix", "2")] * 5


@pytest.mark.parametrize(
    ("option", "told"),
    [([], "Give --install"), (["--install"], "no Triton kernel was launched: see that")],
)
def test_a_profile_without_launches_says_what_to_try_that_was_not_tried(
    option, told, tmp_path
) -> None:
    path = script(tmp_path, "import triton\n")
    done = in_shell(*option, "-o", tmp_path / "out", "--", path)
    assert done.returncode == 0, done.stderr
    assert told in done.stderr
    assert "exit code" not in done.stderr
    assert ("Give --install" in done.stderr) is not bool(option)


NOTHING = """
import os, sys
print(os.environ["LAUNCHKIT_PROFILE"].split(":")[0], sys.argv[1:])
"""


def test_arguments_are_the_programs_and_nothing_captured_is_a_finding(tmp_path) -> None:
    path = script(tmp_path, NOTHING)
    for between in ([], ["--"]):
        out = tmp_path / f"out{len(between)}"
        done = in_shell("-o", out, *between, path, "--json", "-o", "x")
        assert done.stdout == "launches ['--json', '-o', 'x']\n"
        assert done.returncode == 1
        assert "no process imported Triton" in done.stderr


def test_a_sitecustomize_of_the_program_still_runs(tmp_path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = __name__\n")
    path = script(tmp_path, "import sys\nprint(customized, 'hook' in str(sys.path[0]))\n")
    behind = os.pathsep.join([str(own), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = in_shell("-o", tmp_path / "out", path, PYTHONPATH=behind)
    assert done.stdout == "sitecustomize False\n", done.stderr


def test_a_program_that_is_killed_has_the_shells_exit_code(tmp_path) -> None:
    path = script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    assert in_shell("-o", tmp_path / "out", path).returncode == 128 + signal.SIGTERM


NSYS = """#!{python}
import os, shutil, sys
with open({log!r}, "a") as log:
    log.write(repr(sys.argv[1:]) + "\\n")
if sys.argv[1] == "--version":
    print("NVIDIA Nsight Systems version {version}.54-234433681190v0")
elif sys.argv[1] == "profile":
    (output,) = [each.split("=", 1)[1] for each in sys.argv if each.startswith("--output=")]
    open(output + ".nsys-rep", "w").close()
    sys.exit(5 if "--fail" in sys.argv else 0)
elif sys.argv[1] == "export":
    (output,) = [each.split("=", 1)[1] for each in sys.argv if each.startswith("--output=")]
    if {sample!r}:
        shutil.copy({sample!r}, output)
    else:
        sys.exit("no importer")
"""


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    """A stand-in for nsys on the PATH, of a version; returns the words of each call so far."""
    log = tmp_path / "calls"

    def made(version="2025.3.2", sample=None):
        sample = str(captures.nsys_sample()) if sample is None else sample
        path = tmp_path / "bin" / "nsys"
        path.parent.mkdir()
        text = NSYS.format(python=sys.executable, log=str(log), version=version, sample=sample)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
        return lambda: [eval(line) for line in log.read_text().splitlines()]

    return made


def test_nsys_profiles_then_exports_what_the_report_reads(nsys, tmp_path) -> None:
    calls, out = nsys(), tmp_path / "out dir"
    result = run("--nsys", "-o", out, "--range", "step", "--", "python", "x.py", "--nsys")
    assert result.exit_code == 0, result.output
    version, profiled, exported = calls()
    assert version == ["--version"]
    assert profiled[0] == "profile"
    assert f"--output={out / 'capture'}" in profiled
    assert "--nvtx-capture=step@launchkit" in profiled
    assert profiled[-3:] == ["python", "x.py", "--nsys"]
    assert exported[-1] == str(out / "capture.nsys-rep")
    assert read_timeline(out / "capture.sqlite").ranges.height > 0


def test_a_pair_that_loses_ranges_is_named_before_the_capture(nsys, tmp_path, monkeypatch) -> None:
    nsys(version="2023.4.4")
    monkeypatch.setattr(profile_runs.capturing, "nvtx_release", lambda: "0.2.13")
    result = run("--nsys", "-o", tmp_path / "out", "--", "python", "x.py")
    assert "2023.4.4 records no range of nvtx 0.2.13" in result.output
    assert "0.2.11" in result.output


def test_the_programs_exit_code_comes_through_nsys_and_an_export_that_fails_is_said(
    nsys, tmp_path
) -> None:
    nsys(sample="")
    result = run("--nsys", "-o", tmp_path / "out", "--", "python", "x.py", "--fail")
    assert result.exit_code == 5
    assert "could not export" in result.output
    assert "no importer" in result.output


def test_a_dry_run_prints_the_commands_and_touches_nothing(tmp_path) -> None:
    out = tmp_path / "out"
    result = run("--nsys", "--dry-run", "-o", out, "--", "python", "a b.py")
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first.startswith("nsys profile --trace=cuda,nvtx --cuda-graph-trace=node ")
    assert first.endswith("python 'a b.py'")
    assert second.startswith("nsys export --type=sqlite ")
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--nsys", "--torch", "--", "x"], "one of --nsys"),
        (["--native", "--", "x"], "belong to --py-spy"),
        (["--range", "a", "--", "x"], "belong to --nsys"),
        (["--py-spy", "--rate", "0", "--", "x"], "from 1 to 10000"),
        (["-o", "{full}", "--", "x"], "is not empty"),
        (["-o", "{new}", "--", "/no/such/program"], "cannot be run"),
    ],
)
def test_bad_use_says_what_to_do(arguments, told, tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    places = {"full": str(tmp_path / "full"), "new": str(tmp_path / "new")}
    result = run(*(each.format(**places) for each in arguments))
    assert told in str(result.exception)
    assert str(result.exception).rstrip().endswith(".")


def test_what_nsys_needs_is_said_where_there_is_none(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("--nsys", "-o", tmp_path / "out", "--", "x")
    assert "not on the PATH" in str(result.exception)
    assert "capture with --torch" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["samples:/x", "launches", "nsys:/x", "samples@0:/x", "torch:"])
def test_a_request_that_is_none_is_refused(text, monkeypatch) -> None:
    monkeypatch.setenv("LAUNCHKIT_PROFILE", text)
    with pytest.raises(settings.UsageError, match="LAUNCHKIT_PROFILE"):
        settings.profile_request()


@pytest.mark.parametrize("text", ["samples@250:/a:b", "launches:/x y", "torch:rel"])
def test_a_request_comes_back_as_it_was_written(text, monkeypatch) -> None:
    monkeypatch.setenv("LAUNCHKIT_PROFILE", text)
    found = settings.profile_request()
    assert found is not None
    assert found.text() == text
