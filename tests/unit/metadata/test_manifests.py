"""ManifestStore: what is written is read, what was read is kept, what is damaged is named."""

from pathlib import Path

import pytest

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CorruptFileError,
    NotFoundError,
    UnsafePathError,
)
from lsm_engine.format.avro.container import INDEX_MANIFEST
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.metadata.manifests import ManifestStore
from lsm_engine.options.modes import EntryKind
from lsm_engine.storage.paths import TablePaths
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import RecordingFileIO
from tests.unit.format.avro_cases import encode_container

PATHS = TablePaths(root="t")


def entry(name, kind=EntryKind.ADD):
    file = DataFileMeta(
        file_name=name, file_size=10, row_count=1, min_key=EMPTY_ROW, max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS, value_stats=EMPTY_STATS, min_sequence_number=0,
        max_sequence_number=0, schema_id=0, level=0, creation_millis=5, delete_row_count=0,
    )  # fmt: skip
    return ManifestEntry(kind=kind, partition=EMPTY_ROW, bucket=0, total_buckets=1, file=file)


def meta(name, size, count):
    return ManifestFileMeta(
        file_name=name, file_size=size, added_file_count=count, deleted_file_count=0,
        partition_stats=EMPTY_STATS, schema_id=0,
    )  # fmt: skip


ENTRIES = [entry("data-u-0.parquet"), entry("data-u-1.parquet")]


@pytest.fixture
def disk():
    return RecordingFileIO(MemoryFileIO())


@pytest.fixture
def store(disk):
    return ManifestStore(disk, PATHS)


@pytest.mark.parametrize("codec", ["zstd", "null", "deflate"])
def test_round_trip(store, disk, codec):
    written = store.write("manifest-u-0", ENTRIES, codec=codec)
    size = written.size
    assert size == disk.status("t/manifest/manifest-u-0").size
    listed = meta("manifest-u-0", size, 2)
    assert store.write_list("manifest-list-u-0", [listed], codec=codec).size > 0
    assert store.read_list("manifest-list-u-0") == [listed]
    assert store.read_entries(listed) == ENTRIES
    assert store.read(listed).num_rows == 2
    assert store.write_index("index-manifest-u-0", [], codec=codec).size > 0
    assert store.read_index("index-manifest-u-0") == []


def test_what_was_read_is_kept_by_name(store, disk):
    size = store.write("manifest-u-0", ENTRIES, codec="zstd").size
    store.write_list("manifest-list-u-0", [meta("manifest-u-0", size, 2)], codec="zstd")
    another = ManifestStore(disk, PATHS)
    for _ in range(3):
        (listed,) = another.read_list("manifest-list-u-0")
        assert another.read_entries(listed) == ENTRIES
    assert [call.verb for call in disk.reads] == ["read"] * 2
    another.read_list("manifest-list-u-0").clear()  # the caller's own copy
    assert len(store.read_list("manifest-list-u-0")) == 1


def test_what_was_written_is_kept_as_if_it_had_been_read(store, disk):
    size = store.write("manifest-u-0", ENTRIES, codec="zstd").size
    listed = meta("manifest-u-0", size, 2)
    store.write_list("manifest-list-u-0", [listed], codec="zstd")
    store.write_index("index-manifest-u-0", [], codec="zstd")
    assert store.read_list("manifest-list-u-0") == [listed]
    assert store.read_entries(listed) == ENTRIES
    assert store.read(listed).equals(ManifestStore(disk.inner, PATHS).read(listed))
    assert store.read_index("index-manifest-u-0") == []
    assert not disk.reads


def test_a_large_manifest_is_decoded_when_it_is_asked_for(store, disk):
    entries = [entry(f"data-u-{number}.parquet") for number in range(300)]
    size = store.write("manifest-u-0", entries, codec="zstd").size
    assert store.read_entries(meta("manifest-u-0", size, 300)) == entries
    assert len(disk.reads) == 1


def test_the_cache_is_bounded(disk):
    store = ManifestStore(disk, PATHS, cache_bytes=1)
    store.write("manifest-u-0", ENTRIES, codec="zstd")
    for _ in range(2):
        store.read_entries(meta("manifest-u-0", 1, 2))
    assert len(disk.reads) == 2


def test_entries_that_go_drive_nothing_out(disk):
    store = ManifestStore(disk, PATHS, cache_bytes=60_000)  # one manifest
    for name in ("manifest-u-0", "manifest-u-1"):
        store.write(name, ENTRIES, codec="zstd")
    first, second = meta("manifest-u-0", 1, 2), meta("manifest-u-1", 1, 2)
    store = ManifestStore(disk, PATHS, cache_bytes=60_000)
    store.read(first)
    for _ in range(2):
        assert entries_of(store.read(second, keeps=False)) == ENTRIES
        assert entries_of(store.read(first, keeps=False)) == ENTRIES
    assert [Path(call.path).name for call in disk.reads] == ["manifest-u-0"] + ["manifest-u-1"] * 2


@pytest.mark.parametrize("columns", [None, ["_KIND"]])
def test_an_empty_manifest_is_named(columns):
    disk = MemoryFileIO()
    disk.write_new("t/manifest/manifest-u-0", b"")
    with pytest.raises(CorruptFileError, match=r"empty.*manifest-u-0"):
        ManifestStore(disk, PATHS).read(meta("manifest-u-0", 0, 2), columns)


def test_small_manifests_weigh_what_their_arrays_take(disk):
    # One of two entries takes 50 KB once decoded, and less than one KB of values.
    store = ManifestStore(disk, PATHS, cache_bytes=1 << 20)
    names = [f"manifest-u-{number}" for number in range(60)]
    for name in names:
        store.write(name, ENTRIES, codec="zstd")
        store.read(meta(name, 1, 2))
    before = len(disk.reads)
    for name in reversed(names):
        store.read(meta(name, 1, 2))
    kept = len(names) - (len(disk.reads) - before)
    assert 10 <= kept <= 30


def test_deleted_manifests_are_forgotten(store):
    size = store.write("manifest-u-0", ENTRIES, codec="zstd").size
    listed = meta("manifest-u-0", size, 2)
    store.read(listed)
    assert store.delete("manifest-u-0")
    assert not store.delete("manifest-u-0")
    with pytest.raises(NotFoundError):
        store.read(listed)


def test_names_are_never_written_twice(store):
    store.write("manifest-u-0", ENTRIES, codec="zstd")
    with pytest.raises(AlreadyExistsError):
        store.write("manifest-u-0", [], codec="zstd")


@pytest.mark.parametrize("data", [b"", b"Obj\x01", b"junk" * 100])
def test_damage_is_named(store, disk, data):
    disk.write_new("t/manifest/m", data)
    for read in (lambda: store.read(meta("m", 1, 1)), lambda: store.read_list("m")):
        with pytest.raises(CorruptFileError) as caught:
            read()
        assert "t/manifest/m" in str(caught.value)


def test_names_that_lead_elsewhere_are_refused(store):
    with pytest.raises(UnsafePathError):
        store.read_list("../snapshot/snapshot-1")


def written(store, names):
    metas = []
    for number, name in enumerate(names):
        entries = [entry(f"{name}-{row}.parquet") for row in range(number % 3 + 1)]
        metas.append(meta(name, store.write(name, entries, codec="zstd").size, len(entries)))
    return metas


@pytest.mark.parametrize("of", [None, len])
def test_small_manifests_are_decoded_together_and_each_is_kept(store, disk, of):
    metas = written(store, [f"manifest-{number}" for number in range(150)])
    alone = [ManifestStore(disk, PATHS).read(one) for one in metas]
    fresh = ManifestStore(disk, PATHS)
    found = []
    for one in fresh.ahead(metas, of):
        disk.calls.clear()
        found.append(fresh.read(one))
        assert not disk.calls, "it was not kept"
    assert all(left.equals(right) for left, right in zip(found, alone, strict=True))


def row_counts(entries):
    return [entries.num_rows]


def test_facts_of_manifests_are_those_of_each_and_are_kept(store, disk):
    metas = written(store, [f"manifest-{number}" for number in range(20)])
    fresh = ManifestStore(disk, PATHS)
    assert fresh.fact(metas[3], row_counts) == [1]  # one is known, the others are not
    assert fresh.facts(metas, row_counts) == [[number % 3 + 1] for number in range(20)]
    disk.calls.clear()
    assert fresh.facts(metas[::-1], row_counts) == [[number % 3 + 1] for number in range(20)][::-1]
    assert fresh.facts([], row_counts) == []
    assert not disk.calls, "they were not kept"


@pytest.mark.parametrize(
    "damage",
    ["missing", "bytes", "count", "other schema", "empty"],
)
def test_a_manifest_that_cannot_be_decoded_with_others_is_named(store, disk, damage):
    metas = written(store, ["manifest-a", "manifest-b", "manifest-c"])
    path = "t/manifest/manifest-b"
    data = disk.read(path)
    disk.delete(path)
    match damage:
        case "bytes":
            disk.write_new(path, data[:-30] + bytes(30))
        case "count":
            metas[1] = meta("manifest-b", len(data), 3)
            disk.write_new(path, data)
        case "other schema":
            disk.write_new(path, encode_container(INDEX_MANIFEST, []))
        case "empty":
            disk.write_new(path, b"")
    fresh = ManifestStore(disk, PATHS)
    with pytest.raises((CorruptFileError, NotFoundError), match="manifest-b"):
        list(map(fresh.read, fresh.ahead(metas)))
    for one in (metas[0], metas[2]):
        assert fresh.read(one).num_rows == one.added_file_count


def test_manifests_that_are_decoded_together_stay_kept_each_by_its_own_size():
    storage = MemoryFileIO()
    store = ManifestStore(storage, PATHS)
    metas = []
    for at in range(64):
        entries = [entry(f"f{at}-{row}.parquet") for row in range(100)]
        written = store.write(f"manifest-{at}", entries, codec="zstd")
        metas.append(meta(f"manifest-{at}", written.size, 100))
    reader = ManifestStore(RecordingFileIO(storage), PATHS)
    for _ in range(2):
        assert [reader.read(one).num_rows for one in reader.ahead(metas)] == [100] * 64
    reads = [call for call in reader._file_io.reads if "manifest-" in str(call)]
    assert len(reads) == 64
