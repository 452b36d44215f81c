"""Records beside the snapshots that cannot be read: all are named, and go by one command."""

from tests.unit.table.history_tables import Story


def test_all_broken_records_of_the_trash_are_found_and_taken_away_together() -> None:
    story = Story(options={"maintenance.trash-retained": "1 d"})
    for value in "abcd":
        story.put(k1=value)
        story.table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    first, second, sound = sorted(story.files("trash/"))
    story.disk.replace(first, b"{")
    story.disk.replace(second, b"")
    report = story.reopened().verify()
    assert {one.path for one in report.damaged_files} == {first, second}
    assert len(report.problems) == 2
    found = story.reopened().remove_broken_records(dry_run=False).found
    assert set(found) == {first, second}
    assert story.files("trash/") == {sound}
    assert story.reopened().verify().is_clean
