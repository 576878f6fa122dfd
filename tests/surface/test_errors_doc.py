"""docs/errors.md has every error, field, reason and command that the code has, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from launchkit import errors
from launchkit.dispatch import choosing, launch_counts, stored_choice
from launchkit.service import protocol, refused
from launchkit.store import base
from launchkit.tools import commands

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("launchkit", "kernels")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, Exception)
}


def rows(heading: str, text: str = TEXT) -> list[list[str]]:
    """The cells of the table that follows a heading."""
    part = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    part = re.split(r"^#", part, flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def words(cell: str) -> list[str]:
    """What stands in backticks outside of brackets."""
    return re.findall(r"`([^`]+)`", re.sub(r" \([^)]*\)", "", cell))


def named(heading: str, column: int = 0, text: str = TEXT) -> list[str]:
    return [word for row in rows(heading, text) for word in words(row[column])]


def calls(name: str) -> list[ast.Call]:
    return [
        node
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name
    ]


def fields(name: str) -> set[str]:
    """The fields that an error can have: its own __init__ names them, or those who make it do."""
    own = vars(CLASSES[name]).get("__init__")
    if issubclass(CLASSES[name], errors.BadDocumentError):
        own, name = errors.BadDocumentError.__init__, "BadDocumentError"
    made = calls(name)
    if own is not None and name != "LaunchkitError":
        (tree,) = (tree for path, tree in TREES.items() if path.name == "errors.py")
        (cls,) = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
        made = [n for n in ast.walk(cls) if "super().__init__" in ast.unparse(n)]
        made = [n for n in made if isinstance(n, ast.Call) and n.keywords]
    found = {keyword.arg for call in made for keyword in call.keywords}
    if None in found:  # host-only mode passes those of a compiler's error on
        assert name == "HostOnlyError"
        found |= fields("CompilerError")
    return {each for each in found if each is not None}


def test_every_error_is_in_the_table_under_what_it_is_a_kind_of():
    shown = {words(row[0])[0]: re.findall(r"\(`(\w+)`\)", row[0]) for row in rows("Exceptions")}
    assert shown == {
        name: [cls.__mro__[1].__name__] if cls is not errors.LaunchkitError else []
        for name, cls in CLASSES.items()
    }


def test_no_error_is_made_elsewhere_than_in_the_module_of_errors():
    kinds = set(CLASSES)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and path.name != "errors.py":
                assert not kinds & {ast.unparse(base).split(".")[-1] for base in node.bases}, path


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_fields_of_an_error_are_those_that_the_code_gives_it(name):
    (row,) = (row for row in rows("Exceptions") if words(row[0])[0] == name)
    shown = named("Fields of UsageError", 1) if name == "UsageError" else words(row[1])
    assert set(shown) == fields(name)


def test_reasons_of_host_only_mode_and_the_compiler_are_those_of_the_code():
    given = {
        keyword.value.value
        for name in ("HostOnlyError", "CompilerError")
        for call in calls(name)
        for keyword in call.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant)
    }
    shown = named("Reasons of HostOnlyError and CompilerError")
    assert sorted(shown) == sorted(given)


def texts(module) -> set[str]:
    """The texts that a module names in capitals."""
    return {
        value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)
    }


def test_reasons_of_a_miss_are_those_of_the_code():
    shown = named("Why no stored config answers")
    known = {*get_args(base.MissReason), *texts(stored_choice), choosing._BYPASS}
    assert sorted(shown) == sorted(known)


def test_reasons_of_a_service_are_those_of_the_code():
    found = rows("Why no stored config answers")
    shown = {words(row[0])[0] for row in found if "a service" in row[1]}
    literals = {
        call.args[1].value
        for call in calls("ServiceError")
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    }
    assert literals <= shown
    assert shown == set(errors.ServiceError._ADVICE)


def returned(function: ast.AST) -> set[str]:
    """The texts that a function returns, with … for what it puts into them."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
            found.add(node.value.value)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr):
            parts = (getattr(part, "value", None) for part in node.value.values)
            text = "".join(part if isinstance(part, str) else "…" for part in parts)
            found.add(text.replace("….…", "…"))
    return {each for each in found if isinstance(each, str)}


def test_reasons_of_launches_through_triton_are_those_of_the_code():
    where = {
        "triton_seam.py": ("shortcut_obstacle", "launch_obstacle"),
        "frozen_plan.py": ("obstacle",),
        "launcher.py": ("_why_triton",),
    }
    given = texts(launch_counts)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in where.get(path.name, ()):
                given |= returned(node)
    assert sorted(named("Why a launch went through Triton")) == sorted(given)


def test_errors_of_the_service_are_those_of_the_code():
    text = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    shown = {code: int(row[0]) for row in rows("Errors", text) for code in words(row[1])}
    assert shown == refused.STATUS
    assert set(shown) == set(get_args(protocol.ErrorCode))


def commands_of(command: object, path: str) -> set[str]:
    """Every command that can be given, as the table writes it."""
    found: set[str] = set()
    for name, inner in getattr(command, "commands", {}).items():
        found |= commands_of(inner, f"{path} {name}")
    alone = not found or path == "serve"
    return found | ({path} if alone else set())


def test_every_command_has_its_exit_codes():
    known = {
        each for name in commands.COMMANDS for each in commands_of(commands.imported(name), name)
    }
    assert sorted(named("Exit codes")) == sorted(known)
