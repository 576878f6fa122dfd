"""Text that others wrote steers no terminal and forges no line of a log, wherever it is quoted."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sharing import filled, one
from stored import RECORD, plant
from typer.testing import CliRunner

from launchkit import jsonio
from launchkit.errors import BadDocumentError
from launchkit.keys import KernelId
from launchkit.printing import printable, printable_lines
from launchkit.store import DirectoryStore, MemoryStore, bundle, document
from launchkit.store.explaining import explain_fields
from launchkit.tools.cli import app, main

EVIL = "evil\x1b[31m\x07\u202e\r"
NEVER = set(EVIL) - set("evil[31m")


def run(*arguments: object):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def document_with_an_evil_key() -> bytes:
    raw = document.to_object(document.ConfigDocument(RECORD.kernel, RECORD.device, (RECORD,)))
    return jsonio.dumps({**raw, f"{EVIL}\nWARNING forged": 1})


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("plain µs ÷ 漢字", "plain µs ÷ 漢字"), ("a\nb\x1b", "a\\nb\\x1b"), ("\u202e\udcff", "\\u202e\\udcff"),
        ("\U000e0001", "\\U000e0001"), ("", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_printed_is_spelled_out(text, fit) -> None:
    assert printable(text) == fit
    assert printable_lines(f"{text}\n{text}").split("\n")[-1] == printable(text).split("\\n")[-1]


def test_errors_and_warnings_of_a_document_are_one_printable_line(tmp_path, caplog) -> None:
    with pytest.raises(BadDocumentError) as caught:
        document.parse(document_with_an_evil_key(), source=f"/tmp/{EVIL}")
    store = DirectoryStore(tmp_path)
    plant(store, document_with_an_evil_key())
    assert list(store.records()) == []
    for told in (str(caught.value), caught.value.reason, *(r.getMessage() for r in caplog.records)):
        assert "evil" in told
        assert told.isprintable()


def test_an_explanation_has_a_line_for_each_fact_and_no_more() -> None:
    store = MemoryStore()
    store.put(replace(RECORD, device=replace(RECORD.device, name=f"{EVIL}\nforged")))
    found = explain_fields(store, RECORD.kernel.name, {"device.name": "NVIDIA H200"})
    assert "evil" in found.text
    assert all(line.isprintable() for line in found.text.split("\n"))
    assert "\nforged" not in found.text


def test_a_bundle_that_is_refused_is_refused_in_plain_text(tmp_path) -> None:
    evil = replace(RECORD, kernel=KernelId(EVIL, "ab" * 32))
    line = bundle.dump([evil]).split(b"\n")[1] + b"\n"
    head = {"launchkit_bundle": 1, "entries": 2, "sha256": hashlib.sha256(line * 2).hexdigest()}
    path = tmp_path / "it.bundle"
    path.write_bytes(jsonio.dumps_compact(head) + b"\n" + line * 2)
    result = run("configs", "import", path, "--store", tmp_path / "store")
    assert result.exit_code == 2
    assert "stands twice" in result.output
    assert not NEVER & set(result.output)


def test_what_the_command_line_logs_and_says_at_its_end_is_plain_text(tmp_path) -> None:
    plant(DirectoryStore(tmp_path / EVIL), document_with_an_evil_key())
    manifest = tmp_path / "manifest.json"
    manifest.write_text(
        json.dumps(
            {
                "schema": 1,
                "document": "launchkit manifest",
                "entries": [],
                "unreplayable": [],
                "dropped": 0,
                EVIL: 1,
            }
        )
    )
    places = [["configs", "list", "--store", tmp_path / EVIL], ["warm", manifest]]
    code = "from launchkit.tools.cli import main\nmain()"
    for arguments in places:
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2), done.stderr
        assert "evil" in done.stderr
        assert not NEVER & set(done.stdout + done.stderr)


@pytest.mark.parametrize("command", ["warm", "tune"])
def test_reasons_in_a_manifest_are_printed_in_plain_text(command, tmp_path, monkeypatch) -> None:
    from launchkit.dispatch.manifest import offline_tuning, warming
    from launchkit.tools import tune

    listed = ({"kernel": EVIL, "reason": EVIL},)
    report = (
        warming.WarmReport((), listed, 0, 1.0)
        if command == "warm"
        else offline_tuning.TuneReport((), listed, 0, "memory")
    )
    manifest = {"schema": 1, "document": "launchkit manifest", "entries": [],
                "unreplayable": list(listed), "dropped": 0}  # fmt: skip
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest))
    monkeypatch.setattr("launchkit.warm", lambda *_, **__: report)
    monkeypatch.setattr(tune, "_tuning", lambda: offline_tuning)
    monkeypatch.setattr(offline_tuning, "tune_manifest", lambda *_, **__: report)
    result = run(command, path)
    assert result.exit_code == 1
    assert "evil" in result.output
    assert not NEVER & set(result.output)


@pytest.mark.parametrize("command", [["list"], ["check"], ["gc"], ["explain", "k"]])
def test_json_of_a_place_that_is_no_utf8_can_be_printed(command, tmp_path) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    filled(place, one(1, 64, 2.0))
    result = run("configs", *command, "--json", "--store", place)
    assert result.exit_code in (0, 1), result.exception
    assert json.loads(result.stdout)["store"].endswith("\\udcff\\udcfe")


def test_an_error_at_the_end_of_a_command_is_plain_text(monkeypatch, capfd) -> None:
    monkeypatch.setattr(sys, "argv", ["launchkit", "warm", f"/nowhere/{EVIL}"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert not NEVER & set("".join(capfd.readouterr()))
