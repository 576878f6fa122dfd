"""The example of docs/mamba_state.md runs, and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = Path(__file__).parents[2] / "docs" / "mamba_state.md"


def test_example_prints_what_the_document_says(host, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", TEXT.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, str(TEXT), "exec"), {})
    wanted = block.rstrip().splitlines()[-1].removeprefix("# ")
    assert capsys.readouterr().out.strip() == wanted
    assert len(host.launches()) == 1
