"""verify lists everything that is wrong with stored bytes, and deep reads every page."""

from dataclasses import replace

import pytest

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.maintenance.findings import VerifyReport
from lsm_engine.maintenance.verify import fingerprint_of
from lsm_engine.maintenance.verify_files import FileToRead, wrong_in_file
from tests.unit.maintenance.test_checksum_chain import (
    CHANGELOG,
    FORMATS,
    VECTORS,
    flipped,
    names_of,
    story,
)
from tests.unit.table.history_tables import Story


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("options", [VECTORS, CHANGELOG, {"bucket": "-1"}])
def test_sound_tables_are_clean(file_format: str, options: dict[str, str]) -> None:
    told = story(**options, **{"file.format": file_format})
    told.table.create_tag("kept")
    read: list[tuple[str, int]] = []
    report = told.table.verify(deep=True, progress=lambda path, count: read.append((path, count)))
    assert report.problems == ()
    assert report.unchecked_count == 0
    assert [count for _, count in read] == list(range(report.file_count))
    assert len({path for path, _ in read}) == report.file_count


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_flip_in_a_data_file_is_found_and_named(file_format: str) -> None:
    told = story(**{"file.format": file_format})
    path = names_of(told)["data"]
    sound = told.disk.read(path)
    for at in range(0, len(sound), max(len(sound) // 40, 1)):
        flipped(told, path, at)
        problems = told.table.verify(deep=True).problems
        assert len(problems) == 4, at
        assert all(path in one and "keys id='0' to id='299'" in one for one in problems)
        assert problems[0].startswith("snapshot 1: ")
        told.disk.replace(path, sound)


def test_damaged_documents_are_listed_and_the_rest_is_looked_at() -> None:
    told = story()
    told.table.create_tag("one", 1)
    told.table.create_tag("two", 2)
    for path in ("snapshot/snapshot-2", "tag/tag-one"):
        flipped(told, path, told.disk.read(path).index(b'"uuid"') + 12)  # it stays JSON
    told.disk.delete(names_of(told)["data"])
    problems = told.table.verify().problems
    assert sum("snapshot-2" in one and "damaged" in one for one in problems) == 1
    assert sum("tag-one" in one and "damaged" in one for one in problems) == 1
    assert sum("is missing" in one for one in problems) == 4  # snapshots 1, 3 and 4, and tag two
    assert not any("snapshots 2 to 2" in one for one in problems)


def test_one_damaged_snapshot_may_be_asked_for() -> None:
    told = story()
    flipped(told, "snapshot/snapshot-2")
    assert told.table.verify(1).is_clean
    (problem,) = told.table.verify(2).problems
    assert "snapshot-2" in problem


def test_files_of_others_count_as_unchecked() -> None:
    told = Story()
    told.put(k1="a")
    session = told.table.session
    (entry,) = session.live_entries(session.snapshots.latest())
    bare = replace(entry, file=replace(entry.file, checksum=None, footer_checksum=None))
    rewrite_delta(told, bare)
    report = told.table.verify(deep=True)
    assert (report.problems, report.unchecked_count) == ((), 1)
    assert "1 of the files without a checksum" in str(report)


def rewrite_delta(told: Story, entry: ManifestEntry) -> None:
    """Make an entry the only one of the newest snapshot's only manifest."""
    session = told.table.session
    head = session.snapshots.latest()
    assert head is not None
    (meta,) = session.manifest_list(head, head.delta_manifest_list)
    written = session.manifests.write("manifest-other-0", [entry], codec="zstd")
    other = replace(
        meta, file_name="manifest-other-0", file_size=written.size, checksum=written.checksum
    )
    size = session.manifests.write_list("manifest-list-other-0", [other], codec="zstd").size
    moved = replace(
        head, delta_manifest_list="manifest-list-other-0", delta_manifest_list_size=size
    )
    told.disk.replace(f"snapshot/snapshot-{head.id}", encode_snapshot(moved))
    told.table = told.reopened()


def wrong(told: Story, **changes: object) -> list[str]:
    """What deep verification finds once a manifest entry says something else about its file."""
    session = told.table.session
    head = session.snapshots.latest()
    assert head is not None
    entry = session.live_entries(head)[0]
    other = replace(entry, file=replace(entry.file, **changes))
    path = session.data_path(entry)
    file = FileToRead(entry=other, path=path, is_changelog=False)
    return list(wrong_in_file(session.context(), file))


def test_rows_are_compared_with_what_the_manifest_says() -> None:
    told = Story()
    told.put(k1="a", k2="b", k3=None)
    session = told.table.session
    (entry,) = session.live_entries(session.snapshots.latest())
    file = entry.file
    assert wrong(told) == []
    assert "first or last key" in wrong(told, min_key=file.max_key)[0]
    assert "sequence numbers" in wrong(told, max_sequence_number=1)[0]
    assert "deletes" in wrong(told, delete_row_count=1)[0]
    assert "rows" in wrong(told, row_count=4)[0]
    counts = replace(file.value_stats, null_counts=(0, 0))
    assert "column 'v' has 1 nulls" in wrong(told, value_stats=counts)[0]
    bounds = replace(file.value_stats, max_values=file.value_stats.min_values)
    assert "column 'id' has values outside" in wrong(told, value_stats=bounds)[0]


def test_bounds_of_other_clients_may_be_wider_than_the_rows() -> None:
    """Java Paimon 0.9 names the last key that a compaction read, whose delete it dropped."""
    told = Story()
    told.put(k1="a", k2="b", k300="c")
    told.put(k2="d", k3="e")
    session = told.table.session
    wide, narrow = [one.file for one in session.live_entries(session.snapshots.latest())]
    told.table.delete([{"id": 300}])
    told.table.compact(full=True)
    (entry,) = session.live_entries(session.snapshots.latest())
    assert (entry.file.row_count, entry.file.max_key) == (3, narrow.max_key)
    assert wrong(told, max_key=wide.max_key, checksum=None) == []
    assert "first or last key" in wrong(told, max_key=wide.max_key)[0]
    assert "first or last key" in wrong(told, max_key=entry.file.min_key, checksum=None)[0]
    assert "first or last key" in wrong(told, min_key=narrow.max_key, checksum=None)[0]


def test_rows_that_wait_for_a_bucket_need_no_order() -> None:
    """Java writes them as they come: tests/interop/test_newest_java_histories."""
    told = Story()
    told.put(k1="a", k2="b", k3=None)
    session = told.table.session
    (entry,) = session.live_entries(session.snapshots.latest())
    ends = replace(entry.file, min_key=entry.file.max_key, max_key=entry.file.min_key)
    content = session.file_io.read(session.data_path(entry))
    for bucket, count in ((0, 1), (-2, 0)):
        other = replace(entry, bucket=bucket, file=ends)
        path = session.data_path(other)
        if bucket < 0:
            session.file_io.write_new(path, content)
        read = FileToRead(entry=other, path=path, is_changelog=False)
        assert len(wrong_in_file(session.context(), read)) == count


def damaged_once(told: Story) -> str:
    (first, *_) = sorted(path for path in told.files("bucket-0") if "data-" in path)
    return first


def test_incremental_passes_over_what_has_not_changed() -> None:
    told = story()
    read: list[str] = []

    def verified() -> VerifyReport:
        read.clear()
        return told.table.verify(
            deep=True, incremental=True, progress=lambda path, _: read.append(path)
        )

    first = verified()
    assert (first.skipped_count, len(read)) == (0, first.read_count)
    again = verified()
    assert (again.read_count, again.skipped_count, read) == (0, first.read_count, [])
    told.put(k1="new")
    report = verified()
    assert (report.read_count, report.is_clean) == (1, True)
    assert told.table.verify(deep=True).skipped_count == 0  # unless asked for, all is read
    # What was changed since is read again, whatever its size.
    path = damaged_once(told)
    told.clock.advance(1)
    flipped(told, path)
    assert path in "".join(verified().problems)
    assert path in read


@pytest.mark.parametrize("what", ["checksum", "size", "entry"])
def test_a_file_of_another_checksum_size_or_entry_is_not_trusted(what: str) -> None:
    told = story()
    session = told.table.session
    entry = session.live_entries(session.snapshots.latest())[0]
    status = told.disk.status(session.data_path(entry))
    before = fingerprint_of(entry.file, status)
    other, moved = entry.file, status
    if what == "checksum":
        other = replace(other, checksum=other.checksum ^ 1)
    elif what == "size":
        moved = replace(status, size=status.size + 1)
    else:
        other = replace(other, max_sequence_number=other.max_sequence_number + 1)
    assert fingerprint_of(other, moved) != before
    assert fingerprint_of(replace(other, checksum=None), moved) is None


def test_a_damaged_record_of_verified_files_is_listed_and_not_followed() -> None:
    told = story()
    told.table.verify(deep=True, incremental=True)
    flipped(told, "verified/verified-files")
    report = told.table.verify(deep=True, incremental=True)
    assert report.skipped_count == 0
    assert "verified-files" in report.problems[0]
    assert told.table.verify(deep=True).is_clean


def test_only_a_deep_verification_is_incremental() -> None:
    with pytest.raises(InvalidInputError, match="deep"):
        story().table.verify(incremental=True)


def test_what_is_wrong_names_its_rows_roots_and_sources() -> None:
    told = story()
    told.table.create_tag("kept", 1)
    told.table.create_branch("dev", tag="kept")
    path = names_of(told)["data"]
    flipped(told, path)
    report = told.table.verify(deep=True)
    (found,) = report.damaged_files
    assert found.path == path
    assert found.stake is not None
    assert (found.stake.row_count, found.stake.bucket) == (300, 0)
    assert (found.stake.min_key, found.stake.max_key) == ({"id": 0}, {"id": 299})
    assert found.snapshots == (1, 2, 3, 4)
    assert found.tags == ("kept",)
    assert found.branches == ("main", "dev")
    assert "snapshots 1 to 4" in str(report)
    rows = told.table.system("damaged_files_deep").to_pylist()
    assert [(row["file_path"], row["record_count"], row["tags"]) for row in rows] == [
        (path, 300, ["kept"])
    ]
    assert told.table.system("damaged_files").num_rows == 0  # its size is right


def test_keys_that_the_hash_index_of_their_bucket_lacks() -> None:
    told = story(bucket="-1")
    session = told.table.session
    head = session.snapshots.latest()
    live = session.live_entries(head)
    (index,) = [entry.index_file for entry in session.index_entries(head)]
    path = session.paths.index_file(index.file_name)
    hashes = told.disk.read(path)
    short = replace(index, file_name="index-short", file_size=len(hashes) - 8, checksum=None)
    short = replace(short, row_count=index.row_count - 2)
    told.disk.replace(session.paths.index_file("index-short"), hashes[:-8])
    wrong_files = [
        wrong_in_file(
            session.context(),
            FileToRead(entry=e, path=session.data_path(e), is_changelog=False, index=short),
        )
        for e in live
    ]
    assert any(
        "2 keys missing in the hash index index-short" in one
        for (one, *_) in filter(None, wrong_files)
    )
    assert told.table.verify(deep=True).is_clean
