"""Every code block of every document runs, and prints what it shows.

tests/support/documents.py says which blocks are run, and how.
"""

from __future__ import annotations

import json
import os
import re
import sys

import pytest
from document_runs import run_document
from documents import RUN, SHOWN, DocumentError, blocks_of, documents, name_of, unlike

import launchkit

# First lines of the blocks that no test runs (`other`), by document.
NEVER_RUN = {
    "README.md": ["$ source .venv/bin/activate && mkdir ../try && cd ../try"],
    "docs/guides/install.md": ["$ pip install launchkit-triton"],
    "docs/guides/timeline.md": [
        "$ launchkit profile --nsys --output captured -- python step.py",
        "$ launchkit profile --py-spy --output sampled -- step.py",
    ],
}
OPTIONS = {
    "python": r"(gpu|file=[\w./-]+\.py)?",
    "console": r"(gpu|other)?",
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


@pytest.mark.parametrize("path", DOCUMENTS)
def test_blocks_run_and_print_what_they_show(path, tmp_path):
    run = run_document(path, tmp_path)
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


def test_blocks_of_all_kinds_run_in_one_folder_in_their_order(tmp_path, monkeypatch):
    run = run_document(document(tmp_path, monkeypatch, GOOD), tmp_path / "run")
    assert run.module.hidden == 5
    assert run.printed.startswith("5 thing")


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
