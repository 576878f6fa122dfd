"""launchkit configs diff, merge, export, import and pin: what they do, say and exit with."""

from __future__ import annotations

import pathlib

import pytest
from configs_commands import run, run_json
from sharing import config, content, filled, one, timed, tuned, winners
from stored import file_of

from launchkit.store import DirectoryStore, PinnedStore

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.fixture
def stores(tmp_path) -> tuple[pathlib.Path, pathlib.Path]:
    """Ours and theirs: one record only in each, one equal, one that theirs has faster."""
    ours = [one(1, 1, 5.0, tuned_at=OLD), one(2, 1, 5.0), one(3, 1, 5.0)]
    theirs = [
        tuned(1, timed(1, 5.0), timed(2, 4.0), chosen=2, tuned_at=NEW),
        one(2, 1, 5.0),
        one(4, 1, 1.0),
    ]
    return filled(tmp_path / "ours", *ours).path, filled(tmp_path / "theirs", *theirs).path


def test_diff_names_what_is_added_removed_and_won_by_another_config(stores) -> None:
    found = run_json("diff", *stores, code=1)
    (changed,) = found["changed"]
    assert [each["key"].split()[0] for each in found["added"]] == ["n=4"]
    assert [each["key"].split()[0] for each in found["removed"]] == ["n=3"]
    assert changed["key"].split()[0] == "n=1"
    assert (changed["ratio"], changed["measured_together"]) == (0.8, True)
    assert found["same"] == 1
    shown = run("diff", *stores)
    assert shown.exit_code == 1
    assert "0.80" in shown.stdout
    assert "1 added, 1 removed, 1 with another winner, 1 the same" in shown.stdout


def test_diff_of_equal_stores_is_exit_0(stores) -> None:
    assert run("diff", stores[0], stores[0]).exit_code == 0
    assert run("diff", *stores, "--kernel", "no such").exit_code == 0


def test_diff_across_methods_has_no_ratio(tmp_path) -> None:
    before = filled(tmp_path / "a", one(1, 1, 5.0)).path
    after = filled(tmp_path / "b", one(1, 2, 1.0, "graph")).path
    (changed,) = run_json("diff", before, after, code=1)["changed"]
    assert changed["ratio"] is None
    assert "never compared" in changed["incomparable"]


def test_merge_takes_the_faster_and_reports_both_values(stores) -> None:
    ours, theirs = stores
    found = run_json("merge", theirs, "--into", ours)
    (conflict,) = found["conflicts"]
    assert (found["added"], found["replaced"], found["kept"], found["same"]) == (1, 1, 0, 1)
    assert conflict["stays"] == "theirs"
    assert (conflict["ours"]["median_us"], conflict["theirs"]["median_us"]) == (5.0, 4.0)
    assert "BLOCK=2" in conflict["theirs"]["config"]
    assert len(list(DirectoryStore(ours).records())) == 4
    assert run_json("merge", theirs, "--into", ours)["same"] == 3


def test_merge_of_several_stores_into_a_new_one_has_all(stores, tmp_path) -> None:
    assert run("merge", *stores, "--into", tmp_path / "new", "--policy", "newer").exit_code == 0
    assert set(winners(DirectoryStore(tmp_path / "new"))) == set(
        winners(DirectoryStore(stores[0])) | winners(DirectoryStore(stores[1]))
    )


def test_a_dry_run_reports_the_same_and_writes_nothing(stores) -> None:
    ours, theirs = stores
    before = content(ours)
    dry = run_json("merge", theirs, "--into", ours, "--dry-run")
    assert not dry.pop("written")
    assert content(ours) == before
    wet = run_json("merge", theirs, "--into", ours)
    assert wet.pop("written")
    assert wet == dry


def test_policy_error_is_exit_1_and_writes_nothing(stores) -> None:
    ours, theirs = stores
    before = content(ours)
    result = run("merge", theirs, "--into", ours, "--policy", "error")
    assert result.exit_code == 1
    assert "nothing was written" in result.stderr
    assert content(ours) == before


def test_conflicts_that_no_policy_can_decide_are_exit_1(tmp_path) -> None:
    ours = filled(tmp_path / "a", one(1, 1, 5.0)).path
    theirs = filled(tmp_path / "b", one(1, 2, 1.0, "graph")).path
    result = run("merge", theirs, "--into", ours)
    assert result.exit_code == 1
    assert "never compared" in result.stdout
    assert "1 conflict left undecided" in result.stderr


def test_unreadable_documents_are_left_out_and_told(stores) -> None:
    ours, theirs = stores
    broken = file_of(DirectoryStore(theirs), one(4, 1, 1.0))
    broken.write_bytes(b"{ broken")
    found = run_json("merge", theirs, "--into", ours, code=1)
    assert [each["place"] for each in found["unreadable"]] == [str(broken)]
    assert found["replaced"] == 1
    assert broken.read_bytes() == b"{ broken"


def test_what_could_not_be_stored_is_in_the_summary(tmp_path) -> None:
    ours = filled(tmp_path / "a", one(1, 1, 5.0)).path
    file_of(DirectoryStore(ours), one(1, 1, 5.0)).write_bytes(b'{"schema": 99}')
    theirs = filled(tmp_path / "b", one(1, 2, 4.0), one(2, 2, 4.0)).path
    result = run("merge", theirs, "--into", ours)
    assert result.exit_code == 1
    assert "2 taken" in result.stdout
    assert "(1 of them not stored)" in result.stdout
    assert "1 record could not be stored" in result.stderr


@pytest.mark.parametrize("name", ["x.bundle", "x.bundle.gz", "deep/er/x"])
def test_a_bundle_carries_a_store_to_another_place(stores, tmp_path, name) -> None:
    assert run_json("export", tmp_path / name, "--store", stores[0])["records"] == 3
    assert run_json("import", tmp_path / name, "--store", tmp_path / "new")["added"] == 3
    new = DirectoryStore(tmp_path / "new")
    assert content(new.path) == content(stores[0])
    assert run_json("import", tmp_path / name, "--store", tmp_path / "new")["same"] == 3


def test_filters_choose_what_is_exported_and_imported(stores, tmp_path) -> None:
    bundle = tmp_path / "x"
    assert run("export", bundle, "--store", stores[0], "--device", "H100").exit_code == 1
    assert not bundle.exists()
    assert run("export", bundle, "--store", stores[0], "--device", "sm_90").exit_code == 0
    found = run_json("import", bundle, "--store", tmp_path / "new", "--kernel", "other")
    assert found["added"] == 0
    assert not (tmp_path / "new").exists()


def test_a_damaged_bundle_is_refused_whole_and_taken_in_part_when_asked(stores, tmp_path) -> None:
    bundle = tmp_path / "x"
    run("export", bundle, "--store", stores[0])
    lines = bundle.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"5.0", b"6.0", 1)
    bundle.write_bytes(b"".join(lines))
    refused = run("import", bundle, "--store", tmp_path / "new")
    assert refused.exit_code == 2
    assert "line 3: its checksum" in refused.stderr
    assert "--partial" in refused.stderr
    assert not (tmp_path / "new").exists()
    found = run_json("import", bundle, "--store", tmp_path / "new", "--partial", code=1)
    assert found["added"] == 2
    assert ["line 3" in each["place"] for each in found["unreadable"]] == [True, False]


def test_import_follows_the_policy(stores, tmp_path) -> None:
    ours, theirs = stores
    run("export", tmp_path / "x", "--store", ours)
    for policy, block in [("ours", 2), ("faster", 2), ("newer", 2), ("theirs", 1)]:
        assert run("import", tmp_path / "x", "--store", theirs, "--policy", policy).exit_code == 0
        assert DirectoryStore(theirs).get(*one(1, 1, 1.0).identity).chosen == config(block)


def test_pin_writes_what_is_chosen_and_says_what_changed(stores, tmp_path) -> None:
    ours, theirs = stores
    lock = tmp_path / "launchkit.lock"
    first = run_json("pin", lock, "--store", ours)
    assert (first["pins"], len(first["added"]), first["written"]) == (3, 3, True)
    assert first["sha256"] == PinnedStore(lock).digest
    assert winners(PinnedStore(lock)) == winners(DirectoryStore(ours))
    assert not run_json("pin", lock, "--store", ours)["written"]
    second = run_json("pin", lock, "--store", theirs)
    assert [len(second[what]) for what in ("added", "removed", "changed")] == [1, 1, 1]
    assert run("diff", lock, theirs).exit_code == 0
    assert run("diff", lock, ours).exit_code == 1


def test_pin_with_a_filter_leaves_the_other_pins_as_they_are(stores, tmp_path) -> None:
    lock = tmp_path / "launchkit.lock"
    run("pin", lock, "--store", stores[0])
    before = lock.read_bytes()
    assert run("pin", lock, "--store", stores[1], "--kernel", "no such").exit_code == 1
    assert lock.read_bytes() == before
    other = one(9, 8, 1.0)
    other = type(other)(other.kernel.__class__("other", "0" * 64), *[
        getattr(other, name) for name in ("device", "toolchain", "key", "configs", "chosen")
    ])  # fmt: skip
    mine = filled(tmp_path / "mine", other).path
    assert run_json("pin", lock, "--store", mine, "--kernel", "other")["pins"] == 4
    assert len(winners(PinnedStore(lock))) == 4


def test_pin_replaces_nothing_that_is_no_lock_file(stores, tmp_path) -> None:
    (tmp_path / "notes.lock").write_text("mine")
    result = run("pin", tmp_path / "notes.lock", "--store", stores[0])
    assert result.exit_code == 2
    assert (tmp_path / "notes.lock").read_text() == "mine"


def test_pin_of_one_toolchain(tmp_path) -> None:
    store = filled(tmp_path / "a", one(1, 1, 5.0, triton="3.6.0"), one(1, 2, 5.0, triton="3.9.0"))
    lock = tmp_path / "x.lock"
    run("pin", lock, "--store", store.path)
    assert [each.chosen for each in PinnedStore(lock).records()] == [config(2)]
    run("pin", lock, "--store", store.path, "--triton", "3.6.0")
    assert [each.chosen for each in PinnedStore(lock).records()] == [config(1)]


def test_a_lock_file_is_a_store_for_every_command(stores, tmp_path) -> None:
    lock = tmp_path / "x.lock"
    run("pin", lock, "--store", stores[0])
    assert run("list", "--store", lock).exit_code == 0
    assert run("show", "state", "--store", f"pins:{lock}").exit_code == 0
    assert run("export", tmp_path / "b", "--store", lock).exit_code == 0
    assert run("merge", lock, "--into", tmp_path / "new").exit_code == 0
    assert winners(DirectoryStore(tmp_path / "new")) == winners(DirectoryStore(stores[0]))
    for command in (
        ["merge", stores[1], "--into", lock],
        ["import", tmp_path / "b", "--store", lock],
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert "read-only" in result.stderr


def test_of_several_layers_the_written_one_is_merged_into(stores, tmp_path) -> None:
    ours, theirs = stores
    lock = tmp_path / "x.lock"
    run("pin", lock, "--store", theirs)
    before = content(theirs), lock.read_bytes()
    found = run_json("merge", theirs, "--into", f"{lock},{ours},{theirs}")
    assert (found["added"], found["replaced"]) == (1, 1)
    assert str(ours) in found["target"]
    assert len(list(DirectoryStore(ours).records())) == 4
    assert (content(theirs), lock.read_bytes()) == before


def test_a_lock_file_that_is_a_link_stays_one(stores, tmp_path) -> None:
    (tmp_path / "link.lock").symlink_to(tmp_path / "real.lock")
    assert run("pin", tmp_path / "link.lock", "--store", stores[0]).exit_code == 0
    assert (tmp_path / "link.lock").is_symlink()
    assert len(winners(PinnedStore(tmp_path / "real.lock"))) == 3


def test_bad_use_is_exit_2_and_no_traceback(stores, tmp_path) -> None:
    ours, theirs = stores
    (tmp_path / "file").write_bytes(b"\xff")
    for arguments in (
        ["merge"],
        ["merge", theirs, "--into", ours, "--policy", "best"],
        ["merge", tmp_path / "file", "--into", ours],
        ["merge", theirs, "--into", tmp_path / "no.lock"],
        ["diff", ours],
        ["diff", ours, "redis://host"],
        ["export", tmp_path, "--store", ours],
        ["export", tmp_path / "file" / "x", "--store", ours],
        ["export", tmp_path / "x", "--store", ours, "--format", "no such"],
        ["export", tmp_path / "x", "--store", ours, "--key-field", "a=b"],
        ["import", tmp_path / "none", "--store", ours],
        ["import", tmp_path, "--store", ours],
        ["import", tmp_path / "file", "--store", ours],
        ["import", tmp_path / "file", "--store", ours, "--partial"],
        ["import", tmp_path / "file", "--store", ours, "--keys", "n"],
        ["import", tmp_path / "file", "--store", ours, "--format", "no such"],
        ["pin", tmp_path, "--store", ours],
        ["pin", tmp_path / "file" / "x.lock", "--store", ours],
        ["pin"],
    ):
        before = content(tmp_path)
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert result.output
        assert content(tmp_path) == before
