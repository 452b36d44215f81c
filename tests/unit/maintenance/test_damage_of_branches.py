"""Damage of a branch, whose ids are those of other snapshots of main: main is not judged by them."""

import pytest

import lsm_engine as lsm
from lsm_engine.inspect.health import table_facts
from lsm_engine.planning.health import Depth, findings
from tests.unit.table.history_tables import Story

CHANGELOGS = {
    "changelog-producer": "input",
    "changelog.num-retained.max": "50",
    "changelog.time-retained": "30 d",
}


def branched(**options: str) -> tuple[Story, lsm.Table]:
    """A table of four snapshots, and a branch "work" that goes on from the second up to the sixth."""
    told = Story(options=options)
    for number in range(4):
        told.put(**{f"k{number}": "a"})
    told.table.create_tag("start", 2)
    told.table.create_branch("work", tag="start")
    told.table.delete_tag("start")
    work = told.table.branch("work")
    for number in range(4):
        told.clock.advance(1000)
        work.upsert([{"id": number, "v": "b"}])
    return told, work


def test_a_broken_changelog_of_a_branch_costs_main_none() -> None:
    told, work = branched(**CHANGELOGS)
    for table in (told.table, work):
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert told.table.session.changelogs.ids() == [1, 2, 3]
    broken = work.session.paths.changelog_file(5)
    told.disk.replace(broken, b"{")
    before = told.files()
    assert told.reopened().remove_broken_records().found == ()
    told.reopened().remove_broken_records(dry_run=False)
    assert told.files() == before
    assert [one.path for one in told.reopened().verify().damaged_files] == [broken]
    of_branch = told.reopened().branch("work").remove_broken_records(dry_run=False).found
    assert broken in of_branch
    assert told.table.session.changelogs.ids() == [1, 2, 3]
    assert told.reopened().verify().is_clean


def test_a_file_that_breaks_changelogs_of_both_costs_main_only_its_own() -> None:
    """Changelog 2 of main and the branch's 2 to 5 are one entry of the report."""
    told, work = branched(**CHANGELOGS)
    for table in (told.table, work):
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    shared = {
        name
        for session in (told.table.session, work.session)
        if (one := session.changelogs.find(2)) is not None
        and (name := one.changelog_manifest_list) is not None
    }
    (name,) = shared
    told.disk.delete(told.table.session.paths.manifest(name))
    told.disk.replace(work.session.paths.changelog_file(5), b"{")
    (own,) = told.reopened().verify().own_damaged_files
    assert (own.changelogs, own.branches) == ((2,), ("main",))
    told.reopened().remove_broken_records(dry_run=False)
    assert told.table.session.changelogs.ids() == [3]


def test_a_manifest_that_a_branch_needs_does_not_roll_main_back() -> None:
    """Main's newest snapshot has the id of a snapshot of the branch, which needs the file."""
    told, work = branched()
    told.table.compact(full=True)
    told.table.compact_manifest(dry_run=False)
    newest = told.table.session.snapshots.latest()
    second = told.table.session.snapshots.find(2)
    assert newest is not None
    assert second is not None
    assert newest.id == 6 == work.session.snapshots.listed_ids()[-1]
    (meta,) = told.table.session.manifest_list(second, second.delta_manifest_list)
    lost = told.table.session.paths.manifest(meta.file_name)
    told.disk.delete(lost)
    before = told.rows()
    table = told.reopened()
    (merged,) = [one for one in table.verify().damaged_files if one.path == lost]
    assert newest.id in merged.snapshots
    facts = table_facts(table.session, Depth.WHOLE)
    assert not any(one.in_newest for one in facts.damage)
    assert facts.whole_id == newest.id
    commands = [one.command for one in findings(facts)]
    assert commands
    assert not any("rollback" in command for command in commands)
    table.repair_earliest_snapshot(dry_run=False)
    assert told.rows() == before
    assert table_facts(told.reopened().session, Depth.WHOLE).damaged_branches == ("work",)


def with_tags() -> Story:
    """Main has the tags "start", "mine" and "both"; the branch has "start", "theirs" and a "both" of its own."""
    told, work = branched()
    told.table.create_tag("mine", 1)
    told.table.create_tag("both", 4)
    work.create_tag("theirs", 6)
    work.create_tag("both", 4)
    return told


WORK = "branch/branch-work/"


@pytest.mark.parametrize(
    ("at", "of"),
    [
        (f"{WORK}tag/tag-theirs", "tag/tag-mine"),
        ("tag/tag-mine", f"{WORK}tag/tag-theirs"),
        ("tag/tag-mine", f"{WORK}tag/tag-start"),
    ],
)
def test_no_tag_passes_for_one_of_another_branch(at: str, of: str) -> None:
    told = with_tags()
    told.disk.replace(at, told.disk.read(of))
    table = told.reopened().branch("work") if at.startswith(WORK) else told.reopened()
    with pytest.raises(lsm.CorruptFileError, match="that of tag"):
        table.scan(tag=at.rpartition("tag-")[2])
    assert at in str(told.reopened().verify().problems)
    with pytest.raises(lsm.CorruptFileError):
        table.expire_snapshots(retain_max=1, retain_min=1)


def test_tags_that_main_and_a_branch_have_exchanged_are_refused() -> None:
    told = with_tags()
    mine, theirs = told.disk.read("tag/tag-mine"), told.disk.read(f"{WORK}tag/tag-theirs")
    told.disk.replace("tag/tag-mine", theirs)
    told.disk.replace(f"{WORK}tag/tag-theirs", mine)
    found = str(told.reopened().verify().problems)
    assert "tag/tag-mine" in found
    assert f"{WORK}tag/tag-theirs" in found


@pytest.mark.parametrize(("at", "of"), [(WORK, ""), ("", WORK)])
def test_a_tag_of_one_name_in_two_branches_is_told_by_its_snapshot(at: str, of: str) -> None:
    told = with_tags()
    assert told.reopened().verify().warnings == ()
    told.disk.replace(f"{at}tag/tag-both", told.disk.read(f"{of}tag/tag-both"))
    (warning,) = told.reopened().verify().warnings
    assert "tag 'both' is of another snapshot 4 than the one that is there" in warning


def test_tags_that_other_clients_copy_and_rename_are_read() -> None:
    """Java Paimon copies the files of tags to a branch that it makes, and back as it fast-forwards main."""
    told = with_tags()
    table = told.reopened()
    table.rename_branch("work", "play")
    play = told.reopened().branch("play")
    assert play.scan(tag="theirs").to_arrow().num_rows == 4
    own = "branch/branch-play/tag/tag-"
    told.disk.replace("tag/tag-theirs", told.disk.read(f"{own}theirs"))
    assert told.reopened().scan(tag="theirs").to_arrow().num_rows == 4
    told.disk.replace(f"{own}mine", told.disk.read("tag/tag-mine"))
    assert told.reopened().branch("play").scan(tag="mine").to_arrow().num_rows == 1
    told.disk.replace(f"{own}renamed", told.disk.read(f"{own}start"))
    told.disk.delete(f"{own}start")
    assert told.reopened().branch("play").scan(tag="renamed").to_arrow().num_rows == 2
    assert told.reopened().verify().problems == ()


@pytest.mark.parametrize("number", [3, 4])
@pytest.mark.parametrize(("at", "of"), [(WORK, ""), ("", WORK)])
def test_no_snapshot_passes_for_that_of_another_branch_unnoticed(
    at: str, of: str, number: int
) -> None:
    """Their ids are the same; each names the one it was made on."""
    told, _ = branched()
    told.disk.replace(
        f"{at}snapshot/snapshot-{number}", told.disk.read(f"{of}snapshot/snapshot-{number}")
    )
    table = told.reopened().branch("work") if at else told.reopened()
    with pytest.raises(lsm.CorruptFileError, match="missing that snapshot 4 was made on"):
        table.scan(snapshot_id=4).to_arrow()
    problems = told.reopened().verify().problems
    assert any(
        "snapshot 4: it was not made on the snapshot 3 that is there" in one for one in problems
    )
