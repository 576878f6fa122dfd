"""Documents name everything that exists, and nothing that does not."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path

import typer.main

import launchkit
from launchkit import hostonly, jsonio, settings
from launchkit.tools import bench, bench_mamba_table, cli

# What the scan example takes from its surroundings.
SCAN_TENSORS = """
import torch
x, out = torch.empty(200, 4, 16).half(), torch.empty(200, 4, 16).half()
dt, A = torch.empty(200, 4), torch.empty(4)
B, C = torch.empty(200, 2, 16).half(), torch.empty(200, 2, 16).half()
cu_seqlens, slots = [0, 130, 200], torch.tensor([3, 1])
state_cache = torch.empty(5, 4, 16, 16)
"""
STAND_INS = {
    'device="cuda"': 'device="cpu"',
    "their_autotuned_kernel": "add_one",
    "their_plain_jit_kernel": "add_one.fn",
}
ROOT = Path(__file__).resolve().parents[2]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_variable_is_documented_and_every_documented_one_is_read():
    source = text("launchkit/settings.py")
    read = set(re.findall(r'"((?:LAUNCHKIT_)\w+)"', source)) | {"CC"}
    rows = set(re.findall(r"^\| `(\w+)` \|", text("docs/environment.md"), re.MULTILINE))
    assert rows == read
    assert len(read) == len(dataclasses.fields(settings.Settings))


def test_every_command_is_in_the_readme():
    root = typer.main.get_command(cli.app)
    for name, group in root.commands.items():
        for command in getattr(group, "commands", {}):
            documented = rf"launchkit {name} ([\w|]*\|)?{command}\b"
            assert re.search(documented, text("README.md") + text("CHANGELOG.md")), (name, command)


def test_readme_links_and_named_folders_exist():
    readme = text("README.md")
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", readme, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#]+)\)", prose)
    assert targets
    for target in targets:
        assert target.startswith("http") or (ROOT / target).exists(), target
    for folder in re.findall(r"`(\w+/)`", readme):
        assert (ROOT / folder).is_dir() or (ROOT / "launchkit" / folder).is_dir(), folder


def blocks_of(name):
    return re.findall(r"```python\n(.*?)```", text(name), re.DOTALL)


def run_blocks(tmp_path, blocks):
    """Run a document's examples in one module, on the host-only driver, and return the module."""
    source = "\n".join(SCAN_TENSORS * ("cu_seqlens" in block) + block for block in blocks)
    for example, stand_in in STAND_INS.items():
        source = source.replace(example, stand_in)
    path = tmp_path / "document_example.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("document_example", path)
    module = importlib.util.module_from_spec(spec)
    with launchkit.use_store("memory:"), hostonly.activate(arch=90):
        spec.loader.exec_module(module)
    return module


def test_examples_of_frozen_launches_run_after_those_of_the_readme(tmp_path, capsys):
    use = [block for block in blocks_of("README.md") if "add_one" in block][:3]
    module = run_blocks(tmp_path, [*use, *blocks_of("docs/freeze.md")])
    printed = capsys.readouterr().out
    assert "divisible by 16 <- 8191, an int of 32 bits, other than 1, not" in printed
    assert repr(module.step) in printed


def test_examples_of_ranks_run_in_a_world_of_one(tmp_path, capsys):
    use = [block for block in blocks_of("README.md") if "add_one" in block][:3]
    run_blocks(tmp_path, [*use, *blocks_of("docs/ranks.md")])
    assert "<Agreement of 1 ranks on " in capsys.readouterr().out


def test_examples_of_host_only_launches_hold_what_they_assert(tmp_path):
    module = run_blocks(tmp_path, blocks_of("docs/hostonly.md"))
    assert module.launch.device == 0


def test_every_public_name_is_in_a_document():
    words = set()
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        words |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    assert set(launchkit.__all__) <= words
    assert set(hostonly.__all__) - {"LABEL", "AttributeValue"} <= words


def test_readme_examples_run_as_they_stand(tmp_path, capsys):
    """On the host-only driver: CPU tensors stand for the GPU's, foreign kernels are examples."""
    module = run_blocks(tmp_path, blocks_of("README.md"))
    assert module.batch.num_chunks == 3
    printed = capsys.readouterr().out
    assert re.search(r"mixer\W+7\W+add_one\W+1\W", printed), printed
    assert isinstance(module.profile, launchkit.LaunchProfile)
    assert [(row.kernel, row.layer, row.launches) for row in module.profile.rows] == [
        ("add_one", 7, 1)
    ]


def test_no_document_holds_a_placeholder():
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        ROOT / "benchmarks/results/README.md",
    ]:
        assert "@@" not in path.read_text(encoding="utf-8"), path


def test_results_folder_holds_what_its_readme_lists_and_no_more():
    results = ROOT / "benchmarks" / "results"
    listed = set(re.findall(r"`(\w+\.json)`", (results / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in results.glob("*.json")}


def test_table_of_the_readme_is_the_committed_result(capsys):
    path = ROOT / "benchmarks" / "results" / "launch_h200.json"
    bench.show(jsonio.loads(path.read_bytes(), source=path.name, limit_bytes=10**6))
    table = capsys.readouterr().out.split("Medians.")[0]
    rows = [line.strip() for line in table.splitlines() if line.strip()]
    readme = [line.strip() for line in text("README.md").splitlines()]
    assert len(rows) == 23
    assert set(rows) <= set(readme)


def test_mamba_table_of_the_readme_is_the_committed_result(capsys):
    path = ROOT / "benchmarks" / "results" / "mamba_h200.json"
    document = jsonio.loads(path.read_bytes(), source=path.name, limit_bytes=10**7)
    assert document["complete"]
    assert len(document["cases"]) == 120
    document["cases"] = [
        case
        for case in document["cases"]
        if (case["model"], case["sequences"], case["tokens"]) == ("Nemotron-3-Nano", 4, 2048)
    ]
    bench_mamba_table.show(document)
    table = capsys.readouterr().out.split("Medians")[0]
    rows = [line.strip() for line in table.splitlines() if line.strip()]
    readme = [line.strip() for line in text("README.md").splitlines()]
    assert len(rows) == 9
    assert set(rows) <= set(readme)
