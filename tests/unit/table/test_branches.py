"""Branches: made, written to, renamed, taken away; and the table goes on as one of them has gone."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.inspect.health import table_facts
from lsm_engine.planning.health import Depth
from lsm_engine.table.session import TableSession
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.unit.table.history_tables import Story


@pytest.fixture
def table(tmp_path: Path) -> lsm.Table:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "db.t",
            pa.schema([("id", pa.int64()), ("v", pa.string())]),
            primary_key=["id"],
            options={"bucket": 1, "write-only": "true"},
        )
        made.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
        made.create_tag("start")
        yield made


def rows(table: lsm.Table, **asked: object) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.scan(**asked).to_arrow().to_pylist()}


def test_a_branch_goes_its_own_way(table: lsm.Table) -> None:
    table.create_branch("fix", tag="start")
    fix = table.branch("fix")
    assert fix.name == "db.t@fix"
    fix.upsert([{"id": 2, "v": "fixed"}])
    table.upsert([{"id": 3, "v": "main"}])
    assert rows(fix) == {1: "a", 2: "fixed"}
    assert rows(table) == {1: "a", 2: "b", 3: "main"}
    assert [one.id for one in fix.snapshots()] == [1, 2]
    assert table.branches() == ["fix"]
    fix.compact(full=True)
    assert rows(table.branch("fix")) == {1: "a", 2: "fixed"}
    assert table.branch("main").snapshots() == table.snapshots()


def test_older_rows_are_looked_up_with_the_columns_of_their_own_branch(tmp_path: Path) -> None:
    """Both branches have a schema 1, over one data file: in main's its values of v are dropped."""
    options = {"bucket": 1, "merge-engine": "partial-update", "changelog-producer": "lookup"}
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        main = catalog.create_table(
            "db.t",
            pa.schema([("id", pa.int64()), ("v", pa.string())]),
            primary_key=["id"],
            options={**options, "compaction.size-ratio": "0"},
        )
        main.upsert([{"id": key, "v": "old"} for key in range(100)])
        main.compact(full=True)
        main.create_tag("start")
        main.create_branch("side", tag="start")
        side = main.branch("side")
        side.alter(lsm.AddColumn("u", pa.int64()))
        main.alter(
            lsm.DropColumn("v"), lsm.AddColumn("v", pa.string()), lsm.AddColumn("u", pa.int64())
        )
        assert side.schema.id == main.schema.id == 1
        for branch, kept in ((side, "old"), (main, None), (side, "old")):
            branch.upsert([{"id": 1, "u": 7}])
            assert branch.scan(where="id = 1").to_arrow().to_pylist() == [
                {"id": 1, "v": kept, "u": 7}
            ]


def test_maintenance_goes_by_the_schema_of_each_branch(table: lsm.Table) -> None:
    """Both have a schema 1, and each is named with its checksum; that was taken for damage."""
    table.create_branch("fix", tag="start")
    table.branch("fix").alter(lsm.AddColumn("u", pa.int64()))
    fix = table.branch("fix")
    fix.upsert([{"id": 2, "v": "fixed", "u": 1}])
    fix.create_tag("later")
    table.alter(lsm.AddColumn("w", pa.int64()))
    for branch in (table.branch("fix"), table.branch("main")):
        branch.upsert([{"id": 3, "v": "new"}])
        branch.compact(full=True)
        branch.upsert([{"id": 3, "v": "newer"}])
        assert len(branch.expire_snapshots(retain_max=1).snapshot_ids) > 0
        assert not branch.remove_orphan_files(older_than="0 s", force=True).plan.orphans
    main = table.branch("main")
    main.delete_tag("start")
    assert main.verify(deep=True).problems == ()
    assert rows(main) == {1: "a", 2: "b", 3: "newer"}
    assert rows(table.branch("fix")) == {1: "a", 2: "fixed", 3: "newer"}


def test_what_the_trash_holds_of_a_branch_is_read_by_its_schema(table: lsm.Table) -> None:
    table.alter(lsm.SetOption("maintenance.trash-retained", "1 d"))
    table.create_tag("kept")
    table.create_branch("fix", tag="kept")
    table.branch("fix").alter(lsm.AddColumn("u", pa.int64()))
    for number in range(3):
        table.branch("fix").upsert([{"id": 2, "v": "fixed", "u": number}])
    assert table.branch("fix").expire_snapshots(retain_max=1).plan.expired
    table.delete_branch("fix")
    table.branch("main").alter(lsm.AddColumn("w", pa.int64()))
    main = table.branch("main")
    for number in range(3):
        main.upsert([{"id": 1, "v": "a", "w": number}])
    assert main.expire_snapshots(retain_max=1).plan.expired
    main.empty_trash(everything=True)
    assert main.verify(deep=True).problems == ()
    assert rows(table.branch("main")) == {1: "a", 2: "b"}


def test_a_branch_has_the_schemas_of_all_of_its_files(table: lsm.Table) -> None:
    """The tag's snapshot is of a writer who opened the table before it was altered."""
    stale = table.branch("main")
    table.alter(lsm.AddColumn("u", pa.int64()))
    table.branch("main").upsert([{"id": 2, "v": "b", "u": 5}])
    stale.upsert([{"id": 3, "v": "c"}])
    assert stale.latest_snapshot().schema_id == 0
    table.create_tag("mixed")
    table.create_branch("fix", tag="mixed")
    table.branch("fix").alter(lsm.AddColumn("w", pa.int64()))
    found = table.branch("fix").scan(where="id = 2").to_arrow().to_pylist()
    assert found == [{"id": 2, "v": "b", "u": 5, "w": None}]


def test_a_branch_of_what_a_rollback_made_again_names_no_changelog_that_went(
    tmp_path: Path,
) -> None:
    """Expiry took the changelog, and left the files that the tag names, of which a rollback made the snapshot."""
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake"))
    table = catalog.create_table(
        "db.t",
        pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]),
        primary_key=["k"],
        options={"bucket": "1", "changelog-producer": "lookup"},
    )
    table.upsert([{"k": 1, "v": 1}])
    table.create_tag("kept")
    table.upsert([{"k": 2, "v": 2}])
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 ms")
    table.rollback_to(tag="kept")
    table.create_branch("b", "kept")
    assert table.verify(deep=True).is_clean
    assert table.branch("b").scan().to_arrow().to_pylist() == [{"k": 1, "v": 1}]


def test_an_empty_branch_begins_with_the_schema_alone(table: lsm.Table) -> None:
    table.alter(lsm.AddColumn(name="w", type=pa.int32()))
    table.create_branch("new")
    new = table.branch("new")
    assert new.latest_snapshot() is None
    assert new.schema == table.schema
    new.upsert([{"id": 9, "v": "z", "w": 1}])
    assert rows(new) == {9: "z"}


def test_expiry_and_orphan_removal_know_branches(table: lsm.Table) -> None:
    table.create_branch("fix", tag="start")
    table.branch("fix").upsert([{"id": 2, "v": "fixed"}])
    table.delete_tag("start")
    table.upsert([{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
    table.compact(full=True)
    report = table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert [name for name, _ in report.plan.kept_by] == ["tag 'start' of branch 'fix'"]
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    fix = table.branch("fix")
    assert rows(fix) == {1: "a", 2: "fixed"}
    assert fix.verify().is_clean
    fix.compact(full=True)
    fix.delete_tag("start")
    fix.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert rows(table) == {1: "x", 2: "y"}
    assert table.verify().is_clean
    assert fix.verify().is_clean


def test_fast_forward(table: lsm.Table) -> None:
    table.create_branch("fix", tag="start")
    fix = table.branch("fix")
    fix.upsert([{"id": 2, "v": "fixed"}])
    fix.alter(lsm.AddColumn(name="w", type=pa.int32()))
    table.branch("fix").upsert([{"id": 3, "v": "c", "w": 7}])
    table.branch("fix").create_tag("done")
    planned = table.fast_forward("fix", dry_run=True)
    assert [one.id for one in planned.plan.snapshots] == [2, 3]
    assert rows(table) == {1: "a", 2: "b"}
    table.fast_forward("fix")
    assert rows(table) == {1: "a", 2: "fixed", 3: "c"}
    assert table.scan().to_arrow().column_names == ["id", "v", "w"]
    assert {one.name for one in table.tags()} == {"start", "done"}
    assert table.verify().is_clean
    assert table.fast_forward("fix").plan.snapshots == ()
    table.upsert([{"id": 4, "v": "d", "w": 1}])
    assert len(rows(table)) == 4


def test_what_main_has_committed_since_is_not_lost_unasked(table: lsm.Table) -> None:
    table.create_branch("fix", tag="start")
    table.branch("fix").upsert([{"id": 2, "v": "fixed"}])
    table.upsert([{"id": 9, "v": "mine"}])
    table.create_tag("mine")
    before = rows(table)
    with pytest.raises(lsm.CommitConflictError, match="new snapshots since"):
        table.fast_forward("fix")
    assert rows(table) == before
    report = table.fast_forward("fix", force=True)
    assert "lose 1 of its own" in str(report)
    assert rows(table) == {1: "a", 2: "fixed"}
    assert [one.name for one in table.tags()] == ["start"]


def test_a_tag_that_main_loses_does_not_keep_the_branchs_from_it(table: lsm.Table) -> None:
    """Main's tag goes with its snapshot, and the branch's of the same name was left out: another fast-forward's, too."""
    table.create_branch("fix", tag="start")
    table.branch("fix").upsert([{"id": 2, "v": "fixed"}])
    table.branch("fix").create_tag("done")
    table.upsert([{"id": 9, "v": "mine"}])
    table.create_tag("done")
    for _ in range(2):
        table.fast_forward("fix", force=True)
        assert rows(table) == {1: "a", 2: "fixed"}
        assert {tag.name for tag in table.tags()} == {"done", "start"}
        assert rows(table, tag="done") == {1: "a", 2: "fixed"}
        table.upsert([{"id": 9, "v": "mine"}])


def test_strangers_are_not_fast_forwarded(table: lsm.Table) -> None:
    table.create_branch("new")
    table.branch("new").upsert([{"id": 9, "v": "z"}])
    with pytest.raises(lsm.InvalidInputError, match="no snapshot in common"):
        table.fast_forward("new", force=True)
    table.create_branch("fix", tag="start")
    table.branch("fix").alter(lsm.AddColumn(name="theirs", type=pa.int32()))
    table.alter(lsm.AddColumn(name="ours", type=pa.int32()))
    with pytest.raises(lsm.CommitConflictError, match="changed their schema"):
        table.fast_forward("fix")


def test_a_branch_is_taken_away(table: lsm.Table) -> None:
    table.create_branch("fix", tag="start")
    table.branch("fix").upsert([{"id": 2, "v": "fixed"}])
    table.rename_branch("fix", "other")
    assert table.branches() == ["other"]
    assert rows(table.branch("other")) == {1: "a", 2: "fixed"}
    table.delete_branch("other")
    assert table.branches() == []
    assert not (Path(table.location) / "branch" / "branch-other").exists()
    for act in (table.branch, table.delete_branch, table.fast_forward):
        with pytest.raises(lsm.NotFoundError, match="no branch"):
            act("other")
    assert rows(table) == {1: "a", 2: "b"}


def test_what_happens_to_a_branch_while_it_is_renamed_is_not_lost() -> None:
    told = Story()
    told.put(k1="a")
    told.table.create_tag("start")
    told.table.create_branch("fix", "start")

    def meanwhile(call: Call) -> None:
        is_copying = call.path == "branch/branch-other/snapshot/snapshot-1"
        if is_copying and "made meanwhile" not in told.reopened().branch("fix").tag_names():
            told.reopened().branch("fix").create_tag("made meanwhile")

    storage = RecordingFileIO(told.disk, on_call=meanwhile)
    parts = replace(told.parts, file_io=storage)
    table = lsm.Table(TableSession("t", parts, told.reopened().session.schema))
    with pytest.raises(lsm.CommitConflictError, match="changed while it was renamed"):
        table.rename_branch("fix", "other")
    assert table.branches() == ["fix"]
    assert table.branch("fix").tag_names() == ["made meanwhile", "start"]
    table.branch("fix").upsert([{"id": 1, "v": "b"}])  # it goes on by its old name
    table.rename_branch("fix", "other")
    assert table.branch("other").tag_names() == ["made meanwhile", "start"]


@pytest.mark.parametrize(
    "name", ["main", "", "a/b", "..", ".x", "12", "a\nb", "x" * 201, "a\u202eb"]
)
def test_names_that_cannot_be(table: lsm.Table, name: str) -> None:
    with pytest.raises(lsm.InvalidInputError):
        table.create_branch(name)
    assert not (Path(table.location) / "branch").exists()


def test_a_taken_name(table: lsm.Table) -> None:
    table.create_branch("fix")
    with pytest.raises(lsm.AlreadyExistsError):
        table.create_branch("fix", tag="start")
    assert table.branch("fix").latest_snapshot() is None


def test_verify_looks_at_branches_too(table: lsm.Table) -> None:
    table.create_branch("fix", tag="start")
    table.branch("fix").upsert([{"id": 2, "v": "fixed"}])
    assert table.verify().is_clean
    file = table.branch("fix").system("files").column("file_path").to_pylist()
    own = set(file) - set(table.system("files").column("file_path").to_pylist())
    (Path(table.location) / own.pop()).unlink()
    problems = table.verify().problems
    assert problems
    assert all(one.startswith("branch 'fix': snapshot 2") for one in problems)


def test_doctor_goes_on_when_a_branch_is_deleted_meanwhile() -> None:
    """Before each of its reading calls in turn, until it makes no more of them."""
    for at in count(1):
        told = Story()
        told.put(k1="a")
        told.table.create_tag("start")
        for name in ("gone", "stays"):
            told.table.create_branch(name, tag="start")
        is_deleted = False

        def meanwhile(call: Call, told: Story = told, at: int = at) -> None:
            nonlocal is_deleted
            if call.number == at:
                is_deleted = True
                told.table.delete_branch("gone")

        session = told.reopened().session
        storage = RecordingFileIO(told.disk, on_call=meanwhile)
        parts = replace(told.parts, file_io=storage)
        facts = table_facts(TableSession("t", parts, session.schema), Depth.SHALLOW)
        assert facts.problem is None, at
        names = {one.name for one in facts.branches}
        assert {"stays"} <= names <= {"gone", "stays"}, at
        if not is_deleted:
            break
    assert at > 10
