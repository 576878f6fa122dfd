"""Commands as a document shows them, and the stores that they are run on."""

from __future__ import annotations

import pathlib
import re
from dataclasses import replace

from sharing import RECORD, filled

from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.keys import KernelId, LaunchKey, Toolchain, encode_value

ROOT = pathlib.Path(__file__).resolve().parents[2]


def console_steps(name: str, first: str) -> list[tuple[str, list[str]]]:
    """Every ``$ command`` of a document's console blocks, with the lines that it prints.

    From the subsection ``first`` on, to the end of its section.
    """
    text = (ROOT / name).read_text(encoding="utf-8")
    text = text.partition(f"\n### {first}\n")[2].partition("\n## ")[0]
    steps: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif line.strip():
                steps[-1][1].append(line)
    return steps


def unlike(printed: str, shown: list[str]) -> tuple[list[str], list[str]]:
    """The words that only one has, in any order, as tables break lines; … stands for anything."""
    words = [word for word in printed.split() if set(word) != {"─"}]
    missing = []
    for word in " ".join(shown).split():
        pattern = ".*".join(re.escape(part) for part in word.split("…"))
        found = next((each for each in words if re.fullmatch(pattern, each)), None)
        if found is not None:
            words.remove(found)
        elif set(word) != {"─"}:
            missing.append(word)
    return words, missing


def make_stores(root: pathlib.Path) -> None:
    """The stores of docs/configs.md: two people's tunings of one kernel."""
    filled(root / "mine", record(1000, {512: 4.1, 1024: 4.0}, 1), record(4096, {1024: 9.5}, 1))
    filled(root / "team", record(1000, {512: 3.8, 1024: 4.0}, 2), record(65536, {2048: 61.0}, 2))


def record(n: int, medians_us: dict[int, float], day: int) -> TunedRecord:
    """A tuning of ``add_one`` whose fastest config won."""
    configs = {block: identify({"BLOCK": block, "num_warps": 4}) for block in medians_us}
    best = min(medians_us, key=lambda block: medians_us[block])
    return replace(
        RECORD,
        kernel=KernelId("add_one", "ad" * 32),
        toolchain=Toolchain("3.9.0"),
        key=LaunchKey((encode_value("n", n),), (("x_ptr", "torch.float32"),)),
        configs=tuple(
            TunedConfig.measured(configs[block], time_us, reps=100, method="eager")
            for block, time_us in medians_us.items()
        ),
        chosen=configs[best],
        tuned_at=f"2026-03-{day:02d}T10:30:00Z",
    )
