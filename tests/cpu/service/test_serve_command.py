"""launchkit serve: starts, says where, stops; tokens, namespaces and pruning by command."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from stored import RECORD
from typer.testing import CliRunner

from launchkit import settings
from launchkit.errors import StoreError, UsageError
from launchkit.service import hosts, protocol, running, signing
from launchkit.tools import cli


@pytest.fixture
def database(tmp_path):
    return f"sqlite:///{tmp_path / 'service.db'}"


def run(*arguments):
    return CliRunner(env={"COLUMNS": "300"}).invoke(cli.app, ["serve", *map(str, arguments)])


def as_json(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(*arguments):
    result = run(*arguments)
    assert isinstance(result.exception, (UsageError, StoreError))
    return str(result.exception)


def test_a_server_says_where_it_is_and_ends_when_it_is_told(database, tmp_path):
    token = as_json("token", "create", "me", "--database", database)["token"]
    command = [sys.executable, "-m", "launchkit", "serve", "--port", "0", "--database", database]
    with subprocess.Popen([*command, "--json"], stdout=-1, stderr=-1, text=True) as process:
        said = ""
        while "}" not in said:
            said += process.stdout.readline()
        url = json.loads(said)["url"]
        path = url + protocol.record_path("default", RECORD)
        put = httpx.put(path, content=signing.body(RECORD), headers=protocol.bearer(token))
        assert put.status_code == 201
        # With a request in progress: it is finished, and the process ends by itself.
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /v1/namespaces/default/lookup HTTP/1.1\r\nHost: x\r\n"
                         b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{")  # fmt: skip
            slow_starts = httpx.get(f"{url}/healthz")
            assert slow_starts.status_code == 200
            process.send_signal(signal.SIGTERM)
            slow.sendall(b"}")
            assert slow.recv(100).startswith(b"HTTP/1.1 4")
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert token.split("_", 2)[2] not in said + out + errors
    assert all(re.search(r" [A-Z]+ /\S* \d{3} ", line) for line in errors.splitlines()), errors
    lines = [line for line in errors.splitlines() if "PUT /v1/" in line]
    assert len(lines) == 1
    assert " 201 " in lines[0]
    assert put.headers[protocol.HEADER_REQUEST] in lines[0]


def test_nobody_else_is_let_in_without_tokens(database, monkeypatch):
    monkeypatch.setattr(running, "_run", lambda *given: None)
    assert "token create" in refusal("--host", "0.0.0.0", "--port", 0, "--database", database)
    assert run("--port", 0, "--database", database).exit_code == 0
    allowed = ("--host", "0.0.0.0", "--port", 0, "--database", database, "--allow-no-tokens")
    assert run(*allowed).exit_code == 0
    as_json("token", "create", "me", "--database", database)
    assert run(*allowed[:-1]).exit_code == 0
    refused = refusal(*allowed[:-1], "--open-writes")
    assert "nobody needs a token" in refused
    assert "token create" not in refused, "there is one, and another would not help"


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(host, local):
    assert hosts.is_loopback(host) is local


def test_a_port_that_is_taken_is_said(database):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "Give another" in refusal("--port", port, "--database", database)


def test_tokens_are_made_listed_and_revoked(database):
    given = ("--namespace", "team-a", "--namespace", "team-b", "--scope", "read", "--days", 3)
    made = as_json("token", "create", "ann", *given, "--database", database)
    forever = as_json("token", "create", "bob", "--database", database)
    listed = as_json("token", "list", "--database", database)["tokens"]
    assert [each["name"] for each in listed] == ["ann", "bob"]
    assert listed[0]["namespaces"] == "team-a,team-b"
    assert listed[0]["state"].startswith("until 20")
    assert listed[1]["state"] == "in force"
    shown = run("token", "list", "--database", database).stdout
    assert made["id"] in shown
    for each in (made, forever):
        assert each["token"].split("_", 2)[2] not in shown + str(listed)
    names = [e["name"] for e in as_json("namespace", "list", "--database", database)["namespaces"]]
    assert names == ["default", "team-a", "team-b"]
    assert run("token", "revoke", made["id"], "--database", database).exit_code == 0
    assert run("token", "revoke", made["id"], "--database", database).exit_code == 1
    assert run("token", "revoke", forever["token"], "--database", database).exit_code == 0
    states = [e["state"] for e in as_json("token", "list", "--database", database)["tokens"]]
    assert all(state.startswith("revoked 20") for state in states)


def test_a_token_is_the_one_line_that_is_printed(database):
    result = run("token", "create", "me", "--database", database)
    assert result.stdout.count("\n") == 1
    assert result.stdout.startswith("lk_")


def test_namespaces_are_made_once(database):
    assert run("namespace", "create", "team", "--database", database).exit_code == 0
    assert run("namespace", "create", "team", "--database", database).exit_code == 1
    assert "is no namespace" in refusal("namespace", "create", "../x", "--database", database)


def test_migrating_says_the_schema(database):
    assert as_json("migrate", "--database", database) == {"database": "sqlite", "schema": "0001"}


def test_pruning_needs_an_age_and_tells_what_it_would_delete(database):
    assert "--records-days" in refusal("prune", "--database", database)
    found = as_json("prune", "--records-days", 0, "--dry-run", "--database", database)
    assert found == {"deleted": {}, "found": {"records": 0}}


def test_a_database_that_cannot_be_opened_is_said_without_a_password(tmp_path):
    missing = f"sqlite:///{tmp_path / 'none' / 'service.db'}"
    assert "cannot be used" in refusal("token", "list", "--database", missing)
    closed = "postgresql://me:hush@127.0.0.1:1/x"
    for command in (("token", "list"), ("--port", 0)):
        said = refusal(*command, "--database", closed)
        assert "cannot be used" in said
        assert "hush" not in said


def test_the_default_database_is_the_environments_or_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    as_json("namespace", "create", "mine")
    assert (tmp_path / "launchkit" / "service.db").exists()
    assert (tmp_path / "launchkit").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("LAUNCHKIT_DATABASE", f"sqlite:///{tmp_path / 'other.db'}")
    settings.reload()
    assert [e["name"] for e in as_json("namespace", "list")["namespaces"]] == ["default"]
    (shown,) = (each for each in settings.variables() if each.name == "LAUNCHKIT_DATABASE")
    assert "other.db" not in f"{shown.text} {shown.value}"


def test_serving_imports_neither_torch_nor_triton():
    code = (
        "import sys, launchkit.service.running, launchkit.tools.serve_admin;"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_imports_nothing_of_the_service():
    code = (
        "import sys, launchkit.tools.cli;"
        "print(sorted({'fastapi', 'sqlalchemy', 'alembic', 'uvicorn', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
