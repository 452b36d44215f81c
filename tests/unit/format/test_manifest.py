"""Manifests: whole entries back, what others leave out, and what they must not say."""

import copy
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.format.avro.container import INDEX_MANIFEST, MANIFEST, MANIFEST_LIST
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_columns import MANIFEST_COLUMNS, MANIFEST_LIST_COLUMNS, rows_of
from lsm_engine.format.manifest_file import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    decode_manifest_list_table,
    encode_manifest,
    encode_manifest_list,
    entries_of,
)
from lsm_engine.options.modes import EntryKind, FileSource
from tests.unit.format.avro_cases import encode_container

longs = st.integers(0, 2**63 - 1)
rows = st.binary(min_size=1, max_size=30)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
text_lists = st.lists(texts, max_size=3).map(tuple)
stats = st.builds(
    lambda low, high, counts: SimpleStats(
        min_values=low, max_values=high, null_counts=tuple(counts)
    ),
    rows,
    rows,
    st.lists(st.none() | longs, max_size=4),
)
data_files = st.builds(
    DataFileMeta,
    file_name=st.sampled_from(["data-a-0.parquet", "é", "changelog-1.orc"]),
    file_size=longs, row_count=longs, min_key=rows, max_key=rows, key_stats=stats,
    value_stats=stats, min_sequence_number=st.just(0), max_sequence_number=longs, schema_id=longs,
    level=st.integers(0, 5), extra_files=text_lists, creation_millis=st.none() | longs,
    delete_row_count=st.none() | longs, embedded_index=st.none() | st.binary(max_size=9),
    file_source=st.none() | st.sampled_from(FileSource),
    value_stats_columns=st.none() | text_lists, external_path=st.none() | texts,
    first_row_id=st.none() | longs, write_columns=st.none() | text_lists,
)  # fmt: skip
entry_lists = st.lists(
    st.builds(
        ManifestEntry,
        kind=st.sampled_from(EntryKind),
        partition=rows,
        bucket=st.just(-2) | st.integers(0, 2**31 - 1),
        total_buckets=st.integers(-2, 9),
        file=data_files,
    ),
    max_size=4,
)


@given(entry_lists, st.sampled_from(["zstandard", "deflate", "null"]))
def test_entries_come_back(entries: list[ManifestEntry], codec: str) -> None:
    data = encode_manifest(entries, codec=codec)
    table = decode_manifest(data, file_name="m", expected_count=len(entries))
    assert table.column_names == list(MANIFEST_COLUMNS)
    assert entries_of(table) == entries
    # What a writer keeps of its own manifest is what a reader of the file gets.
    assert entries_of(rows_of(entries, with_stats=True)) == entries
    assert rows_of(entries, with_stats=True).schema == table.schema


FILE = DataFileMeta(
    file_name="d", file_size=1, row_count=1, min_key=EMPTY_ROW, max_key=EMPTY_ROW,
    key_stats=EMPTY_STATS, value_stats=EMPTY_STATS, min_sequence_number=0, max_sequence_number=1,
    schema_id=0, level=0, creation_millis=1000, delete_row_count=0, value_stats_columns=("k",),
)  # fmt: skip
ENTRY = ManifestEntry(kind=EntryKind.ADD, partition=EMPTY_ROW, bucket=0, total_buckets=1, file=FILE)
META = ManifestFileMeta(
    file_name="m", file_size=1, added_file_count=1, deleted_file_count=0,
    partition_stats=EMPTY_STATS, schema_id=0,
)  # fmt: skip
OPTIONAL = st.none() | st.integers(0, 2**31 - 1)


@given(st.lists(st.builds(
    ManifestFileMeta, file_name=st.just("m"), file_size=longs, added_file_count=longs,
    deleted_file_count=longs, partition_stats=stats, schema_id=longs, min_bucket=OPTIONAL,
    max_bucket=OPTIONAL, min_level=OPTIONAL, max_level=OPTIONAL, min_row_id=OPTIONAL,
    max_row_id=OPTIONAL, total_buckets=OPTIONAL, extra_files=st.none() | text_lists,
), max_size=4))  # fmt: skip
def test_manifest_lists_come_back(metas: list[ManifestFileMeta]) -> None:
    assert decode_manifest_list(encode_manifest_list(metas), file_name="l") == metas


def test_some_columns() -> None:
    data = encode_manifest([ENTRY])
    table = decode_manifest(data, file_name="m", columns=["_BUCKET", "_FILE._FILE_NAME"])
    assert table.to_pydict() == {"_BUCKET": [0], "_FILE._FILE_NAME": ["d"]}


def without(schema: Any, *names: str) -> Any:
    """A copy of a manifest's schema as an older writer had it."""
    made = copy.deepcopy(schema)
    records = [made, *(f["type"] for f in made["fields"] if isinstance(f["type"], dict))]
    for record in records:
        if "fields" in record:
            record["fields"] = [f for f in record["fields"] if f["name"] not in names]
    return made


OLD = [name.rpartition(".")[2] for name, column in MANIFEST_COLUMNS.items()
       if not column.required and "_STATS." not in name]  # fmt: skip


def entry_record(**changes: Any) -> dict[str, Any]:
    """An entry as an Avro record; changes to the file's members by name, `_FILE` apart."""
    record = {
        "_VERSION": 2, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": 0, "_TOTAL_BUCKETS": 1,
        "_FILE": {
            "_FILE_NAME": "d", "_FILE_SIZE": 1, "_ROW_COUNT": 1, "_MIN_KEY": EMPTY_ROW,
            "_MAX_KEY": EMPTY_ROW,
            "_KEY_STATS": {"_MIN_VALUES": EMPTY_ROW, "_MAX_VALUES": EMPTY_ROW, "_NULL_COUNTS": []},
            "_VALUE_STATS": {"_MIN_VALUES": EMPTY_ROW, "_MAX_VALUES": EMPTY_ROW, "_NULL_COUNTS": []},
            "_MIN_SEQUENCE_NUMBER": 0, "_MAX_SEQUENCE_NUMBER": 1, "_SCHEMA_ID": 0, "_LEVEL": 0,
            "_EXTRA_FILES": [],
        },
    }  # fmt: skip
    for name, value in changes.items():
        target = record if name in record else record["_FILE"]
        target[name] = value
    return record


def test_columns_that_a_writer_left_out_are_null() -> None:
    data = encode_container(without(MANIFEST, *OLD), [entry_record()])
    table = decode_manifest(data, file_name="m")
    assert {name: table.schema.field(name).type for name in table.column_names} == {
        name: column.kind for name, column in MANIFEST_COLUMNS.items()
    }
    bare = replace(FILE, creation_millis=None, delete_row_count=None, value_stats_columns=None)
    assert entries_of(table) == [replace(ENTRY, file=bare)]


def test_an_empty_manifest_has_all_columns() -> None:
    table = decode_manifest(encode_manifest([]), file_name="m")
    assert (table.num_rows, table.column_names) == (0, list(MANIFEST_COLUMNS))
    listed = decode_manifest_list_table(encode_manifest_list([]), file_name="l")
    assert (listed.num_rows, listed.column_names) == (0, list(MANIFEST_LIST_COLUMNS))


def test_statistics_records_may_be_null_and_the_record_in_a_union() -> None:
    schema = copy.deepcopy(MANIFEST)
    (file,) = (f["type"] for f in schema["fields"] if f["name"] == "_FILE")
    for field in file["fields"]:
        if field["name"] in ("_KEY_STATS", "_VALUE_STATS"):
            field["type"] = ["null", field["type"]]
    record = entry_record(_KEY_STATS=None, _VALUE_STATS=None)
    data = encode_container(["null", schema], [record])
    (entry,) = entries_of(decode_manifest(data, file_name="m"))
    nothing = SimpleStats(min_values=b"", max_values=b"", null_counts=None)
    assert (entry.file.key_stats, entry.file.value_stats) == (nothing, nothing)


def test_a_creation_time_without_its_logical_type() -> None:
    schema = json.loads(json.dumps(MANIFEST).replace(', "logicalType": "timestamp-millis"', ""))
    data = encode_container(schema, [entry_record(_CREATION_TIME=1000)])
    (entry,) = entries_of(decode_manifest(data, file_name="m"))
    assert entry.file.creation_millis == 1000


def test_a_source_of_later_versions_says_nothing() -> None:
    data = encode_container(MANIFEST, [entry_record(_FILE_SOURCE=7)])
    assert entries_of(decode_manifest(data, file_name="m"))[0].file.file_source is None


BAD_ENTRIES = [
    {"_KIND": 2}, {"_KIND": -1}, {"_FILE_NAME": "../x"}, {"_FILE_NAME": ".."}, {"_FILE_NAME": ""},
    {"_FILE_NAME": "a\\b"}, {"_FILE_NAME": "a\0"}, {"_FILE_SIZE": -1}, {"_ROW_COUNT": -1},
    {"_LEVEL": -1}, {"_DELETE_ROW_COUNT": -1}, {"_MIN_SEQUENCE_NUMBER": 2}, {"_BUCKET": -1}, {"_BUCKET": -7},
]  # fmt: skip


@pytest.mark.parametrize("changes", BAD_ENTRIES, ids=str)
def test_entries_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    good = entry_record()
    data = encode_container(MANIFEST, [good, entry_record(**changes)])
    with pytest.raises(CorruptFileError, match="manifest-7"):
        decode_manifest(data, file_name="manifest-7")


@pytest.mark.parametrize("version", [1, 3])
def test_other_versions_are_refused(version: int) -> None:
    data = encode_container(MANIFEST, [entry_record(_VERSION=version)])
    with pytest.raises(UnsupportedError, match=f"{version}.*is not 2"):
        decode_manifest(data, file_name="m")


@pytest.mark.parametrize("name", ["_VERSION", "_KIND", "_FILE_NAME", "_LEVEL", "_FILE"])
def test_missing_columns_are_named(name: str) -> None:
    schema = without(MANIFEST, name)
    with pytest.raises(CorruptFileError, match="version" if name == "_VERSION" else name):
        decode_manifest(encode_container(schema, []), file_name="m")


@pytest.mark.parametrize("kind", ["string", ["null", "long"], {"type": "array", "items": "long"}])
def test_columns_of_other_types_are_named(kind: Any) -> None:
    schema = copy.deepcopy(MANIFEST)
    for field in schema["fields"]:
        if field["name"] == "_BUCKET":
            field["type"] = kind
    bucket = {"string": "0", "['null', 'long']": None}.get(str(kind), [0])
    data = encode_container(schema, [entry_record(_BUCKET=bucket)])
    with pytest.raises(CorruptFileError, match="_BUCKET"):
        decode_manifest(data, file_name="m")


def test_another_count_than_the_list_says() -> None:
    with pytest.raises(CorruptFileError, match="as many entries"):
        decode_manifest(encode_manifest([ENTRY]), file_name="m", expected_count=2)


def test_lists_that_lie() -> None:
    for meta in (replace(META, file_name="a/b"), replace(META, added_file_count=-1)):
        with pytest.raises(CorruptFileError, match="list-7"):
            decode_manifest_list(encode_manifest_list([meta]), file_name="list-7")
    other = encode_container(MANIFEST, [entry_record()])
    with pytest.raises(CorruptFileError, match="_FILE_NAME"):
        decode_manifest_list(other, file_name="list-7")


def index_record(**changes: Any) -> dict[str, Any]:
    return {
        "_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": 0, "_INDEX_TYPE": "HASH",
        "_FILE_NAME": "index-0", "_FILE_SIZE": 4, "_ROW_COUNT": 1,
    } | changes  # fmt: skip


@pytest.mark.parametrize("nullable", [True, False])
def test_ranges_as_java_and_as_python_write_them(nullable: bool) -> None:
    schema = without(INDEX_MANIFEST)
    for field in schema["fields"]:
        if field["name"] == "_DELETIONS_VECTORS_RANGES":
            record = copy.deepcopy(field["type"][1]["items"][1])
            record["fields"] = record["fields"][: 3 if nullable else 4]
            field["type"][1]["items"] = ["null", record] if nullable else record
    ranges = [{"f0": "d", "f1": 1, "f2": 22}]
    stored = [index_record(_DELETIONS_VECTORS_RANGES=ranges), index_record()]
    first, second = decode_index_manifest(encode_container(schema, stored), file_name="i")
    assert [v.data_file_name for v in first.index_file.deletion_vectors or ()] == ["d"]
    assert second.index_file.deletion_vectors is None


def test_index_manifests_that_lie() -> None:
    for changes in ({"_KIND": 9}, {"_FILE_NAME": "../x"}, {"_FILE_SIZE": -1}, {"_ROW_COUNT": -1}):
        data = encode_container(INDEX_MANIFEST, [index_record(**changes)])
        with pytest.raises(CorruptFileError, match="index-7"):
            decode_index_manifest(data, file_name="index-7")
    with pytest.raises(UnsupportedError, match="version"):
        decode_index_manifest(
            encode_container(INDEX_MANIFEST, [index_record(_VERSION=2)]), file_name="i"
        )


def test_many_entries_in_many_blocks() -> None:
    entries = [
        replace(ENTRY, bucket=i, file=replace(FILE, file_name=f"data-{i}")) for i in range(20_000)
    ]
    data = encode_manifest(entries)
    table = decode_manifest(data, file_name="m", columns=["_BUCKET"])
    assert table.column("_BUCKET").equals(pa.chunked_array([list(range(20_000))], pa.int32()))
    assert decode_manifest_list(encode_manifest_list([META]), file_name="l") == [META]
    assert MANIFEST_LIST["fields"][0]["name"] == "_VERSION"
