"""`lsm doctor` over damage of every document: a command brings the table back to what can be read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.foreign_documents import edited, forget_checksums
from tests.unit.cli.test_doctor import ROWS, aged, data_files, directory, followed, table_of


def snapshot(shell, number: int) -> Path:
    return directory(shell) / "snapshot" / f"snapshot-{number}"


def named(shell, number: int, member: str) -> Path:
    """A metadata file that a snapshot names."""
    return directory(shell) / "manifest" / json.loads(snapshot(shell, number).read_text())[member]


def newest_snapshot_emptied(shell) -> None:
    table_of(shell, commits=4)
    snapshot(shell, 4).write_bytes(b"")
    snapshot(shell, 3).write_bytes(b"{")


def newest_manifest_list_gone(shell) -> None:
    table_of(shell, commits=4)
    named(shell, 4, "deltaManifestList").unlink()
    named(shell, 3, "deltaManifestList").unlink()


def manifest_of_several_gone(shell) -> None:
    table = table_of(shell, commits=4)
    manifests = table.system("manifests", 2).column("file_name").to_pylist()
    first = set(table.system("manifests", 1).column("file_name").to_pylist())
    (second,) = {*manifests} - first
    (directory(shell) / "manifest" / second).unlink()


def newest_vectors_gone(shell) -> None:
    table = table_of(shell, commits=2, deletion__vectors_enabled="true", write__only="false")
    table.compact(full=True)
    table.delete([{"id": 3}])
    table.compact()
    newest = max((directory(shell) / "index").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    newest.unlink()


def gap_between_snapshots(shell) -> None:
    table_of(shell, commits=4)
    snapshot(shell, 2).unlink()


def old_schema_gone(shell) -> None:
    """The newest state has no file of it, as Java's compactions leave it."""
    table_of(shell, commits=3).alter(lsm.AddColumn("more", "INT"))
    table = shell.catalog().table("shop.orders")
    table.overwrite([{**row, "more": 1} for row in ROWS])
    (directory(shell) / "schema" / "schema-0").unlink()


def schema_of_live_files_gone(shell) -> None:
    table_of(shell, commits=2).alter(lsm.AddColumn("more", "INT"))
    shell.catalog().table("shop.orders").upsert([{**row, "more": 1} for row in ROWS])
    (directory(shell) / "schema" / "schema-0").unlink()


def damaged_consumer(shell) -> None:
    table_of(shell, commits=2)
    damaged_consumer_of(shell)


def damaged_consumer_of(shell) -> None:
    folder = directory(shell) / "consumer"
    folder.mkdir(exist_ok=True)
    (folder / "consumer-of whom?").write_text('{"nextSn')


def latest_names_nothing(shell) -> None:
    table_of(shell, commits=2)
    (directory(shell) / "snapshot" / "LATEST").write_text("99")


def tag_without_its_manifest(shell) -> None:
    table = table_of(shell, commits=4)
    table.create_tag("early", 1)
    lost = named(shell, 1, "deltaManifestList")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    lost.unlink()


def snapshot_below_the_newest_torn(shell) -> None:
    table_of(shell, commits=4)
    snapshot(shell, 3).write_bytes(b"{")


def snapshot_torn_and_a_file_of_the_newest_gone(shell) -> None:
    snapshot_below_the_newest_torn(shell)
    newest = max(
        directory(shell).glob("bucket-*/*.parquet"), key=lambda file: file.stat().st_mtime_ns
    )
    newest.unlink()


def every_snapshot_but_a_tag_without_its_manifest(shell) -> None:
    """A consumer beside it cannot be read, which a rollback has to."""
    table = table_of(shell, commits=4)
    table.create_tag("early one", 1)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    named(shell, 4, "deltaManifestList").unlink()
    damaged_consumer_of(shell)


def branch_whose_deletion_died(shell) -> None:
    table = table_of(shell, commits=2)
    table.create_branch("half")
    table.branch("half").upsert(ROWS)
    branch = directory(shell) / "branch" / "branch-half"
    (branch / "schema" / "schema-0").unlink()
    (branch / "snapshot" / "snapshot-1").unlink()
    for file in branch.rglob("*"):
        aged(file)


def earliest_beyond_what_is_kept(shell) -> None:
    table_of(shell, commits=4)
    hint = directory(shell) / "snapshot" / "EARLIEST"
    hint.write_text("4")
    aged(hint)


def damaged_branch(shell) -> None:
    table = table_of(shell, commits=2)
    table.create_branch("try", tag=table.create_tag("t", 1, retained="100 d").name)
    (directory(shell) / "branch" / "branch-try" / "snapshot" / "snapshot-1").write_text("{")


def long_lived_changelogs(shell) -> None:
    table = table_of(
        shell, commits=6, changelog__producer="input", changelog_num__retained_max="9",
        changelog_num__retained_min="9", snapshot_num__retained_max="2", snapshot_num__retained_min="1",
    )  # fmt: skip
    table.expire_snapshots(older_than="0 s")


def damaged_changelog(shell) -> None:
    long_lived_changelogs(shell)
    (directory(shell) / "changelog" / "changelog-2").write_text("{")


def missing_file_of_a_changelog(shell) -> None:
    long_lived_changelogs(shell)
    there = sorted(
        directory(shell).glob("bucket-0/changelog-*"), key=lambda one: one.stat().st_mtime_ns
    )
    there[2].unlink()


def missing_changelog_of_the_newest_snapshot(shell) -> None:
    table_of(shell, commits=3, changelog__producer="input")
    there = sorted(
        directory(shell).glob("bucket-0/changelog-*"), key=lambda one: one.stat().st_mtime_ns
    )
    there[-1].unlink()


def damaged_trash(shell) -> None:
    table = table_of(shell, commits=3, maintenance_trash__retained="1 d")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    (record, *_) = (one for one in directory(shell).rglob("*trash*/*") if one.is_file())
    record.write_text("{")


def damaged_record_of_verified_files(shell) -> None:
    table_of(shell, commits=3).verify(deep=True, incremental=True)
    (record,) = (one for one in directory(shell).rglob("*verified*") if one.is_file())
    record.write_text("{")


def rollback_that_died(shell) -> None:
    """Its seal is there, and the snapshots that it takes are there as well."""
    table = table_of(shell, commits=4)
    kind = type(table.session.snapshots)

    def dies(*_: object) -> None:
        raise OSError("killed")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kind, "delete_state", dies)
        with pytest.raises(OSError, match="killed"):
            table.rollback_to(2)
    assert [snapshot(shell, number).exists() for number in (3, 4, 5)] == [True] * 3


def nothing_but_a_tag_is_left(shell) -> None:
    table = table_of(shell, commits=4)
    table.create_tag("early", 2)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    snapshot(shell, 4).unlink()


def newest_gone_that_a_tag_holds(shell) -> None:
    table_of(shell, commits=4).create_tag("now", 4)
    snapshot(shell, 4).unlink()


def newest_two_gone_and_the_newest_has_a_tag(shell) -> None:
    newest_gone_that_a_tag_holds(shell)
    snapshot(shell, 3).unlink()


def snapshot_below_a_newest_without_manifest_gone(shell) -> None:
    table = table_of(shell, commits=4)
    last, before = (
        {*table.system("manifests", one).column("file_name").to_pylist()} for one in (4, 3)
    )
    for name in last - before:
        (directory(shell) / "manifest" / name).unlink()
    snapshot(shell, 3).unlink()


def newest_is_an_older_one_by_another_number(shell) -> None:
    table_of(shell, commits=4)
    snapshot(shell, 4).write_bytes(edited(snapshot(shell, 3).read_bytes(), id=4))


def older_one_is_another_by_its_number(shell) -> None:
    table_of(shell, commits=5)
    snapshot(shell, 2).write_bytes(edited(snapshot(shell, 1).read_bytes(), id=2))


def lists_exchanged_that_others_wrote(shell) -> None:
    forget_checksums(table_of(shell, commits=4).session.file_io)
    one, other = (named(shell, number, "baseManifestList") for number in (3, 4))
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def branch_whose_newest_snapshot_is_gone(shell) -> None:
    table = table_of(shell, commits=2)
    table.create_branch("try", tag=table.create_tag("t", 1, retained="100 d").name)
    table.branch("try").upsert(ROWS)
    (directory(shell) / "branch" / "branch-try" / "snapshot" / "snapshot-2").unlink()


STORIES = [
    newest_snapshot_emptied, newest_manifest_list_gone, manifest_of_several_gone, newest_vectors_gone,
    gap_between_snapshots, old_schema_gone, schema_of_live_files_gone, damaged_consumer, latest_names_nothing,
    snapshot_below_the_newest_torn, snapshot_torn_and_a_file_of_the_newest_gone,
    every_snapshot_but_a_tag_without_its_manifest, branch_whose_deletion_died, earliest_beyond_what_is_kept,
    tag_without_its_manifest, damaged_branch, damaged_changelog, missing_file_of_a_changelog,
    missing_changelog_of_the_newest_snapshot, damaged_trash,
    damaged_record_of_verified_files, rollback_that_died,
    nothing_but_a_tag_is_left, newest_gone_that_a_tag_holds, newest_two_gone_and_the_newest_has_a_tag,
    snapshot_below_a_newest_without_manifest_gone, newest_is_an_older_one_by_another_number,
    older_one_is_another_by_its_number, branch_whose_newest_snapshot_is_gone, lists_exchanged_that_others_wrote,
]  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_damage_is_mended_by_the_commands_that_doctor_prints(shell, story: Callable) -> None:
    story(shell)
    first = shell.json("doctor", code=1)
    assert all(one["command"] and one["cost"] for one in first if one["severity"] != "note"), first
    followed(shell, "doctor")
    table = shell.catalog().table("shop.orders")
    assert table.verify(deep=True).problems == ()
    assert table.count() > 0
    table.upsert(ROWS)
    table.expire_snapshots()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_fix_keeps_all_snapshots_without_leave_and_mends_all_with_it(
    shell, story: Callable
) -> None:
    story(shell)
    before = {one: one.read_bytes() for one in directory(shell).rglob("snapshot-*")}
    losing = [one for one in shell.json("doctor", code=1) if one["loses"]]
    shell("doctor", "--fix", "--yes", code=(0, 1))
    if losing:
        assert all(one.read_bytes() == data for one, data in before.items())
    shell("doctor", "--fix", "--lossy", "--yes")


@pytest.mark.parametrize("lost", [[5], [3, 5], [4, 5]], ids=str)
def test_snapshots_lost_below_the_newest_cost_no_row(shell, lost: list[int]) -> None:
    table = table_of(shell, commits=5)
    table.upsert([{**ROWS[0], "id": 77}])
    rows = table.to_arrow().sort_by("id")
    for number in lost:
        snapshot(shell, number).unlink()
    followed(shell, "doctor")
    table = shell.catalog().table("shop.orders")
    assert table.to_arrow().sort_by("id") == rows
    assert table.latest_snapshot().id >= 6


def test_a_table_that_lost_its_only_schema_is_damaged_and_not_let_go_of(shell) -> None:
    """By its name in the catalog, as found in the warehouse, and by its path."""
    table_of(shell, commits=2)
    schema = directory(shell) / "schema" / "schema-0"
    kept = schema.read_bytes()
    schema.unlink()
    for _ in range(2):
        (found,) = shell.json("doctor", code=1)
        assert (found["table"], found["kind"], found["command"]) == ("shop.orders", "damage", None)
        assert "schema/schema-0" in found["finding"]
        assert "lost" in shell.json("tables")[0]["problem"]
        (shell.warehouse / "catalog.db").unlink(missing_ok=True)
    assert "restore it from a backup" in shell("verify", directory(shell), code=9).stderr
    schema.write_bytes(kept)
    assert len(shell.json("show", "snapshots", "shop.orders")) == 2


def every_manifest_gone(shell) -> None:
    table_of(shell, commits=4)
    for file in (directory(shell) / "manifest").glob("manifest-[!l]*"):
        file.unlink()


def every_snapshot_torn(shell) -> None:
    table_of(shell, commits=4, changelog__producer="input").reset_consumer("etl", 1)
    for number in range(1, 5):
        snapshot(shell, number).write_text("{")


def every_snapshot_gone(shell) -> None:
    table_of(shell, commits=4).create_tag("broken", 2)
    (directory(shell) / "tag" / "tag-broken").write_text("{")
    for number in range(1, 5):
        snapshot(shell, number).unlink()


@pytest.mark.parametrize("story", [every_manifest_gone, every_snapshot_torn, every_snapshot_gone])
def test_a_table_of_which_nothing_can_be_read_is_emptied_by_leave_alone(shell, story) -> None:
    story(shell)
    files = data_files(shell)
    shell("doctor", "--fix", "--yes", code=1)
    (found,) = [
        one for one in shell.json("doctor", code=1) if one["loses"] and "rows" in one["loses"]
    ]
    assert found["command"] == ["repair", "shop.orders", "purge", "--act", "--yes"]
    followed(shell, "doctor")
    assert data_files(shell) == files  # until orphans are removed
    table = shell.catalog().table("shop.orders")
    assert table.count() == 0
    table.upsert(ROWS)
    assert table.count() == len(ROWS)
    assert table.verify(deep=True).problems == ()


def test_a_compaction_that_meets_damage_names_what_finds_and_mends_it(shell) -> None:
    table_of(shell, commits=6)
    (file, *_) = data_files(shell)
    data = bytearray(file.read_bytes())
    hit = slice(
        len(data) // 6, len(data) // 3
    )  # a single byte may be one of a header, or of a key's copy
    data[hit] = bytes(each ^ 255 for each in data[hit])
    file.write_bytes(data)
    (found,) = shell.json("doctor", "--shallow", code=1)
    refused = shell(*found["command"], code=9).stderr
    assert refused.rstrip().endswith("; look at: lsm doctor shop.orders --deep")
    assert refused == shell("count", "shop.orders", code=9).stderr
    assert "add --deep" in shell("doctor", code=1).stdout
    followed(shell, "doctor", "shop.orders", "--deep")
    shell("count", "shop.orders")


def test_a_manifest_that_is_gone_leads_to_doctor(shell) -> None:
    every_manifest_gone(shell)
    assert (
        "; look at: lsm doctor shop.orders --deep" in shell("count", "shop.orders", code=9).stderr
    )


def test_a_repair_that_finds_nothing_says_so(shell) -> None:
    table_of(shell, commits=2)
    for what in ("latest", "earliest", "records", "missing-files", "damaged-files"):
        assert "nothing to take care of" in shell("repair", "shop.orders", what, "--act").stdout


def test_lineage_is_asked_for_once_the_table_can_be_read(shell) -> None:
    """A question about a table reads its files, those of the damaged one too once it is repaired."""
    table = table_of(shell, commits=4)
    (shell.warehouse / "catalog.db").unlink()
    snapshot(shell, 2).write_bytes(b"{")
    shell.catalog().register_table("shop.orders")
    assert {one["kind"] for one in shell.json("doctor", code=1)} == {"damage"}
    shell("repair", "shop.orders", "earliest", "--act", "--yes")
    assert shell.json("doctor") == []
    live = [snapshot.id for snapshot in table.snapshots()]
    recorded = shell.catalog().lineage.snapshots(lsm.TableName.parse("shop.orders"))
    assert sorted(recorded.column("snapshot_id").to_pylist()) == live
    assert table.count() > 0


def test_a_table_that_this_version_does_not_read_is_named_and_no_damage(shell) -> None:
    table_of(shell, commits=0)
    file = directory(shell) / "schema" / "schema-0"
    schema = json.loads(file.read_text())
    del schema["lsmChecksum"]  # as other clients write it
    schema["options"]["chain-table.enabled"] = "true"
    file.write_text(json.dumps(schema))
    (found,) = shell.json("doctor")
    assert (found["severity"], found["kind"]) == ("note", "options")
    assert "chain-table.enabled" in found["finding"]
    assert "not examined" in found["cost"]
