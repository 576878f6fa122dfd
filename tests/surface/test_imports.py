"""Who imports whom, and who alone uses what: the design's directions, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEAVES = {
    f"launchkit.{name}"
    for name in (
        "errors",
        "settings",
        "clock",
        "c_compiler",
        "jsonio",
        "keys",
        "configs",
        "when_imported",
        "printing",
        "pickling",
        "validating",
    )
}

# Which parts of launchkit a part may import from, besides itself. Order: the first that fits.
ALLOWED = [
    ("launchkit.store", LEAVES),
    ("launchkit.dispatch", LEAVES | {"launchkit.dispatch", "launchkit.store"}),
    ("launchkit.hostonly", LEAVES),
    (
        "launchkit.profiling.recorder",
        LEAVES | {"launchkit.dispatch.launcher", "launchkit.hostonly", "launchkit.profiling"},
    ),
    (
        "launchkit.profiling.report",
        LEAVES | {"launchkit.profiling.names", "launchkit.profiling.timeline"},
    ),
    ("launchkit.profiling", LEAVES),
    ("launchkit.service", LEAVES | {"launchkit.store", "launchkit.__version__"}),
    ("launchkit.__main__", {"launchkit.tools"}),
    ("launchkit.kernels", {"launchkit"}),
    ("launchkit.tools", {"launchkit"}),
    ("launchkit.benchmarks", {"launchkit"}),
]
LEAVES_OF_LEAVES = {
    "launchkit.printing": set(),
    "launchkit.pickling": set(),
    "launchkit.errors": {"launchkit.pickling", "launchkit.printing"},
    "launchkit.clock": set(),
    "launchkit.when_imported": set(),
    "launchkit.settings": {"launchkit.errors"},
    "launchkit.c_compiler": {"launchkit.errors", "launchkit.settings"},
    "launchkit.jsonio": {"launchkit.errors"},
    "launchkit.validating": {"launchkit.errors"},
    "launchkit.keys": {"launchkit.errors", "launchkit.jsonio"},
    "launchkit.configs": {"launchkit.errors", "launchkit.jsonio", "launchkit.keys"},
}
WITHOUT_TORCH_AND_TRITON = [
    *sorted(LEAVES),
    "launchkit.store",
    "launchkit.profiling.ranges",
    "launchkit.profiling.timeline",
    "launchkit.profiling.report",
    "launchkit.service",
]
FOREIGN_TREES = {
    "launchkit.kernels": "kernels",
    "launchkit.tools": "tools",
    "launchkit.benchmarks": "benchmarks",
}


def modules():
    """Every module of the package by its import name."""
    found = {}
    for root, prefix in [
        ("launchkit", "launchkit"),
        *((tree, name) for name, tree in FOREIGN_TREES.items()),
    ]:
        for path in sorted((ROOT / root).rglob("*.py")):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            name = ".".join([prefix, *(part for part in parts if part != "__init__")])
            found[name] = path
    return found


MODULES = modules()


def imported(path, name):
    """The full names that a module imports, wherever in it; for type checkers only ones excepted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES or node.module == "launchkit" else node.module


def within(name, part):
    return name == part or name.startswith(f"{part}.")


def own_imports(name):
    return {each for each in imported(MODULES[name], name) if within(each, "launchkit")}


def part_of(name):
    return next((part for part, _ in ALLOWED if within(name, part)), None)


@pytest.mark.parametrize("name", [name for name in MODULES if part_of(name)])
def test_module_imports_only_from_below(name):
    part, allowed = next((part, allowed) for part, allowed in ALLOWED if within(name, part))
    for target in own_imports(name):
        fits = within(target, part) or any(within(target, below) for below in allowed)
        assert fits, f"{name} imports {target}"


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_leaf_imports_only_smaller_leaves(name):
    assert own_imports(name) <= LEAVES_OF_LEAVES[name]


@pytest.mark.parametrize("name", [name for name in MODULES if not within(name, "launchkit.tools")])
def test_only_the_entry_point_knows_the_tools(name):
    targets = {target for target in own_imports(name) if within(target, "launchkit.tools")}
    assert not targets or name == "launchkit.__main__"


@pytest.mark.parametrize(
    "name", [name for name in MODULES if not any(within(name, tree) for tree in FOREIGN_TREES)]
)
def test_library_knows_neither_kernels_nor_benchmarks(name):
    for target in own_imports(name):
        assert not within(target, "launchkit.kernels")
        assert not within(target, "launchkit.benchmarks")


def test_nothing_in_profiling_needs_the_recorder():
    users = {name for name in MODULES if "launchkit.profiling.recorder" in own_imports(name)}
    assert {name for name in users if within(name, "launchkit.profiling")} <= {
        "launchkit.profiling"
    }


@pytest.mark.parametrize("tree", sorted(FOREIGN_TREES))
def test_what_stands_outside_imports_public_names_only(tree):
    private = {"launchkit.dispatch.native", "launchkit.dispatch.launch_path", "launchkit.dispatch.choosing",
               "launchkit.dispatch.tuning", "launchkit.dispatch.plan", "launchkit.dispatch.triton_seam",
               "launchkit.store.files", "launchkit.store.directory"}  # fmt: skip
    for name in MODULES:
        if within(name, tree):
            for target in own_imports(name):
                assert not any(within(target, part) for part in private), f"{name} imports {target}"


def uses(path):
    """Dotted names that a module reads, and modules that it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names | set(imported(path, str(path)))


SINGLE_USERS = {
    "the environment": (("os.environ", "os.getenv"), {"launchkit.settings"}),
    "orjson": (("orjson", "json"), {"launchkit.jsonio"}),
    "the clock": (("time",), {"launchkit.clock"}),
}


@pytest.mark.parametrize("what", SINGLE_USERS)
def test_it_has_a_single_user(what):
    names, users = SINGLE_USERS[what]
    found = {
        name
        for name, path in MODULES.items()
        if name.split(".")[1:2] != ["benchmarks"] and uses(path) & set(names)
    }
    assert found == users


TRITON_RUNTIME = (
    "triton.runtime",
    "triton.compiler",
    "triton.backends",
    "triton.knobs",
    "triton._C",
)


def test_tritons_private_runtime_has_two_users():
    found = {
        name
        for name, path in MODULES.items()
        if not any(within(name, tree) for tree in FOREIGN_TREES)
        and any(
            within(target, part)
            for target in _triton_imports(path, name)
            for part in TRITON_RUNTIME
        )
    }
    assert found == {"launchkit.dispatch.triton_seam", "launchkit.hostonly.driver"}


def _triton_imports(path, name):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and within(node.module, "triton"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("name", ["launchkit", *WITHOUT_TORCH_AND_TRITON, "launchkit.hostonly"])
def test_importing_it_leaves_torch_and_triton_out(name):
    assert imported_with(name, {"torch", "triton"}) == "[]"


def test_captures_are_copied_without_polars_which_comes_with_an_extra():
    assert imported_with("launchkit.profiling.timeline.copies", {"polars"}) == "[]"


def imported_with(name, wanted):
    code = f"import sys, {name}; print(sorted({wanted!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_module_is_covered_by_a_direction():
    uncovered = {name for name in MODULES if part_of(name) is None and name not in LEAVES}
    assert uncovered == {"launchkit"}


def test_who_only_annotates_does_not_import_what_draws_tables():
    assert imported_with("launchkit.profiling", {"rich"}) == "[]"
