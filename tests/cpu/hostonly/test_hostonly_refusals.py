"""Where host-only mode cannot work it says why, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launchkit import hostonly, settings
from launchkit.errors import HostOnlyError


@pytest.fixture(autouse=True)
def left() -> Iterator[None]:
    hostonly.deactivate()
    yield
    hostonly.deactivate()


def refused(**arguments: Any) -> HostOnlyError:
    with pytest.raises(HostOnlyError) as caught:
        hostonly.activate(**arguments)
    assert not hostonly.is_active()
    return caught.value


def in_fresh_process(code: str, **environment: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\n")[:-1]


REFUSE = """
from launchkit import hostonly
from launchkit.errors import HostOnlyError
try:
    hostonly.activate()
except HostOnlyError as error:
    print(error.fields["reason"])
    print(str(error).splitlines()[-1])
"""


@pytest.mark.parametrize("arch", [0, 75, 91, 900, True, 90.0, "90", None])
def test_an_unknown_arch_is_refused_with_the_known_ones(arch: Any) -> None:
    error = refused(arch=arch)
    assert error.fields == {"reason": "arch", "arch": arch}
    assert str(error).endswith("Use one of 80, 86, 89, 90, 100, 103, 120.")


@pytest.mark.parametrize("devices", [0, -1, 65, True, 1.0])
def test_a_wrong_number_of_devices_is_refused(devices: Any) -> None:
    assert refused(devices=devices).fields == {"reason": "devices", "devices": devices}


def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("CC", raising=False)
        patch.setenv("PATH", str(tmp_path))
        settings.reload()
        error = refused()
    settings.reload()
    assert error.fields["reason"] == "no_compiler"
    assert "Install gcc" in str(error)


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("CC", "no-such-compiler")
        settings.reload()
        error = refused()
    settings.reload()
    assert error.fields == {"reason": "no_compiler", "compiler": "no-such-compiler"}


def test_a_compiler_that_fails_shows_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 'no stdint.h here' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("CC", str(compiler))
        settings.reload()
        error = refused(cache_dir=tmp_path / "cache")
    settings.reload()
    assert error.fields["reason"] == "compile"
    assert "no stdint.h here" in str(error)
    assert [found.name for found in (tmp_path / "cache").rglob("*") if found.is_file()] == []


@pytest.mark.parametrize("content", ["#!/bin/sh\n", "no program"])
def test_a_compiler_that_makes_nothing_is_what_is_blamed(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text(content)
    compiler.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("CC", str(compiler))
        settings.reload()
        error = refused(cache_dir=tmp_path / "cache")
    settings.reload()
    assert error.fields["reason"] == "compile"
    assert str(error).endswith("Set CC to a working C compiler with its C library headers.")


def test_a_damaged_library_says_what_to_delete(tmp_path: Path) -> None:
    code = f"from launchkit import hostonly\nhostonly.activate(cache_dir={str(tmp_path)!r})"
    in_fresh_process(code)
    [library] = tmp_path.glob("stub-*/libcuda.so.1")
    library.write_bytes(b"")
    lines = in_fresh_process(REFUSE.replace("activate()", f"activate(cache_dir={str(tmp_path)!r})"))
    assert lines == ["stub", lines[1]]
    assert lines[1].endswith(f"Delete {library.parent}, and it will be compiled again.")


def test_a_user_without_a_home_is_told_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: Path("~", name))
    assert str(refused()).endswith("Or pass cache_dir=.")


def test_a_cache_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = refused(cache_dir=tmp_path / "file")
    assert error.fields == {"reason": "cache_dir", "cache_dir": str(tmp_path / "file")}


def test_a_driver_that_is_already_loaded_is_refused(tmp_path: Path) -> None:
    source, library = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
    source.write_text("int cuInit(unsigned flags) { return flags; }\n")
    soname = "-Wl,-soname,libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", soname, "-o", library, source], check=True)
    lines = in_fresh_process(f"import ctypes\nctypes.CDLL({str(library)!r})\n{REFUSE}")
    assert lines[0] == "real_driver"
    assert str(library) in lines[1]
    assert "PyTorch's CPU build" in lines[1]  # torch's CUDA build loads the driver at import


def test_a_process_that_sees_a_gpu_is_refused() -> None:
    lines = in_fresh_process(f"import torch\ntorch.cuda.device_count = lambda: 2\n{REFUSE}")
    assert lines[0] == "real_device"
    assert "Set CUDA_VISIBLE_DEVICES" in lines[1]


def test_the_interpreter_is_refused() -> None:
    lines = in_fresh_process(REFUSE, TRITON_INTERPRET="1")
    assert lines[0] == "interpreter"


def test_without_triton_it_says_what_to_install() -> None:
    lines = in_fresh_process(f"import sys\nsys.modules['triton'] = None\n{REFUSE}")
    assert lines[0] == "no_triton"
    assert lines[1].endswith("Install launchkit-triton[torch].")


def test_importing_the_package_imports_neither_torch_nor_triton() -> None:
    lines = in_fresh_process(
        "import sys\nfrom launchkit import hostonly\n"
        "print(hostonly.is_active(), hostonly.launches(), hostonly.dropped())\n"
        "print([name for name in ('torch', 'triton') if name in sys.modules])"
    )
    assert lines == ["False [] 0", "[]"]


def test_torch_sees_no_gpu_while_the_mode_is_active() -> None:
    lines = in_fresh_process(
        "import torch\nfrom launchkit import hostonly\nhostonly.activate()\n"
        "print(torch.cuda.is_available(), torch.cuda.device_count())"
    )
    assert lines == ["False 0"]


def test_a_process_that_never_leaves_the_mode_ends_quietly(tmp_path: Path) -> None:
    script = tmp_path / "never_leaves.py"
    script.write_text(
        "import torch, triton, triton.language as tl\n"
        "from launchkit import hostonly\n"
        "@triton.jit\n"
        "def one(dst): tl.store(dst, 1.0)\n"
        "hostonly.activate()\n"
        "kept = one[(1,)](torch.zeros(1))\n"
        "print(len(hostonly.launches()))\n"
    )
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1"}
    result = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("1\n", "")


def test_processes_that_build_the_stub_at_once_all_get_it(tmp_path: Path) -> None:
    code = f"from launchkit import hostonly\nprint(hostonly.activate(cache_dir={str(tmp_path)!r}))"
    workers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert all("active" in output for output in outputs)
    [directory] = tmp_path.glob("stub-*")
    assert {found.name for found in directory.iterdir()} == {"libcuda.so", "libcuda.so.1"}
