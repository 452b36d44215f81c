"""Damaged and missing data files come back from what the table still has; plans count, acts check."""

import pytest

from lsm_engine.options.modes import FileSource
from tests.unit.table.history_tables import Story

ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"},
}


def story(**options: str) -> Story:
    told = Story(options=options)
    told.put(**{f"k{number}": "a" for number in range(60)})
    told.put(**{f"k{number}": "b" for number in range(0, 60, 2)})
    return told


def live_paths(told: Story) -> list[str]:
    session = told.table.session
    return [session.data_path(e) for e in session.live_entries(session.snapshots.latest())]


def damage(told: Story, path: str, how: str) -> None:
    if how == "missing":
        told.disk.delete(path)
    else:
        data = bytearray(told.disk.read(path))
        data[len(data) // 2] ^= 1
        told.disk.replace(path, bytes(data))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["missing", "flipped"])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_compacted_file_is_merged_again_from_its_inputs(
    engine: str, how: str, file_format: str
) -> None:
    told = story(**ENGINES[engine], **{"file.format": file_format})
    told.table.compact(full=True)
    told.table.create_tag("kept")
    rows, newest = told.rows(), told.table.latest_snapshot()
    (path,) = live_paths(told)
    sound = told.disk.read(path)
    damage(told, path, how)
    (found,) = told.table.verify(deep=True).damaged_files
    assert (found.path, found.snapshots, found.tags) == (path, (3,), ("kept",))
    assert any("rebuild" in one for one in found.sources)
    before = told.files()
    plan = told.table.restore_files()
    assert told.files() == before
    assert [(one.is_exact, one.row_count, one.lost_row_count) for one in plan.files] == [
        (True, 60, 0)
    ]
    done = told.table.restore_files(dry_run=False)
    assert (done.lost_row_count, done.snapshot) == (0, None)
    assert told.disk.read(path) == sound
    assert told.rows() == rows == told.rows(tag="kept")
    assert told.table.latest_snapshot() == newest
    told.check()


def lose_what_only_the_newest_has(told: Story) -> None:
    told.clock.advance(10_000_000)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 s")
    (path,) = live_paths(told)
    damage(told, path, "missing")


def test_inputs_that_are_damaged_too_are_made_again_first() -> None:
    told = story()
    told.table.compact(full=True)
    (first,) = live_paths(told)
    told.put(k1="c")
    told.table.compact(full=True)
    rows = told.rows()
    (second,) = live_paths(told)
    damage(told, first, "flipped")
    damage(told, second, "missing")
    assert len(told.table.restore_files(dry_run=False).files) == 2
    assert told.rows() == rows
    assert told.table.verify(deep=True).is_clean


APPENDS = {
    "one bucket": {"bucket": "1", "bucket-key": "id"},
    "unaware of buckets": {"bucket": "-1"},
    "rows deleted": {"bucket": "-1", "deletion-vectors.enabled": "true"},
    "several files": {"bucket": "-1", "target-file-size": "2 kb", "file.compression": "none"},
    "row ids": {"bucket": "-1", "row-tracking.enabled": "true"},
}


@pytest.mark.parametrize("kind", APPENDS)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_files_of_append_tables_are_joined_again_from_their_inputs(
    kind: str, file_format: str
) -> None:
    told = Story(key=(), options={**APPENDS[kind], "file.format": file_format})
    for turn in range(4):
        told.clock.advance(1000)
        told.table.append([{"id": 100 * turn + at, "v": f"{turn} {at}"} for at in range(60)])
    if "deleted" in kind:
        told.table.delete(where="id BETWEEN 110 AND 120")
    told.table.compact(full=True)
    session = told.table.session
    rows, paths = (
        sorted(told.rows().items()),
        [
            session.data_path(entry)
            for entry in session.live_entries(session.snapshots.latest())
            if entry.file.file_source is FileSource.COMPACT
        ],
    )
    assert len(paths) > (kind == "several files" and file_format == "parquet")
    sound = {path: told.disk.read(path) for path in paths}
    for path, how in zip(paths, ["missing", "flipped"] * len(paths), strict=False):
        damage(told, path, how)
    plan = told.table.restore_files()
    assert all(one.is_exact for one in plan.files)
    done = told.table.restore_files(dry_run=False)
    assert (len(done.files), done.lost_row_count, done.snapshot) == (len(paths), 0, None)
    assert {path: told.disk.read(path) for path in paths} == sound
    assert sorted(told.rows().items()) == rows
    told.check()


def test_a_file_of_an_append_table_without_its_inputs_stays_until_it_is_let_go_of() -> None:
    told = Story(key=(), options={"bucket": "-1"})
    for turn in range(3):
        told.table.append([{"id": turn, "v": "x"}])
    told.table.compact(full=True)
    told.clock.advance(10_000_000)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 s")
    (path,) = live_paths(told)
    damage(told, path, "flipped")
    report = told.table.restore_files(dry_run=False)
    assert [(one.source, one.lost_row_count) for one in report.files] == [(None, 3)]
    told.table.remove_damaged_files(dry_run=False)
    assert told.rows() == {}


@pytest.mark.parametrize("how", ["missing", "flipped"])
def test_a_flushed_file_comes_back_from_the_changelog_of_its_commit(how: str) -> None:
    told = story(**{"changelog-producer": "input"})
    rows = told.rows()
    for path in live_paths(told):
        damage(told, path, how)
    done = told.table.restore_files(dry_run=False)
    assert [one.is_exact for one in done.files] == [True, True]
    assert told.rows() == rows
    told.check()


def test_older_rows_take_the_place_of_a_file_whose_origin_is_gone() -> None:
    told = story()
    told.table.compact(full=True)
    told.table.create_tag("kept")
    told.put(k1="new", k100="newer")
    told.table.compact(full=True)
    told.put(k3="newest")
    told.clock.advance(10_000_000)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 s")
    old = told.rows(tag="kept")
    (path,) = [one for one in live_paths(told) if told.disk.read(one) and "data-" in one][:1]
    deepest = max(
        told.table.session.live_entries(told.table.latest_snapshot()),
        key=lambda one: one.file.level,
    )
    path = told.table.session.data_path(deepest)
    damage(told, path, "flipped")
    (found,) = told.table.verify(deep=True).damaged_files
    assert any("tag 'kept'" in one for one in found.sources)
    plan = told.table.restore_files()
    assert (plan.files[0].row_count, plan.files[0].lost_row_count) == (60, 1)
    done = told.table.restore_files(dry_run=False)
    assert done.snapshot is not None
    assert "tag 'kept'" in str(done.files[0])
    assert told.rows() == {**old, 3: "newest"}
    told.check()


def test_rows_that_only_a_branch_has_are_not_restored() -> None:
    told = story()
    told.table.compact(full=True)
    told.table.create_tag("kept")
    told.table.create_branch("fix", "kept")
    old = told.rows(tag="kept")
    branch = told.table.branch("fix")
    for value in "cdef":
        told.clock.advance(1000)
        branch.upsert([{"id": 7, "v": value}])
    told.put(k1="new")
    told.table.compact(full=True)
    lose_what_only_the_newest_has(told)
    done = told.table.restore_files(dry_run=False)
    assert [one.source for one in done.files] == ["tag 'kept'"]
    assert told.rows() == old


def test_what_a_table_shares_with_a_branch_is_restored_to_it() -> None:
    told = story()
    session = told.table.session
    second = session.live_entries(session.snapshots.load(2))
    told.table.compact(full=True)
    told.table.create_tag("kept")
    told.table.create_branch("fix", "kept")
    (path,) = live_paths(told)
    damage(
        told,
        session.data_path(max(second, key=lambda one: one.file.max_sequence_number)),
        "missing",
    )
    damage(told, path, "missing")
    branch = told.table.branch("fix")
    done = branch.restore_files(dry_run=False)
    assert "snapshot 1" in [one.source for one in done.files]
    assert {row["v"] for row in branch.scan().to_arrow().to_pylist()} == {"a"}


def test_rows_that_were_rolled_back_are_not_restored() -> None:
    told = story(**{"maintenance.trash-retained": "30 d"})
    told.table.compact(full=True)
    told.table.create_tag("kept")
    kept = told.table.latest_snapshot()
    assert kept is not None
    old = told.rows()
    told.put(k7="mistake")
    told.table.rollback_to(kept.id)
    new = told.put(k1="new")
    told.table.compact(full=True)
    (path,) = live_paths(told)
    session = told.table.session
    inputs = session.live_entries(session.snapshots.load(new))
    (flushed,) = [session.data_path(one) for one in inputs if one.file.level == 0]
    damage(told, flushed, "missing")
    damage(told, path, "missing")
    told.table.restore_files(dry_run=False)
    assert told.rows() == old


def test_what_nothing_holds_stays_until_it_is_let_go_of() -> None:
    told = story()
    (first, second) = live_paths(told)
    damage(told, second, "flipped")
    for dry_run in (True, False):
        report = told.table.restore_files(dry_run=dry_run)
        assert [(one.source, one.lost_row_count) for one in report.files] == [(None, 30)]
        assert report.snapshot is None
    plan = told.table.remove_damaged_files()
    assert plan.found == (second,)
    assert plan.lost_row_count == 30
    told.table.remove_damaged_files(dry_run=False)
    assert told.rows() == dict.fromkeys(range(60), "a")
    assert first in live_paths(told)


def test_sums_are_not_put_back_twice() -> None:
    """Older rows of an aggregation may be in other files as well: only what is exact is restored."""
    told = story(**ENGINES["aggregation"])
    told.table.compact(full=True)
    told.table.create_tag("kept")
    told.put(k1="c")
    told.table.compact(full=True)
    lose_what_only_the_newest_has(told)
    found = told.table.restore_files(dry_run=False)
    assert found.snapshot is None


CHANGES = {
    "changelog.num-retained.max": "50",
    "changelog.num-retained.min": "50",
    "changelog.time-retained": "30 d",
}


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changelogs_that_outlived_their_snapshots_give_rows_back(producer: str) -> None:
    told = Story(options={"changelog-producer": producer, **CHANGES})
    told.put(**{f"k{number}": "a" for number in range(40)})
    told.table.compact(full=True)
    told.put(**{f"k{number}": "b" for number in range(0, 40, 2)})
    told.clock.advance(1000)
    told.table.delete([{"id": 7}])
    told.table.compact(full=True)
    told.put(k3="c", k50="new")
    told.table.compact(full=True)
    rows = told.rows()
    told.put(k4="newest")
    told.clock.advance(10_000_000)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 s")
    assert told.table.session.changelogs.ids()
    session = told.table.session
    live = session.live_entries(session.snapshots.latest())
    path = session.data_path(max(live, key=lambda one: one.file.level))
    damage(told, path, "missing")
    (found,) = told.table.verify(deep=True).damaged_files
    assert any("rows of its keys are in" in one for one in found.sources)
    plan = told.table.restore_files()
    assert plan.files[0].source is not None
    done = told.table.restore_files(dry_run=False)
    assert done.snapshot is not None
    assert (done.files[0].is_exact, done.files[0].lost_row_count) == (False, 0)
    assert told.rows() == {**rows, 4: "newest"}
    told.clock.advance(10_000_000)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 s")
    assert told.table.verify(deep=True).is_clean


def test_changelogs_and_an_older_state_are_taken_together() -> None:
    told = Story(options={"changelog-producer": "lookup", **CHANGES})
    told.put(**{f"k{number}": "a" for number in range(40)})
    told.table.compact(full=True)
    told.table.create_tag("kept")
    told.put(k1="b", k60="b")
    told.table.compact(full=True)
    told.put(k2="c")
    told.table.compact(full=True)
    rows = told.rows()
    told.clock.advance(10_000_000)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 s")
    for number in told.table.session.changelogs.ids()[:-3]:  # the first load's is gone
        told.table.session.changelogs.delete(number)
    (path,) = live_paths(told)
    damage(told, path, "flipped")
    done = told.table.restore_files(dry_run=False)
    assert "tag 'kept' and" in str(done.files[0].source)
    assert told.rows() == rows


def test_changelogs_of_sums_are_not_put_back() -> None:
    told = story(**ENGINES["aggregation"], **CHANGES, **{"changelog-producer": "lookup"})
    told.table.compact(full=True)
    lose_what_only_the_newest_has(told)
    assert told.table.restore_files(dry_run=False).snapshot is None
