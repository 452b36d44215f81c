"""The bytes we write, on file: none missing, none forgotten, and each still reads as it did.

A change of a file here is a change of the format that other clients read. `--rewrite` writes them
anew; review the difference and say in CHANGELOG.md who can read the result.
"""

from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import pytest

from lsm_engine.format.binary_row import decode_row, encode_row
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from lsm_engine.format.documents import (
    decode_consumer,
    decode_schema,
    decode_snapshot,
    decode_tag,
    encode_consumer,
    encode_schema,
    encode_snapshot,
    encode_tag,
)
from lsm_engine.format.index_file import DeletionVectorMeta, IndexFileMeta, IndexManifestEntry
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_file import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
    entries_of,
)
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource
from lsm_engine.options.table_options import TableOptions
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, parse_type

FILES = Path(__file__).parent / "files"

KEY = [parse_type("BIGINT NOT NULL")]
VALUES = [parse_type(text) for text in ("BIGINT NOT NULL", "STRING", "DECIMAL(20, 2)")]
PARTITION = encode_row(["2024-01-02"], [parse_type("STRING NOT NULL")])
FULL_FILE = DataFileMeta(
    file_name="data-00000000-0000-0000-0000-000000000000-0.parquet",
    file_size=1234,
    row_count=3,
    min_key=encode_row([1], KEY),
    max_key=encode_row([3], KEY),
    key_stats=SimpleStats(
        min_values=encode_row([1], KEY), max_values=encode_row([3], KEY), null_counts=(0,)
    ),
    value_stats=SimpleStats(
        min_values=encode_row([1, "a", None], VALUES),
        max_values=encode_row([3, "a longer text", None], VALUES),
        null_counts=(0, 1, None),
    ),
    min_sequence_number=0,
    max_sequence_number=2,
    schema_id=0,
    level=0,
    creation_millis=1_700_000_000_123,
    delete_row_count=1,
    file_source=FileSource.APPEND,
)
ADD = ManifestEntry(
    kind=EntryKind.ADD, partition=PARTITION, bucket=0, total_buckets=2, file=FULL_FILE
)
APPEND = ManifestEntry(
    kind=EntryKind.DELETE,
    partition=EMPTY_ROW,
    bucket=0,
    total_buckets=-1,
    file=DataFileMeta(
        file_name="data-1.orc", file_size=1, row_count=0, min_key=EMPTY_ROW, max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS, value_stats=EMPTY_STATS, min_sequence_number=0,
        max_sequence_number=0, schema_id=0, level=5, extra_files=("data-1.orc.index",),
        embedded_index=b"\x00\xff", value_stats_columns=("k",), external_path="s3://elsewhere/x",
        first_row_id=7, write_columns=("k", "v"),
    ),
)  # fmt: skip
LIST = [
    ManifestFileMeta(
        file_name="manifest-0", file_size=99, added_file_count=2, deleted_file_count=1,
        partition_stats=SimpleStats(min_values=PARTITION, max_values=PARTITION, null_counts=(0,)),
        schema_id=0, min_bucket=0, max_bucket=1, min_level=0, max_level=5, total_buckets=2,
    ),
    ManifestFileMeta(
        file_name="manifest-1", file_size=98, added_file_count=0, deleted_file_count=0,
        partition_stats=EMPTY_STATS, schema_id=1, extra_files=("x",), min_row_id=0, max_row_id=9,
    ),
]  # fmt: skip
INDEX = [
    IndexManifestEntry(
        kind=EntryKind.ADD,
        partition=PARTITION,
        bucket=1,
        index_file=IndexFileMeta(
            index_type="DELETION_VECTORS",
            file_name="index-0",
            file_size=32,
            row_count=2,
            deletion_vectors=(
                DeletionVectorMeta(data_file_name="d0", offset=1, length=22, cardinality=1),
                DeletionVectorMeta(data_file_name="d1", offset=31, length=24),
            ),
        ),
    ),
    IndexManifestEntry(
        kind=EntryKind.ADD,
        partition=EMPTY_ROW,
        bucket=0,
        index_file=IndexFileMeta(index_type="HASH", file_name="index-1", file_size=8, row_count=2),
    ),
]
SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="manifest-list-0",
    base_manifest_list_size=500,
    delta_manifest_list="manifest-list-1",
    delta_manifest_list_size=600,
    index_manifest="index-manifest-0",
    commit_user="golden",
    commit_identifier=9_223_372_036_854_775_807,
    commit_kind=CommitKind.OVERWRITE,
    time_millis=1_700_000_000_123,
    total_record_count=3,
    delta_record_count=3,
    watermark=-1,
    properties={"lsm.run": "é"},
    operation="WRITE",
)
SCHEMA = TableSchema(
    id=0,
    fields=(
        DataField(id=0, name="k", type=parse_type("BIGINT NOT NULL")),
        DataField(id=1, name="dt", type=parse_type("STRING NOT NULL"), description="the day"),
        DataField(
            id=2,
            name="n",
            type=parse_type({
                "type": "MAP",
                "key": "STRING NOT NULL",
                "value": {"type": "ROW", "fields": [{"id": 3, "name": "a", "type": "INT"}]},
            }),
        ),
        DataField(id=4, name="t", type=parse_type("TIMESTAMP(6) WITH LOCAL TIME ZONE")),
        DataField(id=5, name="d", type=parse_type("DECIMAL(20, 2)"), default_value="0"),
    ),
    highest_field_id=5,
    partition_keys=("dt",),
    primary_keys=("dt", "k"),
    options=TableOptions(texts=MappingProxyType({"bucket": "2"})),
    comment="golden",
    time_millis=1_700_000_000_123,
)  # fmt: skip
TAG = Tag(name="t", snapshot=SNAPSHOT, created=(2024, 1, 2, 3, 4, 5, 6), retained_millis=86_400_000)
ROW_TYPES = [
    parse_type(text)
    for text in ("INT", "STRING", "STRING", "DECIMAL(20, 2)", "TIMESTAMP(6)", "BOOLEAN", "DOUBLE")
]
ROW = (7, "short", "rather longer", Decimal("-123456789012345678.90"), None, True, -0.5)

EXAMPLES = {
    "row": (lambda: encode_row(ROW, ROW_TYPES), lambda data: decode_row(data, ROW_TYPES), ROW),
    "manifest": (
        lambda: encode_manifest([ADD, APPEND], codec="null"),
        lambda data: entries_of(decode_manifest(data, file_name="manifest")),
        [ADD, APPEND],
    ),
    "manifest-zstandard": (
        lambda: encode_manifest([ADD, APPEND]),
        lambda data: entries_of(decode_manifest(data, file_name="manifest-zstandard")),
        [ADD, APPEND],
    ),
    "manifest-list": (
        lambda: encode_manifest_list(LIST, codec="null"),
        lambda data: decode_manifest_list(data, file_name="manifest-list"),
        LIST,
    ),
    "manifest-list-empty": (
        lambda: encode_manifest_list([], codec="null"),
        lambda data: decode_manifest_list(data, file_name="manifest-list-empty"),
        [],
    ),
    "index-manifest": (
        lambda: encode_index_manifest(INDEX, codec="null"),
        lambda data: decode_index_manifest(data, file_name="index-manifest"),
        INDEX,
    ),
    "snapshot": (
        lambda: encode_snapshot(SNAPSHOT),
        lambda data: decode_snapshot(data, file_name="snapshot"),
        SNAPSHOT,
    ),
    "schema": (
        lambda: encode_schema(SCHEMA),
        lambda data: decode_schema(data, file_name="schema"),
        SCHEMA,
    ),
    "tag": (
        lambda: encode_tag(TAG),
        lambda data: decode_tag(data, name="t", file_name="tag"),
        TAG,
    ),
    "consumer": (
        lambda: encode_consumer(5, name="c"),
        lambda data: decode_consumer(data, name="c", file_name="consumer"),
        5,
    ),
}

COMPRESSED = {"manifest-zstandard"}
"""Whose bytes may differ with the compressor's version; they must still read."""


def test_no_file_is_missing_or_forgotten(rewrite: bool) -> None:
    if rewrite:
        for name, (encode, _, _) in EXAMPLES.items():
            (FILES / name).write_bytes(encode())
    assert {path.name for path in FILES.iterdir()} == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_bytes_on_file(name: str) -> None:
    encode, decode, value = EXAMPLES[name]
    stored = (FILES / name).read_bytes()
    assert name in COMPRESSED or encode() == stored, "a format change needs a new version"
    assert decode(stored) == value
