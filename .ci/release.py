#!/usr/bin/env python3
"""Check what a release would be: build it, look into it, and install it with every Python.

    .ci/release.py [--dist DIRECTORY] [--torch-present] [PYTHON ...]

PYTHON are interpreters; by default python3.10 to python3.13, those that are found. With the first
the source archive, with each other one a wheel that is built from it is installed into a fresh
environment with torch, and made to launch. With the Python that runs this a checkout in editable
mode, and the extras without torch, are installed too. Takes some ten minutes.

PIP_EXTRA_INDEX_URL should name PyTorch's index of CPU builds, or torch brings several GB of CUDA
along. With --torch-present each PYTHON's environment lends its torch and Triton instead, and where
it has none nothing is launched.
Exit codes: 0 all passed, 1 something did not, 2 bad use.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("python3.10", "python3.11", "python3.12", "python3.13")
MAPPED = {"launchkit": "launchkit", "kernels": "launchkit/kernels", "tools": "launchkit/tools",
          "benchmarks": "launchkit/benchmarks"}  # fmt: skip
DATA = (
    "launchkit/py.typed",
    "launchkit/hostonly/stub_cuda.c",
    "launchkit/profiling/hook/sitecustomize.py",
    "launchkit/profiling/report/report.html.j2",
    "launchkit/service/web/static/page.css",
    "launchkit/service/web/templates/base.html",
)
NOT_IN_A_WHEEL = ("tests/", "benchmarks/", "kernels/", "tools/", "docs/")


class CheckFailedError(Exception):
    """Something that a release must do did not work."""


def must(holds: bool, what: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise CheckFailedError(what)


class Runner:
    """Runs commands away from the checkout, with directories of their own for all that they keep."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.home = work / "home"
        self.home.mkdir()
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LAUNCHKIT_")},
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TRITON_CACHE_DIR": str(work / "triton"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_DATA_HOME": str(self.home / "data"),
            # Downloads stay where the user's pip has them.
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip"),
        }

    def run(self, *command: str | Path, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command and return its output; raises CheckFailedError with the end of it."""
        shown = " ".join(map(str, command))
        print("+", shown, flush=True)
        done = subprocess.run(
            [str(part) for part in command], cwd=self.home, env=self.environment, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        end = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        must(done.returncode in codes, f"{shown}: exit code {done.returncode}\n{end}")
        must("Traceback" not in done.stderr, f"{shown} printed a traceback\n{end}")
        return done.stdout

    def environment_of(self, python: str | Path, name: str, *packages: str | Path) -> Path:
        """Make a virtual environment with these packages; return its folder of programs."""
        self.run(python, "-m", "venv", self.work / name)
        programs = self.work / name / "bin"
        if packages:
            self.run(programs / "pip", "install", "-q", *packages)
        return programs


def checkout(work: Path) -> Path:
    """Copy what git tracks, so that nothing else can slip in."""
    copy = work / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return copy


def build(runner: Runner, source: Path, dist: Path) -> Path:
    """Build the source archive, and from it a wheel; return the archive."""
    programs = runner.environment_of(sys.executable, "tools", "build", "twine")
    runner.run(programs / "python", "-m", "build", "--outdir", dist, source)
    archives, wheels = list(dist.glob("*.tar.gz")), list(dist.glob("*.whl"))
    must(len(archives) == len(wheels) == 1, f"built {sorted(dist.iterdir())}")
    runner.run(programs / "twine", "check", "--strict", *archives, *wheels)
    check_archive(archives[0], source)
    check_wheel(wheels[0], source)
    return archives[0]


def check_archive(archive: Path, source: Path) -> None:
    """See that the source archive has every C file, and what its wheel is built from."""
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE"}
    wanted |= {str(path.relative_to(source)) for path in source.glob("launchkit/**/*.[ch]")}
    must(wanted <= names, f"{archive.name} lacks {sorted(wanted - names)}")


def check_wheel(wheel: Path, source: Path) -> None:
    """See that the wheel has every module where it is imported from, its data, and no more."""
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        f"{place}/{path.relative_to(source / folder)}"
        for folder, place in MAPPED.items()
        for path in (source / folder).rglob("*.py")
    }
    wanted = modules | set(DATA)
    must(wanted <= names, f"{wheel.name} lacks {sorted(wanted - names)}")
    must(any(re.search(r"native/_core\..*\.so$", name) for name in names),
         f"{wheel.name} was built without the C core; is there a C compiler?")  # fmt: skip
    surplus = [name for name in names if name.startswith(NOT_IN_A_WHEEL) or name.endswith(".pyc")]
    must(not surplus, f"{wheel.name} has {surplus}")


def constraints(source: Path, version: str) -> Path:
    """Return the constraints for a Python: Triton 3.9 has no wheels for 3.10."""
    older = version.startswith("3.10.")
    return source / "constraints" / ("cpu-triton36.txt" if older else "cpu.txt")


def check_python(
    runner: Runner, python: str, archive: Path, source: Path, *, as_wheel: bool, install_torch: bool
) -> str:
    """Install for one Python, a wheel or from source, and use it; return what was found."""
    version = runner.run(python, "-c", "import platform; print(platform.python_version())").strip()
    name = f"python-{version}"
    programs = runner.environment_of(python, name)
    package = wheel_of(runner, programs, archive) if as_wheel else archive
    wanted = f"{package}[torch,bench]" if install_torch else package
    runner.run(programs / "pip", "install", "-q", "-c", constraints(source, version), wanted)
    launches = install_torch or lend_torch(runner, python, programs)
    found = check_commands(runner, programs, archive)
    if not launches:
        return "no torch, nothing was launched"
    smoke = json.loads(runner.run(programs / "python", source / ".ci" / "release_smoke.py"))
    must(smoke["launchkit"] == found, f"the package says {smoke['launchkit']}, it is {found}")
    if not as_wheel:
        runner.run(programs / "launchkit", "bench", "launch", "--case", "noop_0",
                   "--rounds", "3", "--launches", "50")  # fmt: skip
    shutil.rmtree(runner.work / name)
    core = smoke["core"] if smoke["core"] == "C" else f"Python ({smoke['core']})"
    return f"torch {smoke['torch']}, Triton {smoke['triton']}, core: {core}"


def wheel_of(runner: Runner, programs: Path, archive: Path) -> Path:
    """Return a wheel for the Python of an environment, built from the source archive."""
    wheels = Path(tempfile.mkdtemp(dir=runner.work, prefix="wheels-"))
    runner.run(programs / "pip", "wheel", "-q", "--no-deps", "-w", wheels, archive)
    [wheel] = wheels.glob("*.whl")
    return wheel


def lend_torch(runner: Runner, python: str, programs: Path) -> bool:
    """Let an environment find what it has not in that of ``python``; tell whether torch is there."""
    site = runner.run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])")
    lender = Path(site.strip())
    if not (lender / "torch").is_dir() or not (lender / "triton").is_dir():
        return False
    [own] = (programs.parent / "lib").glob("*/site-packages")
    # Behind its own packages, whose newer releases count.
    (own / "torch_of_another_environment.pth").write_text(f"{lender}\n")
    return True


def check_commands(runner: Runner, programs: Path, archive: Path) -> str:
    """See that the command works; return its version, which is the archive's."""
    version = runner.run(programs / "launchkit", "--version").split()[-1]
    must(archive.name == f"launchkit_triton-{version}.tar.gz", f"{archive.name} says {version}")
    must("bench" in runner.run(programs / "launchkit", "--help"), "--help lists no commands")
    report = json.loads(runner.run(programs / "launchkit", "doctor", "--json", codes=(0, 1)))
    must(report["versions"]["launchkit"] == version, f"doctor says {report['versions']}")
    return version


def check_editable(runner: Runner, dist: Path, source: Path) -> str:
    """Install a checkout in editable mode: kernels and tools are mapped into the package."""
    programs = runner.environment_of(sys.executable, "editable", "-e", source)
    runner.run(programs / "launchkit", "configs", "list", codes=(1,))
    where = runner.run(programs / "python", "-c", "import launchkit.tools as t; print(t.__file__)")
    must(Path(where.strip()).is_relative_to(source), f"launchkit.tools is {where}")
    return "installed, and imports from the checkout"


def check_without_torch(runner: Runner, dist: Path, source: Path) -> str:
    """Serve configs and read a capture where torch is not installed."""
    [wheel] = dist.glob("*.whl")
    programs = runner.environment_of(sys.executable, "service", f"{wheel}[service,profile]")
    must(not list((programs.parent / "lib").glob("*/site-packages/torch")), "torch came along")
    capture = source / "tests" / "data" / "nsys" / "cpu_only_2022.4.sqlite.gz"
    exported = runner.home / "capture.sqlite"
    exported.write_bytes(gzip.decompress(capture.read_bytes()))
    json.loads(runner.run(programs / "launchkit", "report", exported, "--json", "-"))
    url = f"sqlite:///{runner.home / 'service.db'}"
    runner.run(programs / "launchkit", "serve", "token", "create", "ci", "--database", url)
    answered = serve(runner, programs / "launchkit", url)
    must(answered == b"ok\n", f"/healthz said {answered!r}")
    return "served, and reported a capture"


def serve(runner: Runner, command: Path, database: str) -> bytes:
    """Start the config service, ask whether it lives, and stop it; return the answer."""
    started = [str(command), "serve", "--port", "0", "--json", "--quiet", "--database", database]
    print("+", *started, flush=True)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with subprocess.Popen(
        started, cwd=runner.home, env=runner.environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["url"]
            with direct.open(f"{url}/healthz", timeout=20) as answer:
                body: bytes = answer.read()
        finally:
            server.send_signal(signal.SIGTERM)
        must(server.wait(timeout=20) == 0, f"the server ended with {server.returncode}")
    return body


def check_all(
    runner: Runner, pythons: list[str], dist: Path, *, install_torch: bool
) -> dict[str, str]:
    """Make every check, whatever another found; return what each found or how it failed."""
    source = checkout(runner.work)
    archive = build(runner, source, dist)
    checks: dict[str, Callable[[], str]] = {
        python: partial(
            check_python,
            runner,
            python,
            archive,
            source,
            as_wheel=python != pythons[0],
            install_torch=install_torch,
        )
        for python in pythons
    }
    for check in (check_editable, check_without_torch):
        checks[check.__name__.removeprefix("check_")] = partial(check, runner, dist, source)
    results = {}
    for name, each in checks.items():
        try:
            results[name] = f"passed: {each()}"
        except (CheckFailedError, OSError, ValueError) as error:
            results[name] = f"FAILED: {error}"
        print(f"== {name}: {results[name]}", flush=True)
    return results


def interpreters(asked: list[str]) -> list[str]:
    """Return where the interpreters are, each once; none if one that was asked for is not there."""
    found = [shutil.which(name) for name in asked or PYTHONS]
    if asked and None in found:
        return []
    # Commands run elsewhere: a path from here would lead to nothing there.
    return list(dict.fromkeys(str(Path(place).absolute()) for place in found if place))


def takes_a_release(dist: Path) -> bool:
    """Tell whether what is built would stand alone in a directory, which need not be there."""
    built = any(dist.glob("*.tar.gz")) or any(dist.glob("*.whl"))
    return not built and (dist.is_dir() or not dist.exists())


def main() -> int:
    """Check a release; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dist", type=Path, help="Keep the source archive and the wheel here.")
    parser.add_argument("--torch-present", action="store_true", help="Install no torch.")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    options = parser.parse_args()
    pythons = interpreters(options.pythons)
    if not pythons:
        parser.error("not every interpreter was found; give some that are there")
    if options.dist and not takes_a_release(options.dist):
        parser.error(f"{options.dist} is no directory, or has another release; give a new one")
    with tempfile.TemporaryDirectory(prefix="launchkit-release-") as work:
        dist = options.dist.resolve() if options.dist else Path(work) / "dist"
        dist.mkdir(parents=True, exist_ok=True)
        try:
            runner, install = Runner(Path(work)), not options.torch_present
            results = check_all(runner, pythons, dist, install_torch=install)
        except (CheckFailedError, OSError, subprocess.CalledProcessError) as error:
            results = {"build": f"FAILED: {error}"}
    print("\n".join(f"{name}: {result}" for name, result in results.items()))
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
