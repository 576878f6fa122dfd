"""Documents name everything that exists, and nothing that does not."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from documents import documents, name_of, result

import launchkit
from launchkit import hostonly, settings
from launchkit.dispatch import launch_counts
from launchkit.dispatch import triton_seam as seam
from launchkit.tools import bench, bench_mamba_table, commands

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
    for name in commands.COMMANDS:
        assert re.search(rf"launchkit {name}\b", text("README.md")), name
        for command in getattr(commands.imported(name), "commands", {}):
            documented = rf"launchkit {name} ([\w|]*\|)?{command}\b"
            assert re.search(documented, text("README.md") + text("CHANGELOG.md")), (name, command)


def prose_of(path):
    text = path.read_text(encoding="utf-8")
    return re.sub(r"<!--.*?-->|^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(path):
    """The names that a document's headings are linked by."""
    code = re.sub(
        r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    headings = re.findall(r"^#+ (.*)$", code, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose_of(path)):
        if not target.startswith("http"):
            file = path.parent / target if target else path
            assert file.exists(), target
            assert not anchor or anchor in anchors_of(file), f"{target}#{anchor}"


def test_readme_has_links_and_names_folders_that_exist():
    assert re.findall(r"\]\(docs/[^)]+\)", prose_of(ROOT / "README.md"))
    for folder in re.findall(r"`(\w+/)`", text("README.md")):
        assert (ROOT / folder).is_dir() or (ROOT / "launchkit" / folder).is_dir(), folder


def test_every_public_name_is_in_a_document():
    words = set()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        words |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    assert set(launchkit.__all__) <= words
    assert set(hostonly.__all__) - {"LABEL", "AttributeValue"} <= words


def test_guide_explains_every_reason_for_which_a_launch_goes_through_triton():
    reasons = {value for name, value in vars(launch_counts).items() if name.isupper()}
    reasons = {reason for reason in reasons if isinstance(reason, str)}
    obstacles = inspect.getsource(seam.shortcut_obstacle) + inspect.getsource(seam.launch_obstacle)
    reasons |= set(re.findall(r'return f?"([\w ]+)', obstacles))
    assert len(reasons) > 15
    told = re.findall(r"^\| (`.*?`) \|", text("docs/guides/autotuned.md"), re.MULTILINE)
    for reason in reasons:
        assert any(reason.strip() in row for row in told), reason


def test_stations_of_the_three_walks_are_files():
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.rglob("*.*")]
    named = re.findall(r"[\w/]+\.(?:py|c|h)\b", text("docs/guides/how-a-launch-works.md"))
    assert len(set(named)) > 50
    for name in set(named):
        assert any(file.endswith(f"/{name.strip('/')}") for file in files), name


def test_no_document_holds_a_placeholder():
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "benchmarks/results/README.md",
    ]:
        said = re.sub(
            r"^@@ -\d+,\d+ \+\d+,\d+ @@", "", path.read_text(encoding="utf-8"), flags=re.M
        )
        assert "@@" not in said, path


def test_results_folder_holds_what_its_readme_lists_and_no_more():
    results = ROOT / "benchmarks" / "results"
    listed = set(re.findall(r"`(\w+\.json)`", (results / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in results.glob("*.json")}


def lines_of(whole):
    return [line.strip() for line in whole.splitlines() if line.strip()]


def launch_rows(capsys, *cases):
    """The lines of the committed result's table, of some cases or of all."""
    document = result("launch_h200.json")
    for part in ("rows", "ratios"):
        document[part] = [row for row in document[part] if not cases or row["case"] in cases]
    bench.show(document)
    table = capsys.readouterr().out.split("Medians.")[0]
    return lines_of(table)


def shown_rows(document):
    """The lines of a document's table of launches."""
    table = text(document).split("```text\nhost µs per launch ")[1].split("```")[0]
    return lines_of("host µs per launch " + table)


def test_table_of_launches_is_the_committed_result(capsys):
    rows = launch_rows(capsys)
    assert len(rows) == 23
    assert shown_rows("docs/launching.md") == rows


def test_table_of_the_readme_is_the_committed_result_of_two_cases(capsys):
    rows = launch_rows(capsys, "noop_46", "state_passing")
    assert len(rows) == 13
    assert shown_rows("README.md") == rows


def test_mamba_table_is_the_committed_result(capsys):
    document = result("mamba_h200.json")
    assert document["complete"]
    assert len(document["cases"]) == 120
    document["cases"] = [
        case
        for case in document["cases"]
        if (case["model"], case["sequences"], case["tokens"]) == ("Nemotron-3-Nano", 4, 2048)
    ]
    bench_mamba_table.show(document)
    table = capsys.readouterr().out.split("Medians")[0]
    rows = lines_of(table)
    assert len(rows) == 9
    assert set(rows) <= set(lines_of(text("docs/kernels.md")))


SERVED = ("output_tokens_per_s", "ttft_p50_ms", "itl_p50_ms")


def served_rows(document):
    """The lines of a table of a served benchmark, a line a case."""
    tokens = {
        (row["case"], row["variant"]): f"{row['output_tokens_per_s']['mean']:,.0f}"
        for row in document["rows"]
    }
    ratios = {
        (row["case"], row["figure"]): f"{row['ratio']:.2f} ± {row['stddev']:.2f}"
        for row in document["ratios"]
    }
    for case in document["cases"]:
        name = case["case"]
        cells = [tokens[name, variant] for variant in ("baseline", "launchkit")]
        cells += [ratios[name, figure] for figure in SERVED]
        yield f"| {case['model']} | {case['concurrency']} | {' | '.join(cells)} |"


def test_table_of_served_models_is_the_committed_results():
    names = ("serve_h200.json", "serve_granite_h200.json")
    rows = [row for name in names for row in served_rows(result(name))]
    assert len(rows) == 10
    shown = lines_of(text("docs/kernels.md"))
    assert shown[shown.index(rows[0]) :][: len(rows)] == rows


SCANS = {"launch_autotuned": "`launch_autotuned`", "op_plan": "op plan", "cuda_graph": "CUDA graph"}


def predicted_rows(document):
    """The lines of a table of predictions: what a change was predicted to give, and what it gave."""
    plain = {(row["case"], row["variant"]): row["plain_share"] for row in document["steps"]}
    for row in document["predictions"]:
        if row["parameters"].get("saves_ns", 1) is None:
            continue  # the bound, which no launch path can reach
        case, variant = row["case"], row["variant"]
        low, high = row["warm_us"], row["predicted_us"]
        cells = [
            case.split("/", 1)[1], SCANS[variant], f"{row['baseline_us']:,.0f}",
            f"{low:,.0f} to {high:,.0f}", f"{row['measured_us']:,.0f}",
            f"{low / row['baseline_us']:.2f} to {row['predicted_share']:.2f}",
            f"{plain[case, variant]:.2f}",
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def test_table_of_predictions_is_the_committed_result():
    document = result("predict_h200.json")
    assert document["complete"]
    assert document["method"]["layers"] == 23
    rows = list(predicted_rows(document))
    assert len(rows) == 6
    shown = lines_of(text("docs/reading-timelines.md"))
    assert shown[shown.index(rows[0]) :][: len(rows)] == rows
    assert all(0.95 < row["ratio"] < 1.05 for row in document["agreement"])


def test_contributing_names_files_that_exist():
    said = re.sub(r"^```.*?^```", "", text("CONTRIBUTING.md"), flags=re.DOTALL | re.MULTILINE)
    paths = {
        path
        for path in re.findall(r"`((?:\.\w+|\w+)/[\w./-]*|[\w.]+\.(?:md|toml|in))`", said)
        if not path.startswith("dist/")
    }
    assert len(paths) > 50
    for path in paths:
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`(\w+\*?\.(?:py|c|h))`", said):
        assert any(ROOT.glob(f"[a-z]*/**/{name}")), name


def test_every_document_is_in_the_index_and_the_index_in_the_readme():
    index = ROOT / "docs" / "README.md"
    targets = re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\) \| .+\. \|$", text("docs/README.md"), re.M)
    assert all(name == target for name, target in targets)
    found = [(index.parent / target).resolve() for _, target in targets]
    assert sorted(found) == sorted({*(ROOT / "docs").rglob("*.md")} - {index})
    assert "](docs/README.md)" in text("README.md")


def test_json_page_says_what_each_command_gives():
    sections = re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", text("docs/json.md"), re.MULTILINE)
    surface = text("tests/data/public_surface.txt")
    commands_with = re.findall(
        r"^launchkit ([a-z ]+?) (?:[A-Z-].* )?--json\b", surface, re.MULTILINE
    )
    assert "serve token list" in commands_with
    for command in commands_with:
        words = command.split()
        assert any(
            f"`launchkit {' '.join(words[:upto])} --json" in heading
            and (upto == len(words) or f"`{' '.join(words[upto:])}`" in body)
            for upto in range(1, len(words) + 1)
            for heading, body in sections
        ), command


def test_reference_has_a_line_for_each_public_name_and_a_link_to_each_table():
    said = text("docs/guides/reference.md")
    names = re.findall(
        r"^\| `(\w+)` \| .+\. \|$", said.partition("## Python names")[2], re.MULTILINE
    )
    assert sorted(names) == sorted(launchkit.__all__)
    for page in ("environment", "errors", "json", "http-api", "configs", "configs_foreign"):
        assert f"](../{page}.md" in said, page
