"""launchkit warm: what it says, and its exit codes."""

from __future__ import annotations

import json

import pytest
from manifests import record, session
from typer.testing import CliRunner

from launchkit.dispatch.manifest.document import Manifest, dump
from launchkit.errors import BadDocumentError, MissingManifestError, UsageError
from launchkit.tools.cli import app


def run(*arguments):
    return CliRunner().invoke(app, ["warm", *map(str, arguments)])


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "manifest.json"
    record(path, tmp_path, "plain", "autotuned")
    return path


def test_warm_says_that_all_is_ready(manifest, tmp_path):
    with session(tmp_path):
        done = run(manifest)
        assert done.exit_code == 0
        assert done.stdout.startswith("2 loaded in ")
        assert len(done.stdout.splitlines()) == 1


def test_warm_as_json_has_each_entry(manifest, tmp_path):
    with session(tmp_path):
        done = run(manifest, "--json", "--workers", "0", "--store", tmp_path / "configs")
        found = json.loads(done.stdout)
        assert (done.exit_code, found["ready"], found["counts"]) == (0, True, {"loaded": 2})
        assert [entry["kernel"] for entry in found["entries"]] == [
            "manifest_kernels.plain", "manifest.tuned",
        ]  # fmt: skip


def test_what_is_not_ready_is_exit_code_1_and_named(manifest, tmp_path):
    manifest.write_bytes(dump(Manifest(unreplayable=({"kernel": "k", "reason": "because"},))))
    with session(tmp_path):
        done = run(manifest)
        assert done.exit_code == 1
        assert "k: because" in done.stdout


def test_bad_use_is_an_error_that_says_what_to_do(manifest, tmp_path):
    with session(tmp_path):
        missing = run(tmp_path / "none.json").exception
        assert isinstance(missing, MissingManifestError)
        assert f"LAUNCHKIT_MANIFEST={tmp_path}/none.json launchkit run" in str(missing)
        assert isinstance(run(manifest, "--workers", "-1").exception, UsageError)
        manifest.write_text("{}")
        assert isinstance(run(manifest).exception, BadDocumentError)


def test_without_a_gpu_warm_says_so(manifest):
    done = run(manifest)
    assert isinstance(done.exception, UsageError)
    assert "no GPU" in str(done.exception)
