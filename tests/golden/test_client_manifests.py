"""Every manifest that real clients wrote: what it says, byte for byte, and what it says of files."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.format.avro.container import read_container, unpacked
from lsm_engine.format.binary_row import decode_columns, encode_rows, encode_stored, key_order
from lsm_engine.format.documents import decode_schema, decode_snapshot
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.manifest_file import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
    entries_of,
)
from lsm_engine.format.partition_path import partition_path
from lsm_engine.format.stats import StatsCollector, StatsMode, stats_modes
from lsm_engine.kernels.buckets import bucket_of, murmur32
from lsm_engine.options import core_options
from lsm_engine.options.modes import EntryKind
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataType
from tests.golden.client_tables import TABLES, files

LISTS = files("manifest/manifest-list-*")
INDEXES = files("manifest/index-manifest-*")
MANIFESTS = {name: path for name, path in files("manifest/manifest-*").items() if name not in LISTS}


def by_fastavro(path: Path) -> Iterator[Any]:
    found = read_container(path.read_bytes(), file_name=path.name)
    schema = fastavro.parse_schema(found.schema)
    for block, data in unpacked(found):
        source = io.BytesIO(data)
        for _ in range(block.row_count):
            yield fastavro.schemaless_reader(source, schema, None)


def schemas_of(table: Path) -> dict[int, TableSchema]:
    found = [decode_schema(p.read_bytes(), file_name=p.name) for p in table.glob("schema/schema-*")]
    return {schema.id: schema for schema in found}


def entries(table: Path) -> list[ManifestEntry]:
    found: list[ManifestEntry] = []
    for path in sorted(table.glob("manifest/manifest-*")):
        if not path.name.startswith("manifest-list"):
            found += entries_of(decode_manifest(path.read_bytes(), file_name=path.name))
    return found


def test_manifest_lists() -> None:
    for name, path in LISTS.items():
        metas = decode_manifest_list(path.read_bytes(), file_name=name)
        theirs = list(by_fastavro(path))
        assert [m.file_name for m in metas] == [r["_FILE_NAME"] for r in theirs], name
        assert [m.deleted_file_count for m in metas] == [r["_NUM_DELETED_FILES"] for r in theirs]
        assert [m.min_bucket for m in metas] == [r.get("_MIN_BUCKET") for r in theirs]
        ours = encode_manifest_list(metas)
        assert decode_manifest_list(ours, file_name=name) == metas
    assert len(LISTS) > 300


def flat(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def test_manifests() -> None:
    count = 0
    for name, path in MANIFESTS.items():
        table = decode_manifest(path.read_bytes(), file_name=name)
        table.validate(full=True)
        theirs = [dict(flat(record)) for record in by_fastavro(path)]
        for column in table.column_names:
            values = table.column(column)
            if column == "_FILE._CREATION_TIME":
                values = values.cast(pa.timestamp("ms", "UTC"))
            assert values.to_pylist() == [row.get(column) for row in theirs], (name, column)
        found = entries_of(table)
        assert entries_of(decode_manifest(encode_manifest(found), file_name=name)) == found
        count += len(found)
    assert count > 250


def test_index_manifests() -> None:
    for name, path in INDEXES.items():
        found = decode_index_manifest(path.read_bytes(), file_name=name)
        assert len(found) == len(list(by_fastavro(path)))
        ours = encode_index_manifest(found)
        assert decode_index_manifest(ours, file_name=name) == found
    assert len(INDEXES) >= 5


def rows_of(table: Path) -> Iterator[tuple[bytes, list[DataType], bool]]:
    """Every stored row of a table's metadata, its types, and whether it is a partition."""
    schemas = schemas_of(table)
    latest = schemas[max(schemas)]
    partition = [field.type for field in latest.select(latest.partition_keys)]
    for path in table.glob("manifest/manifest-list-*"):
        for meta in decode_manifest_list(path.read_bytes(), file_name=path.name):
            yield meta.partition_stats.min_values, partition, False
            yield meta.partition_stats.max_values, partition, False
    for entry in entries(table):
        file, schema = entry.file, schemas[entry.file.schema_id]
        keys = (
            [f.type for f in schema.select(schema.trimmed_primary_keys)]
            if schema.primary_keys
            else []
        )
        covered = schema.names if file.value_stats_columns is None else file.value_stats_columns
        values = [field.type for field in schema.select(covered)]
        yield entry.partition, partition, True
        for row in (
            file.min_key,
            file.max_key,
            file.key_stats.min_values,
            file.key_stats.max_values,
        ):
            yield row, keys, False
        for row in (file.value_stats.min_values, file.value_stats.max_values):
            yield row, values, False


def test_rows_byte_for_byte() -> None:
    count = 0
    for name, table in TABLES.items():
        for stored, types, is_partition in rows_of(table):
            columns = decode_columns(pa.array([stored], pa.binary()), types)
            again = encode_stored(columns, types, reserve_null_wide=is_partition, row_count=1)
            assert again == [stored], (name, types)
            count += 1
    assert count > 2000


def test_bounds_are_in_order() -> None:
    for name, table in TABLES.items():
        schemas = schemas_of(table)
        for entry in entries(table):
            schema = schemas[entry.file.schema_id]
            if schema.primary_keys:
                order = key_order([f.type for f in schema.select(schema.trimmed_primary_keys)])
                assert order(entry.file.min_key) <= order(entry.file.max_key), name


def directory(schema: TableSchema, entry: ManifestEntry) -> str:
    path = partition_path(
        entry.partition,
        schema.select(schema.partition_keys),
        default_name=schema.options[core_options.PARTITION_DEFAULT_NAME],
        legacy_name=True,  # Java 0.9 knows no other, whatever its tables' options say
    )
    bucket = "bucket-postpone" if entry.bucket == -2 else f"bucket-{entry.bucket}"
    return f"{path}/{bucket}" if path else bucket


def live(table: Path) -> list[ManifestEntry]:
    latest = max(
        (
            decode_snapshot(path.read_bytes(), file_name=path.name)
            for path in table.glob("snapshot/snapshot-*")
        ),
        key=lambda snapshot: snapshot.id,
        default=None,
    )
    if latest is None:
        return []
    found: dict[Any, ManifestEntry] = {}
    for name in (latest.base_manifest_list, latest.delta_manifest_list):
        for meta in decode_manifest_list((table / "manifest" / name).read_bytes(), file_name=name):
            data = (table / "manifest" / meta.file_name).read_bytes()
            for entry in entries_of(decode_manifest(data, file_name=meta.file_name)):
                if entry.kind is EntryKind.ADD:
                    found[entry.identity] = entry
                else:
                    del found[entry.identity]
    return list(found.values())


def test_every_live_file_is_where_we_look_for_it() -> None:
    count = 0
    for name, table in TABLES.items():
        schemas = schemas_of(table)
        for entry in live(table):
            schema = schemas[entry.file.schema_id]
            path = table / directory(schema, entry) / entry.file.file_name
            assert path.stat().st_size == entry.file.file_size, name
            count += 1
    assert count > 100


def parquet_files() -> Iterator[tuple[str, TableSchema, ManifestEntry, pa.Table]]:
    for name, table in TABLES.items():
        schemas = schemas_of(table)
        for entry in entries(table):
            schema = schemas[entry.file.schema_id]
            path = table / directory(schema, entry) / entry.file.file_name
            if path.suffix == ".parquet" and path.exists() and entry.kind is EntryKind.ADD:
                yield name, schema, entry, pq.ParquetFile(path).read()


def test_every_row_is_in_its_bucket() -> None:
    count = 0
    for name, schema, entry, rows in parquet_files():
        if entry.total_buckets <= 0:
            continue
        fields = schema.select(schema.bucket_keys)
        columns = [rows.column(field.name).cast(arrow_type(field.type)) for field in fields]
        encoded = encode_rows(columns, [f.type for f in fields], reserve_null_wide=True)
        buckets = bucket_of(murmur32(encoded.data, encoded.offsets), entry.total_buckets)
        assert set(buckets.tolist()) <= {entry.bucket}, name
        count += rows.num_rows
    assert count > 500


def test_bounds_of_files_cover_their_first_and_last_rows() -> None:
    exact = count = 0
    for name, schema, entry, rows in parquet_files():
        if not schema.primary_keys:
            continue
        fields = schema.select(schema.trimmed_primary_keys)
        columns = [rows.column(f.name).cast(arrow_type(f.type)) for f in fields]
        stored = encode_stored(columns, [f.type for f in fields])
        order = key_order([f.type for f in fields])
        bounds = (entry.file.min_key, entry.file.max_key)
        assert order(bounds[0]) <= order(stored[0]), name
        assert order(stored[-1]) <= order(bounds[1]), name
        # With a changelog of full compactions, Java 0.9 counts rows that the compaction dropped.
        exact += (stored[0], stored[-1]) == bounds
        count += 1
    assert exact >= count - 4


def test_statistics_are_those_that_java_wrote() -> None:
    compared = 0
    for name, schema, entry, rows in parquet_files():
        if not name.startswith("java") or entry.file.value_stats_columns is not None:
            continue
        types = [field.type for field in schema.fields]
        collector = StatsCollector(types, stats_modes(schema))
        collector.update([rows.column(field.name) for field in schema.fields])
        ours, theirs = collector.result(), entry.file.value_stats
        for stored, found in (
            (theirs.min_values, ours.min_values),
            (theirs.max_values, ours.max_values),
        ):
            both = decode_columns(pa.array([stored, found], pa.binary()), types)
            for field, column in zip(schema.fields, both, strict=True):
                assert column[0] == column[1], (name, field)
        assert theirs.null_counts == ours.null_counts, name
        compared += 1
    assert compared > 50


def test_key_statistics_are_those_that_java_wrote() -> None:
    for name, schema, entry, rows in parquet_files():
        if not name.startswith("java") or not schema.primary_keys:
            continue
        fields = schema.select(schema.trimmed_primary_keys)
        collector = StatsCollector(
            [f.type for f in fields],
            [mode for n, mode in zip(schema.names, stats_modes(schema), strict=True)
             if n in schema.trimmed_primary_keys],
        )  # fmt: skip
        collector.update([rows.column(field.name) for field in fields])
        assert collector.result() == entry.file.key_stats, name


def test_partition_statistics_cover_their_entries() -> None:
    for name, table in TABLES.items():
        schemas = schemas_of(table)
        schema = schemas[max(schemas)]
        types = [field.type for field in schema.select(schema.partition_keys)]
        for path in table.glob("manifest/manifest-list-*"):
            for meta in decode_manifest_list(path.read_bytes(), file_name=path.name):
                manifest = table / "manifest" / meta.file_name
                if not manifest.exists() or not types:
                    continue
                held = entries_of(decode_manifest(manifest.read_bytes(), file_name=name))
                collector = StatsCollector(types, [StatsMode.parse("full")] * len(types))
                stored = pa.array([entry.partition for entry in held], pa.binary())
                collector.update(decode_columns(stored, types))
                assert collector.result().min_values == meta.partition_stats.min_values, name
                assert collector.result().max_values == meta.partition_stats.max_values, name
