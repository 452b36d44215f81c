"""Every file that a snapshot of ours leads to is named with a checksum, and read only if it has it."""

import json
from dataclasses import replace
from itertools import combinations, islice
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CorruptFileError, LsmError
from lsm_engine.format.checksum import checksum_of
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.storage.paths import TablePaths
from tests.foreign_documents import forget_checksums, without_checksum
from tests.unit.table.history_tables import Story

FORMATS = ("parquet", "orc", "avro")
VECTORS = {"deletion-vectors.enabled": "true", "write-only": "false"}
CHANGELOG = {"changelog-producer": "input"}


def story(**options: str) -> Story:
    told = Story(options={"manifest.merge-min-count": "3", **options})
    told.put(**{f"k{number}": "a" * 200 for number in range(300)})
    for value in "bcd":
        told.put(k1=value, k2=value)
    return told


def flipped(told: Story, path: str, at: int | None = None) -> Story:
    """The table as another process sees it once a bit of one file has flipped."""
    data = bytearray(told.disk.read(path))
    data[len(data) // 2 if at is None else at] ^= 1
    told.disk.replace(path, bytes(data))
    told.table = told.reopened()
    return told


@pytest.mark.parametrize("file_format", FORMATS)
def test_checksums_are_those_of_the_bytes(file_format: str) -> None:
    told = story(**{"file.format": file_format}, **CHANGELOG)
    told.table.compact(full=True)
    session, paths = told.table.session, TablePaths()
    data_files = 0
    for snapshot in session.snapshots.all():
        assert "lsm.checksums" not in (snapshot.properties or {})
        schema = told.disk.read(paths.schema_file(snapshot.schema_id))
        assert snapshot.checksum_of("schema-0") == checksum_of(schema)
        lists = [
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            snapshot.changelog_manifest_list,
        ]
        for name in filter(None, lists):
            assert snapshot.checksum_of(name) == checksum_of(told.disk.read(paths.manifest(name)))
            for meta in session.manifest_list(snapshot, name):
                stored = told.disk.read(paths.manifest(meta.file_name))
                assert meta.checksum == checksum_of(stored)
                for entry in session.manifests.read_entries(meta):
                    data_files += 1
                    stored = told.disk.read(session.data_path(entry))
                    assert entry.file.checksum == checksum_of(stored)
                    assert (entry.file.footer_checksum is None) == (file_format != "parquet")
    assert data_files > 8


@pytest.mark.parametrize("options", [VECTORS, {"bucket": "-1"}], ids=["vectors", "dynamic"])
def test_index_files_have_checksums_that_live_on(options: dict[str, str]) -> None:
    told = story(**options)
    session, paths = told.table.session, TablePaths()
    for snapshot in session.snapshots.all():
        name = snapshot.index_manifest
        if name is None:
            continue
        assert snapshot.checksum_of(name) == checksum_of(told.disk.read(paths.manifest(name)))
        for entry in session.index_entries(snapshot):
            stored = told.disk.read(paths.index_file(entry.index_file.file_name))
            assert entry.index_file.checksum == checksum_of(stored)


def names_of(told: Story) -> dict[str, str]:
    session, paths = told.table.session, TablePaths()
    head = session.snapshots.latest()
    assert head is not None
    entry = session.live_entries(head)[0]
    found = {
        "snapshot": paths.snapshot_file(head.id),
        "schema": paths.schema_file(0),
        "base list": paths.manifest(head.base_manifest_list),
        "delta list": paths.manifest(head.delta_manifest_list),
        "manifest": paths.manifest(session.manifest_metas(head)[-1].file_name),
        "data": session.data_path(entry),
    }
    if head.index_manifest is not None:
        found["index manifest"] = paths.manifest(head.index_manifest)
        index = session.index_entries(head)[0].index_file.file_name
        found["index"] = paths.index_file(index)
    return found


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    "kind",
    [
        "snapshot",
        "schema",
        "base list",
        "delta list",
        "manifest",
        "data",
        "index manifest",
        "index",
    ],
)
def test_a_flip_is_named_by_readers_and_stops_maintenance(kind: str, file_format: str) -> None:
    options = {**VECTORS, "file.format": file_format}
    size = len(told_bytes(story(**options), kind))
    in_footer = kind == "data" and file_format == "parquet"  # its pages have checksums of their own
    for at in (size - 12,) if in_footer else (size // 3, size // 2, size - 12):
        told = story(**options)
        path = names_of(told)[kind]
        with pytest.raises(CorruptFileError) as caught:
            flipped(told, path, at).rows()  # with a damaged schema the table does not even open
        assert path in str(caught.value)
        if kind in ("data", "index", "schema"):
            continue  # maintenance goes by the other metadata
        told.disk.write_new("bucket-0/data-orphan-0.parquet", b"")
        before = told.files()
        with pytest.raises(LsmError):
            told.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
        with pytest.raises(LsmError):
            told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
        assert told.files() == before


def told_bytes(told: Story, kind: str) -> bytes:
    return told.disk.read(names_of(told)[kind])


def test_parquet_footers_are_compared() -> None:
    told = story()
    path = names_of(told)["data"]
    size = len(told.disk.read(path))
    with pytest.raises(CorruptFileError, match="its checksum differs"):
        flipped(told, path, size - 40).rows()


def test_files_of_one_kind_do_not_pass_for_each_other() -> None:
    told = story()
    paths = TablePaths()
    snapshots = told.table.session.snapshots.all()
    older, newer = snapshots[-2], snapshots[-1]
    for attribute in ("base_manifest_list", "delta_manifest_list"):
        one, other = (paths.manifest(getattr(each, attribute)) for each in (older, newer))
        held = told.disk.read(other)
        told.disk.replace(other, told.disk.read(one))
        told.table = told.reopened()
        with pytest.raises(CorruptFileError, match="its checksum differs"):
            told.rows()
        told.disk.replace(other, held)


def test_snapshots_that_other_clients_write_anew_keep_checksums_of_their_lists() -> None:
    told = story()
    told.table.create_tag("kept")
    members = json.loads(without_checksum(told.disk.read("tag/tag-kept")))
    for newer in ("uuid", "operation", "writerVersion"):
        members.pop(newer, None)  # Java 1.4 does not know them
    told.disk.replace("tag/tag-kept", json.dumps(members).encode())
    head = told.table.session.snapshots.latest()
    assert head is not None
    assert told.rows(tag="kept")[1] == "d"
    with pytest.raises(CorruptFileError, match="its checksum differs"):
        flipped(told, f"manifest/{head.base_manifest_list}").rows(tag="kept")


def test_files_of_others_are_read_unchecked() -> None:
    told = story()
    store = told.table.session.snapshots
    for snapshot in store.all():
        bare = without_checksum(encode_snapshot(replace(snapshot, checksums=None)))
        told.disk.replace(f"snapshot/snapshot-{snapshot.id}", bare)
    schema = without_checksum(told.disk.read("schema/schema-0"))
    told.disk.replace("schema/schema-0", schema)
    told.table = told.reopened()
    assert told.rows()[1] == "d"
    told.put(k1="e")
    assert told.rows()[1] == "e"


def test_a_copy_that_names_another_file_has_no_checksum_of_it() -> None:
    head = story().table.session.snapshots.latest()
    assert head is not None
    moved = replace(head, base_manifest_list="manifest-list-other")
    assert moved.checksum_of(moved.base_manifest_list) is None
    assert b"base=" not in encode_snapshot(moved)
    assert b"base=" in encode_snapshot(head)


def test_a_file_that_is_opened_for_writing_gets_the_checksum_of_its_pieces() -> None:
    assert checksum_of(b"cd", checksum_of(b"ab")) == checksum_of(b"abcd")
    assert checksum_of(pa.py_buffer(b"abcd")) == checksum_of(b"abcd")


def test_a_rescaled_table_is_read_under_the_checksum_of_its_new_schema(tmp_path: Path) -> None:
    """The schema with another number of buckets is a copy of one that was read from a file."""
    with lsm.open_catalog(f"sqlite:///{tmp_path / 'c.db'}", warehouse=str(tmp_path)) as catalog:
        schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64())])
        catalog.create_table("s.t", schema, primary_key=["k"], options={"bucket": "2"})
        table = catalog.table("s.t")  # read from its file
        table.upsert(pa.table({"k": [1, 2, 3], "v": [1, 2, 3]}))
        table.rescale(4)
        table.upsert(pa.table({"k": [4], "v": [4]}))
        assert catalog.table("s.t").scan().count() == 4
        assert catalog.table("s.t").verify(deep=True).is_clean


def test_every_way_to_a_new_schema_leaves_its_checksum_in_the_snapshots_that_follow() -> None:
    told = Story()
    told.put(k1="a")
    told.table.alter(lsm.AddColumn("n", "INT"))
    told.put(k2="b")
    other = told.reopened()
    planned = other.altering(lsm.AddColumn("m", "INT"))
    told.clock.advance(1000)
    told.table.altering(lsm.AddColumn("m", "INT")).upsert([{"id": 3, "v": "c", "m": 1}])
    planned.upsert([{"id": 4, "v": "d", "m": 2}])  # of the schema that the other one published
    told.table = planned
    told.put(k5="e")
    told.table.rescale(2)
    told.put(k6="f")
    found = [
        (head.schema_id, head.checksum_of(f"schema-{head.schema_id}"))
        for head in told.table.session.snapshots.all()
    ]
    # The option follows the rows of a rescale: its own snapshot is of the schema before.
    assert [number for number, _ in found] == [0, 1, 2, 2, 2, 2, 3]
    for number, checksum in found:
        assert checksum == checksum_of(told.disk.read(f"schema/schema-{number}"))
    told.check()


@pytest.mark.parametrize("formerly", [False, True])
def test_branches_have_the_schemas_of_other_clients_byte_by_byte(*, formerly: bool) -> None:
    """Snapshots keep the checksum of the file: one that says the same in other bytes is another."""
    told = Story()
    told.disk.replace("schema/schema-0", without_checksum(told.disk.read("schema/schema-0")))
    told.table = told.reopened()
    told.put(k1="a")
    if formerly:
        told.table.alter(lsm.AddColumn("n", "INT"))
        told.disk.replace("schema/schema-1", without_checksum(told.disk.read("schema/schema-1")))
        told.table = told.reopened()
        told.put(k2="b")
    told.table.create_tag("kept")
    told.table.create_branch("fix", "kept")
    before = told.rows()
    branch = told.reopened().branch("fix")
    assert branch.to_arrow()["v"].to_pylist() == list(before.values())
    branch.alter(lsm.AddColumn("m", "INT"))
    number = branch.schema.id
    path = f"branch/branch-fix/schema/schema-{number}"
    told.disk.replace(path, without_checksum(told.disk.read(path)))
    told.reopened().branch("fix").upsert([{"id": 9, "v": "z", "m": 1}])
    told.table.fast_forward("fix")
    assert told.disk.read(f"schema/schema-{number}") == told.disk.read(path)
    assert told.rows() == {**before, 9: "z"}
    told.check()


def test_verify_compares_schemas_that_are_no_longer_in_force() -> None:
    """One of another client has no checksum of its own: only the snapshots of its time know it."""
    told = Story()
    told.disk.replace("schema/schema-0", without_checksum(told.disk.read("schema/schema-0")))
    told.table = told.reopened()
    told.put(k1="a")
    told.table.alter(lsm.AddColumn("n", "STRING"))
    told.put(k2="b")
    assert told.table.verify().is_clean
    there = told.disk.read("schema/schema-0")
    told.disk.replace("schema/schema-0", there.replace(b'"id": 1', b'"id": 2'))
    assert there != told.disk.read("schema/schema-0")
    report = told.reopened().verify()
    assert [text.split(":")[0] for text in report.problems] == ["snapshot 1"]
    assert "schema/schema-0" in report.problems[0]


def test_properties_that_java_hands_on_to_a_snapshot_of_its_own_are_passed_over() -> None:
    """Its compact_manifest gives them those of the snapshot below: no base and no checksum was the right one."""
    told = Story(options=CHANGELOG)
    for value in "abc":
        told.put(k1=value, k2=value)
    told.table.compact_manifest(dry_run=False)
    paths = TablePaths()
    below, made = (json.loads(told.disk.read(paths.snapshot_file(number))) for number in (3, 4))
    for name in ("uuid", "writerVersion", "operation", "lsmChecksum"):
        made.pop(name, None)
    made["properties"] = {**below["properties"], "theirs": "x"}
    told.disk.replace(paths.snapshot_file(4), json.dumps(made).encode())
    told.table = told.reopened()
    head = told.table.latest_snapshot()
    assert head is not None
    assert (head.id, head.properties, head.checksums) == (4, {"theirs": "x"}, None)
    told.put(k1="d")
    assert told.rows() == {1: "d", 2: "c"}
    assert told.reopened().verify(deep=True).problems == ()


@pytest.mark.parametrize("sizes", [False, True], ids=["java 0.9.0", "java 1.4.2"])
def test_verify_notices_manifest_lists_of_others_that_were_exchanged(*, sizes: bool) -> None:
    """Two of one snapshot, or of two, hold as many files and rows together as before."""
    told = Story(options=CHANGELOG)
    told.put(k1="a", k2="a", k3="a")
    told.put(k1="b", k2="b")
    told.table.compact(full=True)
    told.put(k1="d")
    told.table.compact(full=True)
    forget_checksums(told.disk)
    names: set[str] = set()
    for path in told.files("snapshot/snapshot-"):
        stored = json.loads(told.disk.read(path))
        del stored["properties"]
        for kind in ("base", "delta", "changelog"):
            stored.pop(f"{kind}ManifestListSize", None)
            if name := stored.get(f"{kind}ManifestList"):
                names.add(f"manifest/{name}")
                if sizes:
                    size = len(told.disk.read(f"manifest/{name}"))
                    stored[f"{kind}ManifestListSize"] = size
        told.disk.replace(path, json.dumps(stored).encode())
    assert told.reopened().verify().problems == ()
    pairs = combinations(sorted(names), 2)
    for one, other in islice(pairs, 0, None, 5 if sizes else 2):
        data = told.disk.read(one), told.disk.read(other)
        told.disk.replace(one, data[1])
        told.disk.replace(other, data[0])
        assert (data[0] == data[1]) == told.reopened().verify().is_clean, (one, other)
        told.disk.replace(one, data[0])
        told.disk.replace(other, data[1])
