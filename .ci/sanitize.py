#!/usr/bin/env python3
"""Run the tests of the C core with the core built under AddressSanitizer and UBSan.

    .ci/sanitize.py [-o FILE] [TEST FILES]

Takes the packages of the Python that runs it (launchkit's extras torch and test; launchkit itself
comes from this checkout) and gcc with its sanitizers. A process a test file, so that a finding in
one keeps no other from running. Exit codes: 0 nothing found, 1 a finding or a failed test.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-O1", "-g", "-std=gnu11", "-fvisibility=hidden", "-fsanitize=address,undefined",
         "-fno-omit-frame-pointer"]  # fmt: skip
# Leaks are for `launchkit bench soak`: CPython itself leaves memory behind at its end. Tests ask for
# more memory than there is, and see what is said then.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}

# What launches on the C core, or misuses it; but what it starts in other programs.
TESTS = (
    "launch/*", "profiling/*", "kernels/test_ssd_op_plan.py", "kernels/test_state_copy_launches.py",
    "tuning/test_tuning_threads.py",
)  # fmt: skip
LEFT_OUT = {"test_install_torch_compile.py", "test_libraries.py", "test_ranges_tool.py"}

CANARY = """
#include <stdlib.h>
#pragma GCC visibility push(default)
int outside(int place) {
  volatile int *four = calloc(4, sizeof(int));
  int read = four[place];
  free((void *)four);
  return read;
}
int overflow(int number) { return number + 1; }
"""


def library(name: str) -> str:
    """Return where gcc has a sanitizer's library."""
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def compile_c(output: Path, *sources: Path) -> None:
    """Compile a shared library with the sanitizers."""
    include = sysconfig.get_paths()["include"]
    names = [str(source) for source in sources]
    command = ["gcc", "-shared", "-fPIC", *FLAGS, f"-I{include}", *names, "-o", str(output), "-ldl"]
    subprocess.run(command, check=True)


def build(work: Path) -> Path:
    """Lay out the package of this checkout under ``work``, its C core instrumented."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "results")
    shutil.copytree(ROOT / "launchkit", work / "launchkit", ignore=ignore)
    for name in ("kernels", "tools", "benchmarks"):
        shutil.copytree(ROOT / name, work / "launchkit" / name, ignore=ignore)
    native = work / "launchkit" / "dispatch" / "native"
    core = native / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    compile_c(core, *sorted(native.glob("*.c")))
    return core


class Sanitized:
    """Runs Python with the sanitizers loaded first and the instrumented package in front."""

    def __init__(self, work: Path) -> None:
        self.environment = {
            **os.environ,
            **OPTIONS,
            "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(work),
            "PYTHONSAFEPATH": "1",
        }

    def run(self, *arguments: str) -> tuple[int, str, list[str]]:
        """Run Python; return its exit status, its output and what the sanitizers reported."""
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=self.environment, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        lines = done.stdout.splitlines()
        found = [
            "\n".join(lines[index : index + 12])
            for index, line in enumerate(lines)
            if ": runtime error: " in line or "ERROR: AddressSanitizer" in line
        ]
        return done.returncode, done.stdout, found


def check_canary(sanitized: Sanitized, work: Path) -> None:
    """See that a read outside and an overflow in C are found here at all."""
    source, made = work / "canary.c", work / "canary.so"
    source.write_text(CANARY, encoding="ascii")
    compile_c(made, source)
    load = f"import ctypes; made = ctypes.CDLL({str(made)!r}); "
    largest = 2 ** (8 * ctypes.sizeof(ctypes.c_int) - 1) - 1
    _, output, findings = sanitized.run("-c", f"{load}made.overflow({largest}); made.outside(4)")
    for what in ("heap-buffer-overflow", "signed integer overflow"):
        if what not in "".join(findings):
            sys.exit(f"no {what} is reported here, so the run would show nothing:\n{output}")


def check_core(sanitized: Sanitized, core: Path) -> None:
    """See that launches take the core that was built here."""
    code = (
        "from launchkit.dispatch import launcher\n"
        "from launchkit.dispatch.native import extension\n"
        "print(extension.active().__file__)"
    )
    status, output, _ = sanitized.run("-c", code)
    if status != 0 or output.strip().splitlines()[-1] != str(core):
        sys.exit(f"the instrumented core is not in use:\n{output}")


def run_file(sanitized: Sanitized, path: Path, work: Path) -> dict[str, Any]:
    """Run one test file; return counts, exit status and findings."""
    report = work / "junit.xml"
    report.unlink(missing_ok=True)
    # Captured in Python only: what C writes to the standard error stream is a finding.
    options = ("-q", "-p", "no:cacheprovider", "--capture=sys", f"--junitxml={report}")
    status, output, findings = sanitized.run("-m", "pytest", *options, str(path.relative_to(ROOT)))
    if status != 0 or findings:
        print(output[-5000:], *findings, sep="\n")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if report.exists():
        suite = next(ET.parse(report).getroot().iter("testsuite"))
        counts = {name: int(suite.get(name, 0)) for name in counts}
    return {"file": path.name, **counts, "status": status, "findings": findings}


def facts() -> dict[str, str]:
    """Return what the run depends on."""
    compiler = subprocess.run(["gcc", "--version"], check=True, capture_output=True, text=True)
    return {
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "compiler": compiler.stdout.splitlines()[0],
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
    }


def main() -> None:
    """Build, check that findings are found, run the files, and write what came of it."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("tests", nargs="*", type=Path, help="test files; default: the C core's")
    parser.add_argument("-o", "--output", type=Path, help="write the result as JSON here")
    options = parser.parse_args()
    folder = ROOT / "tests" / "cpu"
    default = [path for name in TESTS for path in sorted(folder.glob(name)) if path.suffix == ".py"]
    if lost := [*LEFT_OUT.difference(path.name for path in default),
                *(name for name in TESTS if not any(folder.glob(name)))]:  # fmt: skip
        parser.error(
            f"tests/cpu has no {', '.join(lost)}. Correct TESTS and LEFT_OUT in {__file__}."
        )
    kept = [path for path in default if path.name not in LEFT_OUT]
    files = [path.resolve() for path in options.tests] or kept
    start_s, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as made:
        work = Path(made).resolve()
        sanitized = Sanitized(work)
        core = build(work)
        check_canary(sanitized, work)
        check_core(sanitized, core)
        for path in files:
            row = run_file(sanitized, path, work)
            rows.append(row)
            print(f"{row['file']}: {row['tests']} tests, status {row['status']}", flush=True)
    found = sum(len(row["findings"]) for row in rows)
    failed = [row["file"] for row in rows if row["status"] != 0 or row["findings"]]
    if options.output:
        document = {
            "machine": facts(), "flags": FLAGS, "options": OPTIONS, "rows": rows,
            "tests": sum(row["tests"] for row in rows),
            "findings": found,
            "wall_s": round(time.monotonic() - start_s, 1),
        }  # fmt: skip
        options.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.exit(f"findings or failures in {', '.join(map(str, failed))}" if failed else 0)


if __name__ == "__main__":
    main()
