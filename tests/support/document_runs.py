"""A document run from its first block to its last."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from captures import nsys_sample
from document_shell import Shell, Surroundings
from document_starter import Starter
from documents import (
    CAPTURES,
    Block,
    Command,
    blocks_of,
    commands_of,
    data_of,
    name_of,
    unlike,
)

import launchkit
from launchkit import hostonly, settings

GPU_DEVICE, CPU_DEVICE = 'device="cuda"', 'device="cpu"'
_ACTIVATE = "from launchkit import hostonly; hostonly.activate(arch=90)"


class DocumentRun:
    """What a run of a document left: its module, what it printed, what it launched host-only."""

    def __init__(
        self, path: Path, root: Path, *, gpu: bool = False, starter: Starter | None = None
    ) -> None:
        self.path = path
        self.gpu = gpu
        self.surroundings = Surroundings(root, starter)
        self.module = types.ModuleType("__main__")
        self.module.__file__ = str(root / f"{path.stem}.py")
        self.printed = ""
        self.launches: list[hostonly.HostLaunch] = []
        self.blocks = [block for block in blocks_of(path) if self._is_for_here(block)]
        self._unseen = ""
        self._shell: Shell | None = None

    def _is_for_here(self, block: Block) -> bool:
        anywhere = block.file is not None or "both" in block.options
        return anywhere or ("gpu" in block.options) == self.gpu

    def run(self) -> DocumentRun:
        """Run every block in order; raises DocumentError for the first that is wrong."""
        self._write_module()
        for file in data_of(self.path):
            shutil.copy(file, self.surroundings.work)
        if not self.gpu:
            self.surroundings.share_compiled()
        with contextlib.ExitStack() as stack:
            stack.enter_context(_process_of(self.surroundings, self.module))
            stack.callback(self._close)
            host_only = not self.gpu and any(map(_is_run_here, self.blocks))
            if host_only:
                stack.enter_context(hostonly.activate(arch=90))
                hostonly.clear()
            for name in CAPTURES.get(name_of(self.path), ()):
                (self.surroundings.work / name).write_bytes(nsys_sample().read_bytes())
            for block in self.blocks:
                self._run_block(block)
            self.launches = hostonly.launches() if host_only else []
        return self

    def _write_module(self) -> None:
        """Write the module's source with each line where the document has it: Triton reads it."""
        lines: list[str] = []
        for block in self.blocks:
            if _is_run_here(block):
                lines += [""] * (block.line - 1 - len(lines))
                lines += block.text.splitlines()
        Path(str(self.module.__file__)).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _run_block(self, block: Block) -> None:
        if block.language == "console" and "other" not in block.options:
            for command in commands_of(block):
                self._run_command(block, command)
        elif block.file is not None:
            compile(block.text, block.place, "exec")
            (self.surroundings.work / block.file).write_text(self._program(block.text))
        elif _is_run_here(block):
            self._run_python(block)
        elif block.language == "text" and "output" in block.options:
            if difference := unlike(self._unseen, block.text):
                raise block.fails(f"the blocks above print something else:\n{difference}")
            self._unseen = ""

    def _run_python(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + self._for_this_machine(block.text)
        output = io.StringIO()
        try:
            code = compile(source, str(self.module.__file__), "exec")
            with contextlib.redirect_stdout(output):
                exec(code, self.module.__dict__)
        except (Exception, SystemExit) as error:
            line = _line_of(error, str(self.module.__file__))
            raise block.fails(f"{type(error).__name__}: {error}", line) from error
        printed = self.surroundings.as_documented(output.getvalue())
        self.printed += printed
        self._unseen += printed

    def _run_command(self, block: Block, command: Command) -> None:
        if self._shell is None:
            self._shell = Shell(self.surroundings)
        code, printed = self._shell.run(command.text)
        if command.in_background and command.output:
            printed = self._shell.wait_until(lambda found: unlike(found, command.output) is None)
        if code != command.exit_code:
            raise block.fails(f"$ {command.text}\nexit code {code}:\n{printed}", command.line)
        difference = unlike(printed, command.output) if command.output else None
        if difference:
            raise block.fails(
                f"$ {command.text}\nprints something else:\n{difference}", command.line
            )

    def _for_this_machine(self, source: str) -> str:
        source = self.surroundings.from_document(source)
        return source if self.gpu else source.replace(GPU_DEVICE, CPU_DEVICE)

    def _program(self, source: str) -> str:
        """Return a program that runs here: one of a GPU begins with the host-only driver."""
        if self.gpu or GPU_DEVICE not in source:
            return self.surroundings.from_document(source)
        lines = self._for_this_machine(source).splitlines(keepends=True)
        first = next(node for node in ast.parse(source).body if not _comes_first(node))
        simple = isinstance(first, (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr))
        lines.insert(first.lineno - 1, _ACTIVATE + ("; " if simple else "\n"))
        return "".join(lines)

    def _close(self) -> None:
        if self._shell is not None:
            self._shell.close()


def _is_run_here(block: Block) -> bool:
    """Whether a block is run in this process."""
    return block.language == "python" and block.file is None


def _comes_first(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _line_of(error: BaseException, filename: str) -> int | None:
    """Return the document's line that the error came from, the innermost one."""
    if isinstance(error, SyntaxError) and error.filename == filename:
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@contextlib.contextmanager
def _as_main(module: types.ModuleType) -> Iterator[None]:
    """Put ``module`` in the place of ``__main__``; what it imports stays imported."""
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    try:
        yield
    finally:
        sys.modules["__main__"] = before


@contextlib.contextmanager
def _process_of(surroundings: Surroundings, module: types.ModuleType) -> Iterator[None]:
    """Make this process the program: its folder, environment, store, counts and ``__main__``."""
    before = os.getcwd()
    path = [str(surroundings.work), *sys.path, str(surroundings.site)]
    with (
        mock.patch.dict(os.environ, surroundings.variables(), clear=True),
        _as_main(module),
        mock.patch.object(sys, "path", path),
    ):
        os.chdir(surroundings.work)
        settings.reload()
        launchkit.use_store(None)
        launchkit.stats(reset=True)
        try:
            yield
        finally:
            launchkit.uninstall()
            launchkit.use_store(None)
            os.chdir(before)
            _forget_modules(surroundings.work)
    settings.reload()


def _forget_modules(folder: Path) -> None:
    """Let the next document import modules of its own by the same names."""
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
            del sys.modules[name]


def run_document(
    path: Path, root: Path, *, gpu: bool = False, starter: Starter | None = None
) -> DocumentRun:
    """Run a document in folders below ``root``, which is empty; return what it left.

    ``starter`` starts its programs sooner than Python would.
    """
    return DocumentRun(path, root, gpu=gpu, starter=starter).run()


def has_gpu_blocks(path: Path) -> bool:
    """Whether a document has blocks that need a GPU."""
    return any("gpu" in block.options for block in blocks_of(path))


__all__ = ["DocumentRun", "has_gpu_blocks", "name_of", "run_document"]
