"""compaction.force-rewrite-all-files: a full compaction leaves no file as it was."""

import re

import pytest

import lsm_engine as lsm
from tests.foreign_documents import forget_checksums
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.unit.table.history_tables import Story

FORCED = {"compaction.force-rewrite-all-files": "true"}


def names(story: Story) -> set[str]:
    base = story.table.latest_snapshot()
    return {entry.file.file_name for entry in story.table.session.live_entries(base)}


@pytest.mark.parametrize("forced", [True, False])
def test_files_of_the_last_level_are_written_anew(forced: bool) -> None:
    story = Story(options={"target-file-size": "2 kb", **(FORCED if forced else {})})
    story.put(**{f"k{at}": "text" * 20 for at in range(300)})
    story.table.compact(full=True)
    before = names(story)
    again = story.table.compact(full=True)
    assert (again is not None) is forced
    assert before.isdisjoint(names(story)) is forced
    assert story.table.scan().count() == 300
    check_invariants(StoredTable(story.disk))


def test_files_that_would_only_change_their_level_are_written_anew() -> None:
    story = Story(options={"target-file-size": "1 kb", **FORCED})
    story.put(**{f"k{at}": "text" * 20 for at in range(300)})
    before = names(story)
    story.table.compact(full=True)
    assert before.isdisjoint(names(story))


def test_other_compactions_leave_files_alone() -> None:
    story = Story(options=FORCED)
    story.put(k1="a")
    story.table.compact(full=True)
    assert story.table.compact() is None


@pytest.mark.parametrize(
    "option", ["primary-key.nullable", "pk-clustering-override", "chain-table.enabled"]
)
def test_tables_that_would_be_read_partially_are_refused(option: str) -> None:
    with pytest.raises(lsm.UnsupportedError, match=option):
        Story(options={option: "true"})
    story = Story()
    forget_checksums(story.disk)
    text = story.disk.read("schema/schema-0")
    named = f'"options" : {{"{option}": "true", '.encode()
    changed = re.sub(rb'"options"\s*:\s*\{', named, text)
    assert changed != text
    story.disk.replace("schema/schema-0", changed)
    with pytest.raises(lsm.UnsupportedError, match=option):
        story.reopened().scan().to_arrow()
