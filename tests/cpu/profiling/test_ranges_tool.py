"""annotate under a tool: NVTX loads a small listener, as it would load Nsight Systems."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from subprocesses import in_python

LISTENER = Path(__file__).parents[2] / "data" / "nvtx_listener.c"


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "these tests compile a small NVTX tool: install a C compiler"
    library = tmp_path_factory.mktemp("nvtx") / "listener.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, LISTENER], check=True)
    return library


@pytest.fixture
def events(listener: Path, tmp_path: Path) -> Callable[..., list[str]]:
    def run(code: str, **env: str) -> list[str]:
        out = tmp_path / "events"
        in_python(
            f"from launchkit.profiling import annotate\n{code}",
            NVTX_INJECTION64_PATH=str(listener),
            NVTX_LISTENER_OUT=str(out),
            **env,
        )
        return out.read_text().splitlines() if out.exists() else []

    return run


def test_the_tool_sees_domain_text_category_and_int64_payload(
    events: Callable[..., list[str]],
) -> None:
    code = """
with annotate("block", op="mamba"):
    for layer in (0, -(2**63), 2**63 - 1):
        with annotate("ssd", layer=layer, op="mamba"):
            pass
annotate("step")(len)("")
"""
    no_payload = "payload type 0"
    assert events(code) == [
        "category\tlaunchkit\t1\tmamba",
        f"push\tlaunchkit\tblock\t1\t{no_payload}",
        "push\tlaunchkit\tssd\t1\tint64:0",
        "pop\tlaunchkit",
        f"push\tlaunchkit\tssd\t1\tint64:{-(2**63)}",
        "pop\tlaunchkit",
        f"push\tlaunchkit\tssd\t1\tint64:{2**63 - 1}",
        "pop\tlaunchkit",
        "pop\tlaunchkit",
        "category\tlaunchkit\t2\tstep",
        f"push\tlaunchkit\tstep\t2\t{no_payload}",
        "pop\tlaunchkit",
    ]


def test_the_tool_sees_balanced_ranges_when_an_exception_passes(
    events: Callable[..., list[str]],
) -> None:
    code = """
try:
    with annotate("outer"), annotate("inner"):
        raise KeyError
except KeyError:
    pass
"""
    kinds = [line.split("\t")[0] for line in events(code)]
    assert [kind for kind in kinds if kind != "category"] == ["push", "push", "pop", "pop"]


def test_compiled_code_traces_whole_and_shows_no_range(events: Callable[..., list[str]]) -> None:
    code = """
import torch

@annotate("inner", op="o")
def inner(x):
    return x * 2

def outer(x):
    with annotate("outer", layer=1):
        return inner(x) + 1

compiled = torch.compile(outer, backend="eager", fullgraph=True)
assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
"""
    assert events(code) == []


def test_nvtx_disable_is_honoured(events: Callable[..., list[str]]) -> None:
    assert events("with annotate('x'): pass", NVTX_DISABLE="1") == []


TORCH_THAT_TELLS = {
    "__init__.py": "from torch import cuda, compiler",
    "compiler.py": "def is_dynamo_compiling(): return False",
    "cuda/__init__.py": "from torch.cuda import nvtx",
    "cuda/nvtx.py": (
        "import types\n"
        "_nvtx = types.ModuleType('_nvtx')\n"
        "def range_push(text): print('push', text)\n"
        "def range_pop(): print('pop')\n"
    ),
}

IN_A_RANGE = """
import logging, sys
sys.path.insert(0, {torch!r})
logging.basicConfig(level="WARNING", stream=sys.stdout, format="%(name)s: %(message)s")
from launchkit.profiling import annotate
with annotate("early"): pass
import torch
with annotate("outer", layer=3, op="ssd"), annotate("inner"): pass
"""


def test_a_tool_that_drops_pythons_ranges_is_told_of_and_gets_them_from_torch(
    tmp_path: Path,
) -> None:
    for name, text in TORCH_THAT_TELLS.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = IN_A_RANGE.format(torch=str(tmp_path))
    warning, *told = in_python(code, NVTX_INJECTION64_PATH="/nowhere/tool.so").splitlines()
    assert warning.startswith("launchkit: a profiling tool is attached, but gets no ranges")
    assert told == ["push outer", "push inner", "pop", "pop"]


def test_a_torch_without_nvtx_is_told_of_and_ranges_do_nothing() -> None:
    code = IN_A_RANGE.format(torch="/nowhere") + "print(annotate.__enter__.__name__)"
    told = in_python(code, NVTX_INJECTION64_PATH="/nowhere/tool.so").splitlines()
    assert len(told) == 3
    assert "was built without CUDA" in told[1]
    assert told[2] == "__enter__"


def test_without_a_tool_or_with_nvtx_disabled_nothing_is_said() -> None:
    code = IN_A_RANGE.format(torch="/nowhere").replace("import torch", "")
    assert in_python(code) == ""
    assert in_python(code, NVTX_DISABLE="1", NVTX_INJECTION64_PATH="/nowhere/tool.so") == ""
