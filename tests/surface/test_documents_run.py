"""Every code block of every document runs, and prints what it shows.

tests/support/documents.py says which blocks are run, and how.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from document_runs import run_document
from document_shell import quiet_environment
from document_starter import Starter
from documents import RUN, SHOWN, DocumentError, blocks_of, documents, name_of, unlike

import launchkit

# First lines of the blocks that no test runs (`other`), by document.
NEVER_RUN = {
    "README.md": ["$ source .venv/bin/activate && mkdir ../try && cd ../try"],
    "docs/guides/install.md": ["$ pip install launchkit-triton"],
    "docs/guides/timeline.md": [
        "$ launchkit profile --nsys --output captured -- python step.py",
        "$ launchkit profile --nsys --output plain -- python tuned_step.py",
        "$ launchkit profile --py-spy --output sampled -- step.py",
    ],
}
OPTIONS = {
    "python": r"(gpu|file=[\w./-]+\.py)?",
    "console": r"(gpu|both|other)?",
    "text": r"(output)?",
}
DOCUMENTS = [pytest.param(path, id=name_of(path)) for path in documents()]
BLOCKS = [block for path in documents() for block in blocks_of(path)]


def three_chunks(run):
    assert run.module.batch.num_chunks == 3


def one_recorded_launch(run):
    assert re.search(r"mixer\W+7\W+add_one\W+1\W", run.printed), run.printed
    assert isinstance(run.module.profile, launchkit.LaunchProfile)
    rows = [(row.kernel, row.layer, row.launches) for row in run.module.profile.rows]
    assert rows == [("add_one", 7, 1)]


def one_launch(run):
    assert len(run.launches) == 1


PROMISES = {
    "docs/kernels.md": three_chunks,
    "docs/mamba_state.md": one_launch,
    "docs/recording.md": one_recorded_launch,
}


@pytest.fixture(scope="module")
def starter():
    """Starts programs from a process that has imported what takes seconds."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's name must be short
        made = Starter(Path(folder) / "starter", quiet_environment())
        yield made
        made.close()


@pytest.mark.parametrize("path", DOCUMENTS)
def test_blocks_run_and_print_what_they_show(path, tmp_path, starter):
    # The README's programs start as they do for its reader.
    started = None if name_of(path) == "README.md" else starter
    run = run_document(path, tmp_path, starter=started)
    PROMISES.get(name_of(path), lambda run: None)(run)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_block_has_a_language_that_is_known(path):
    for block in blocks_of(path):
        options = OPTIONS.get(block.language, "")
        assert block.language in SHOWN | RUN, block.place
        assert re.fullmatch(options, " ".join(block.options)), block.place
        if block.language == "json":
            json.loads(block.text)


def test_blocks_that_are_never_run_are_the_ones_named():
    never = {}
    for block in BLOCKS:
        if "other" in block.options:
            never.setdefault(block.document, []).append(block.text.splitlines()[0])
    assert never == NEVER_RUN


def test_commands_of_the_installation_are_where_ci_reads_them():
    """A bash block is run by .ci/run, and stands below the comment by which it is found."""
    for block in BLOCKS:
        if block.language == "bash":
            path = next(path for path in documents() if name_of(path) == block.document)
            lines = path.read_text(encoding="utf-8").splitlines()
            assert re.fullmatch(r"<!-- \w+ command -->", lines[block.line - 3]), block.place


def document(tmp_path, monkeypatch, text):
    monkeypatch.setattr("documents.ROOT", tmp_path)
    path = tmp_path / "some.md"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n```python\nx = 1\nassert x == 2, 'no'\n```\n", "some.md:4: AssertionError: no"),
        ("```python\nx =\n```\n", "some.md:2: SyntaxError"),
        ("```python\nprint(1)\n```\n\n```text output\n2\n```\n", "some.md:6: the blocks above"),
        ("```python file=a.py\nx =\n```\n", "some.md:2"),
        ("```console\n$ true\n\n$ echo a; exit 3\n```\n", r"some.md:4: \$ echo a; exit 3\nexit"),
        ("```console\n$ false\n```\n", r"some.md:2: \$ false\nexit code 1"),
        ("```console\n$ true\n[exit 1]\n```\n", r"some.md:2: \$ true\nexit code 0"),
        ("```console\n$ echo one\ntwo\n```\n", r"(?s)some.md:2: .*\n- two\n\+ one"),
        ("```console\ntrue\n```\n", "some.md:2: a console block begins"),
        ("text\n```python\nx = 1\n", "some.md:3: the block has no end"),
    ],
)
def test_wrong_block_is_named_with_its_document_and_line(tmp_path, monkeypatch, text, said):
    with pytest.raises((DocumentError, SyntaxError), match=said):
        run_document(document(tmp_path, monkeypatch, text), tmp_path / "run")


GOOD = """
```python file=program.py
import sys, torch
torch.empty(2, device="cuda")
print(sys.argv[1:], "launchkit.hostonly" in sys.modules)
```

<!-- python
hidden = 5
-->

```console
$ python program.py a \\
>   b
['a', 'b'] True
$ export SOME=thing
$ launchkit --version
launchkit ...
$ echo $SOME > file; echo one; echo two; echo three; exit_code() { return 3; }
one
...
three
$ echo wrong; exit_code
wrong
[exit 3]
```

```python
import pathlib, torch
print(hidden, pathlib.Path("file").read_text().strip(), torch.ones(1, device="cuda"))
```

```text output
5 thing tensor([1...])
```
"""


def test_documents_import_modules_of_their_own_and_leave_the_process_as_it_was(
    tmp_path, monkeypatch
):
    before = (os.getcwd(), dict(os.environ), list(sys.path), sys.modules["__main__"])
    for number in (1, 2):
        text = f"```python file=part.py\nnumber = {number}\n```\n```python\nimport part\n```\n"
        run = run_document(document(tmp_path, monkeypatch, text), tmp_path / str(number))
        assert run.module.part.number == number
    assert (os.getcwd(), dict(os.environ), list(sys.path), sys.modules["__main__"]) == before
    assert "part" not in sys.modules


@pytest.mark.parametrize("started", ["plainly", "by a starter"])
def test_blocks_of_all_kinds_run_in_one_folder_in_their_order(
    tmp_path, monkeypatch, starter, started
):
    path = document(tmp_path, monkeypatch, GOOD)
    run = run_document(path, tmp_path / "run", starter=None if started == "plainly" else starter)
    assert run.module.hidden == 5
    assert run.printed.startswith("5 thing")


PROGRAMS = """
```python file=program.py
import os, signal, sys, time
assert "torch" in sys.modules
print(sys.argv, os.environ["WHICH"], os.path.basename(os.getcwd()), __name__, flush=True)
if sys.argv[1] == "waits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    open("waiting", "w").close()
    time.sleep(60)
raise SystemExit(int(sys.argv[1]))
```

```console
$ export WHICH=this; mkdir -p below; cd below
$ python ../program.py 0
['../program.py', '0'] this below __main__
$ python ../program.py 3
...
[exit 3]
$ WHICH=that python -c 'import os, sys; print(os.environ["WHICH"], "torch" in sys.modules, sys.argv)' x
that True ['-c', 'x']
$ PYTHONOPTIMIZE=1 python -c 'import sys; print("torch" in sys.modules, __debug__)'
False False
$ python -I -c 'import sys; print("torch" in sys.modules, sys.flags.isolated)'
False 1
$ python -m this | head -1
The Zen of Python, by Tim Peters
$ python ../program.py waits > out 2>&1 &
$ until [ -e waiting ]; do sleep 0.05; done; kill $!; wait $!
[exit 1]
$ tail -1 out
told to end
$ python -c 'import os; os.kill(os.getpid(), 9)'
[exit 137]
$ python -c 'import launchkit; print(launchkit.__file__)'
/.../launchkit/__init__.py
```
"""


BLOCKS_OF_MACHINES = """
```console
$ echo here >> ran
```
```console both
$ echo both >> ran
```
```console gpu
$ echo gpu >> ran
```
"""


@pytest.mark.parametrize(("gpu", "ran"), [(False, "here both"), (True, "both gpu")])
def test_blocks_for_both_run_with_those_of_a_gpu_and_with_the_others(
    tmp_path, monkeypatch, gpu, ran
):
    text = BLOCKS_OF_MACHINES + f"```console both\n$ echo $(cat ran)\n{ran}\n```\n"
    run_document(document(tmp_path, monkeypatch, text), tmp_path / "run", gpu=gpu)


def test_programs_of_a_starter_are_as_python_starts_them(tmp_path, monkeypatch, starter):
    run_document(document(tmp_path, monkeypatch, PROGRAMS), tmp_path / "run", starter=starter)


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a  \nb\n\n", "a\nb", True),
        ("a\nb\n", "a\n...\nb", True),
        ("a\nx\ny\nb\n", "a\n...\nb", True),
        ("a 12 µs\n", "a ... µs", True),
        ("a 12 ms\n", "a ... µs", False),
        ("a\nb\nc\n", "a\nb", False),
        ("a\nb\n", "a\nb\n...\nb", False),
        ("b\na\n", "a\n...\nb", False),
    ],
)
def test_dots_stand_for_anything_and_nothing_else_does(printed, shown, same):
    assert (unlike(printed, shown) is None) is same
