"""launchkit doctor: each finding when its cause is there, none without, and what is printed."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import EntryPoint, PackageNotFoundError

import pytest
import triton
from typer.testing import CliRunner

import launchkit
from launchkit import jsonio, settings
from launchkit.dispatch import launcher  # noqa: F401 - loads the extension
from launchkit.dispatch.native import extension
from launchkit.tools import cli, doctor, doctor_captures, doctor_checks, doctor_environment
from launchkit.tools.doctor_check import Check, guarded

PLUGIN = EntryPoint(
    "launchkit", "launchkit.dispatch.install:install_in_vllm", "vllm.general_plugins"
)
SLOWING = (*doctor_environment._SLOWING,)


def run(*arguments):
    return CliRunner().invoke(cli.app, ["doctor", *arguments])


def ask(*arguments):
    """Return every check, as the command's JSON has them."""
    result = run("--json", *arguments)
    found = jsonio.loads(result.stdout_bytes, source="doctor", limit_bytes=10**6)
    findings = [check for check in found["checks"] if check["state"] == "finding"]
    assert result.exit_code == (1 if findings else 0)
    assert found["findings"] == len(findings)
    assert all(check["advice"] for check in findings)
    return found["checks"]


def findings(*arguments):
    return [check for check in ask(*arguments) if check["state"] == "finding"]


def text_of(checks):
    return " ".join(f"{check['says']} {check['advice']}" for check in checks)


@pytest.fixture(autouse=True)
def healthy(memory_store, monkeypatch, tmp_path):
    """A process with nothing to be found, whatever this one is."""
    for name in (*SLOWING, *doctor_captures._ATTACHED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor_captures, "which", lambda name: None)
    monkeypatch.setattr(doctor_captures, "_ptrace_scope", lambda: None)
    monkeypatch.setenv("LAUNCHKIT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("LAUNCHKIT_NATIVE", "1")
    settings.reload()
    if extension.active() is None:
        pytest.skip(f"no C core: {extension.obstacle() or 'switched off at import'}")
    monkeypatch.setattr(doctor_environment, "entry_points", lambda group: [PLUGIN])
    monkeypatch.setattr(doctor_environment, "_is_installed", lambda name: False)


def setting(monkeypatch, **variables):
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    settings.reload()


def test_healthy_process_has_no_finding_and_exit_code_0():
    checks = ask()
    states = {check["state"] for check in checks if not check["name"].startswith("capture")}
    assert states == {"ok"}
    names = [check["name"] for check in checks if not check["name"].startswith("capture")]
    assert names == [
        "environment", "vLLM plugin", "core", "tensors", "config store", "launches", "op plans",
        "host-only",
    ]  # fmt: skip
    assert "3 of 4 launches" in text_of(checks)


class TestEnvironment:
    def test_misspelt_variable_is_found_with_the_nearest_name(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_VERFY="1")
        (found,) = findings("--no-trial")
        assert found["says"].startswith("LAUNCHKIT_VERFY is set")
        assert "LAUNCHKIT_VERIFY?" in found["advice"]

    def test_unknown_variable_that_resembles_none_is_found(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_XYZZYQQQQQQQ="1")
        (found,) = findings("--no-trial")
        assert found["advice"] == "Unset it."

    @pytest.mark.parametrize("name", ["DISABLE", "VERIFY", "NATIVE", "INSTALL"])
    def test_bad_value_is_found_and_ends_no_other_check(self, monkeypatch, name):
        monkeypatch.setenv(f"LAUNCHKIT_{name}", "perhaps")
        settings._current = None
        checks = ask("--no-trial")
        assert f"LAUNCHKIT_{name} has a bad value" in text_of(checks)
        assert "Set it to 1 or 0." in text_of(checks)
        assert {"environment", "vLLM plugin", "core", "config store"} <= {c["name"] for c in checks}
        monkeypatch.undo()

    @pytest.mark.parametrize("name", SLOWING)
    def test_variable_of_others_that_slows_launches_is_found(self, monkeypatch, name):
        setting(monkeypatch, **{name: "1"})
        assert name in text_of(findings("--no-trial"))
        setting(monkeypatch, **{name: "0"})
        assert findings("--no-trial") == []

    @pytest.mark.parametrize("other", ["LAUNCHKIT_INSTALL", "LAUNCHKIT_VERIFY"])
    def test_variables_that_disable_leaves_without_effect_are_found(self, monkeypatch, other):
        setting(monkeypatch, LAUNCHKIT_DISABLE="1", **{other: "1"})
        assert f"LAUNCHKIT_DISABLE leaves {other} without effect" in text_of(findings("--no-trial"))

    def test_verification_that_was_left_on_is_found(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_VERIFY="1")
        assert "LAUNCHKIT_VERIFY asks Triton" in text_of(findings("--no-trial"))

    def test_patterns_without_an_installation_are_found(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_INSTALL_INCLUDE="fla.*")
        assert "nothing installs" in text_of(findings("--no-trial"))
        setting(monkeypatch, LAUNCHKIT_INSTALL="1")
        assert findings("--no-trial") == []


class TestPlugin:
    def test_missing_entry_point_is_found_where_vllm_is(self, monkeypatch):
        monkeypatch.setattr(doctor_environment, "entry_points", lambda group: [])
        assert findings("--no-trial") == []
        monkeypatch.setattr(doctor_environment, "_is_installed", lambda name: name == "vllm")
        (found,) = findings("--no-trial")
        assert found["name"] == "vLLM plugin"

    def test_plugin_that_is_kept_out_is_said(self, monkeypatch):
        monkeypatch.setattr(doctor_environment, "_is_installed", lambda name: name == "vllm")
        setting(monkeypatch, LAUNCHKIT_INSTALL="0")
        (found,) = [check for check in ask("--no-trial") if check["name"] == "vLLM plugin"]
        assert found["state"] == "note"
        assert "LAUNCHKIT_INSTALL=0" in found["says"]


class TestCore:
    def test_switched_off_core_is_found_with_the_reason(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_NATIVE="0")
        checks = findings()
        assert [check["name"] for check in checks] == ["core", "op plans"]
        assert "LAUNCHKIT_NATIVE=0" in checks[0]["says"]

    def test_core_that_was_not_built_is_found_with_how_to_build_it(self, monkeypatch):
        monkeypatch.setattr(extension, "_import", lambda: (None, "the extension was not built"))
        (found,) = findings("--no-trial")
        assert "was not built" in found["says"]
        assert "C compiler" in found["advice"]

    def test_core_that_reads_tensors_slowly_is_found(self, monkeypatch):
        monkeypatch.setattr(extension, "_tensor_reader", extension.BY_EXCHANGE)
        (found,) = findings("--no-trial")
        assert (found["name"], extension.BY_EXCHANGE in found["says"]) == ("tensors", True)

    def test_torch_without_op_plans_is_found(self, monkeypatch):
        monkeypatch.setattr(extension, "_op_plans", False)
        (found,) = findings("--no-trial")
        assert found["name"] == "op plans"

    @pytest.mark.parametrize("absent", ["torch", "triton"])
    def test_missing_torch_or_triton_is_found_and_nothing_is_imported(self, monkeypatch, absent):
        found_spec = doctor_checks.find_spec
        monkeypatch.setattr(
            doctor_checks, "find_spec", lambda name: None if name == absent else found_spec(name)
        )
        (found,) = findings()
        assert absent in found["says"]
        assert "launchkit-triton[torch]" in found["advice"]


class TestStore:
    def test_store_in_memory_is_found(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_STORE="memory:")
        assert "end with the process" in text_of(findings("--no-trial"))

    def test_store_that_cannot_be_opened_is_found(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_STORE="redis://somewhere")
        assert "no store is installed for redis" in text_of(findings("--no-trial"))

    @pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
    def test_store_that_cannot_be_written_to_is_found(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_STORE="/proc/launchkit")
        assert "cannot be written to" in text_of(findings("--no-trial"))

    def test_each_layer_is_looked_at_and_only_the_written_one_must_be_writable(
        self, monkeypatch, tmp_path
    ):
        share = tmp_path / "share"
        setting(monkeypatch, LAUNCHKIT_STORE=f"{tmp_path / 'mine'},{share}")
        stores = [check for check in ask("--no-trial") if check["name"] == "config store"]
        assert [each["state"] for each in stores] == ["ok", "ok"]
        assert f"{share} (read-only)" in stores[1]["says"]
        setting(monkeypatch, LAUNCHKIT_STORE=f"ro:{share}")
        stores = [check for check in ask("--no-trial") if check["name"] == "config store"]
        assert [each["state"] for each in stores] == ["ok", "note"]
        assert "ends with the process" in stores[1]["says"]

    def test_broken_documents_are_found_and_stay_where_they_are(self, tmp_path):
        folder = tmp_path / "store" / "v1" / "device" / "kernel"
        folder.mkdir(parents=True)
        broken = folder / "ab.json"
        broken.write_text("{")
        (folder / "cd.json.bad-20250101T000000Z-1").write_text("{")
        (found,) = findings("--no-trial")
        assert str(broken) in found["says"]
        assert "1 broken documents set aside" in text_of(ask("--no-trial"))
        assert sorted(each.name for each in folder.iterdir()) == [
            "ab.json",
            "cd.json.bad-20250101T000000Z-1",
        ]

    def test_looking_leaves_nothing_in_an_empty_place(self, tmp_path):
        assert findings("--no-trial") == []
        assert list(tmp_path.iterdir()) == []


class TestTrial:
    def test_launch_hook_of_another_tool_is_found(self, monkeypatch):
        monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", lambda metadata: None)
        checks = findings()
        assert [check["name"] for check in checks] == ["launches", "op plans"]
        assert "launch hook" in checks[0]["says"]

    def test_disabled_launchkit_is_found(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_DISABLE="1")
        assert "LAUNCHKIT_DISABLE" in text_of(findings())

    def test_missing_compiler_is_found_where_there_is_no_gpu(self, monkeypatch):
        setting(monkeypatch, CC="/no/such/compiler")
        (found,) = findings()
        assert found["name"] == "host-only"
        assert "compiler" in found["advice"]

    def test_trial_leaves_host_only_mode(self):
        ask()
        assert not launchkit.hostonly.is_active()


class TestOutput:
    def test_json_has_versions_and_every_variable(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_INSTALL="1", LAUNCHKIT_INSTALL_INCLUDE="a.*,b.*")
        result = run("--json", "--no-trial")
        found = jsonio.loads(result.stdout_bytes, source="doctor", limit_bytes=10**6)
        assert set(found) == {"schema", "versions", "checks", "environment", "findings"}
        assert found["versions"]["triton"] == triton.__version__
        assert set(found["versions"]) == {"launchkit", "python", "torch", "triton", "driver"}
        variables = {each["name"]: each for each in found["environment"]}
        assert variables["LAUNCHKIT_INSTALL"] == {
            "name": "LAUNCHKIT_INSTALL",
            "text": "1",
            "value": True,
        }
        assert variables["LAUNCHKIT_INSTALL_INCLUDE"]["value"] == ["a.*", "b.*"]
        assert variables["LAUNCHKIT_VERIFY"] == {
            "name": "LAUNCHKIT_VERIFY",
            "text": None,
            "value": False,
        }

    def test_table_says_what_to_do_and_what_is_set(self, monkeypatch):
        setting(monkeypatch, LAUNCHKIT_VERFY="[bold]1", LAUNCHKIT_VERIFY="0")
        result = run("--no-trial")
        assert result.exit_code == 1
        words = " ".join(result.stdout.split())
        assert "Did you mean LAUNCHKIT_VERIFY?" in words
        assert "LAUNCHKIT_VERIFY=0" in words
        assert words.endswith("1 finding")

    def test_bad_use_is_exit_2(self):
        assert run("--nonsense").exit_code == 2
        assert run("surplus").exit_code == 2

    def test_check_that_raises_is_a_finding_and_keeps_what_it_found(self):
        def look():
            yield Check("it", "ok", "first")
            raise PackageNotFoundError("something")

        first, second = guarded("it", look)
        assert (first.says, second.state) == ("first", "finding")
        assert "PackageNotFoundError" in second.says

    def test_driver_version_is_read_from_the_kernel_module(self, monkeypatch, tmp_path):
        file = tmp_path / "version"
        monkeypatch.setattr(doctor_checks, "_DRIVER", file)
        assert doctor.report([])["versions"]["driver"] is None
        for line, found in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar", "550.54.15"),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Rel",
                "570.86.10",
            ),
        ]:
            file.write_text(line)
            assert doctor.report([])["versions"]["driver"] == found


def test_what_triton_announces_at_its_first_compilation_is_no_output(monkeypatch):
    def compile_first():
        warnings.warn("TRITON_DEFAULT_FP_FUSION is unset: ...", UserWarning, stacklevel=2)
        yield Check("launches", "ok", "fast.")

    monkeypatch.setattr(doctor_checks, "_trial", compile_first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "fast." in text_of(ask())
