"""The keys that a table is to forget, in every form in which its files hold them."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import encode_stored
from lsm_engine.codec.partition_path import escape
from lsm_engine.kernels.arrow_views import one_array
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.find.lookup_keys import keys_of
from lsm_engine.table.ground.bucket_keys import bucket_hashes
from lsm_engine.table.ground.components import StoredKeys
from lsm_engine.table.write.delete_rows import columns_asked

TEXT_BYTES_MIN = 4
"""Shorter texts are in any file by chance: they are not searched for as bytes."""


@record
class ForgottenKeys:
    """Keys by column, as stored rows, and as texts that can be searched for in raw bytes.

    `columns` are the primary key's; of a table without one, those that were asked for. `by_partition`
    holds the trimmed keys, as stored rows, by partition; under None where a key does not determine its
    partition. `texts` are the values of text and binary columns that are long enough to be rare.
    `hashes` are those that indexes of dynamic buckets list.
    """

    columns: pa.RecordBatch
    by_partition: dict[bytes | None, frozenset[bytes]]
    texts: tuple[bytes, ...]
    hashes: frozenset[int]

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self.columns)

    @property
    def partitions(self) -> frozenset[bytes]:
        """The partitions of the keys, as stored rows, where the keys determine them."""
        return frozenset(partition for partition in self.by_partition if partition is not None)

    def may_be_in(self, partition: bytes) -> bool:
        """Whether a partition may hold one of the keys."""
        return None in self.by_partition or partition in self.by_partition

    def bounds(self, entry: ManifestEntry) -> bool:
        """Whether a key is the least or the greatest of a file, by its manifest entry."""
        keys = self.by_partition.get(entry.partition) or self.by_partition.get(None) or frozenset()
        return entry.file.min_key in keys or entry.file.max_key in keys

    def stored(self, emptied_partitions: frozenset[bytes] = frozenset()) -> StoredKeys:
        """Return what those that keep stored keys beside the table's files have to forget."""
        return StoredKeys(
            by_partition=tuple(self.by_partition.items()),
            emptied_partitions=emptied_partitions,
            texts=self.texts,
        )


def forgotten_keys(schema: TableSchema, keys: Any) -> ForgottenKeys:
    """Return keys of any Arrow data or list of dictionaries.

    Of a table without a primary key: any of its columns, as for `delete`. Raises InvalidInputError for
    keys that are missing, null or of another type.
    """
    if not schema.has_primary_key:
        key_columns = columns_asked(schema, keys)
        return ForgottenKeys(
            columns=key_columns, by_partition={}, texts=_texts(key_columns), hashes=frozenset()
        )
    batch = pa.Table.from_batches([keys_of(schema, keys)])
    distinct = batch.group_by(batch.column_names).aggregate([]).select(batch.column_names)
    columns = pa.RecordBatch.from_arrays(
        [one_array(distinct.column(name)) for name in batch.column_names], schema=batch.schema
    )
    trimmed = _stored(schema, schema.trimmed_primary_keys, columns)
    partitions: list[bytes | None] = [None] * columns.num_rows
    if set(schema.partition_keys) <= set(schema.primary_keys):
        partitions = [*_stored(schema, schema.partition_keys, columns, reserve_null_wide=True)]
    grouped: dict[bytes | None, set[bytes]] = {}
    for partition, key in zip(partitions, trimmed, strict=True):
        grouped.setdefault(partition, set()).add(key)
    return ForgottenKeys(
        columns=columns,
        by_partition={
            stored_partition: frozenset(stored_keys)
            for stored_partition, stored_keys in grouped.items()
        },
        texts=_texts(columns),
        hashes=_hashes(schema, columns),
    )


def _stored(
    schema: TableSchema,
    names: tuple[str, ...],
    rows: pa.RecordBatch,
    *,
    reserve_null_wide: bool = False,
) -> list[bytes]:
    types = [field.type for field in schema.select(names)]
    return encode_stored(
        [rows.column(name) for name in names],
        types,
        reserve_null_wide=reserve_null_wide,
        row_count=rows.num_rows,
    )


def _hashes(schema: TableSchema, rows: pa.RecordBatch) -> frozenset[int]:
    hashes = bucket_hashes(schema.select(schema.bucket_keys), rows)
    return frozenset(hashes.tolist())


def is_text(kind: pa.DataType) -> bool:
    """Whether the values of a type are stored as their own bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def shown_text(text: bytes) -> str:
    """Return a text of a key as plans show it."""
    return repr(text.decode("utf-8", "replace"))


def _texts(rows: pa.RecordBatch) -> tuple[bytes, ...]:
    """Return the values of text and binary columns, in each of the ways in which files spell them."""
    texts: dict[bytes, None] = {}
    for column in rows.columns:
        if not is_text(column.type):
            continue
        for value in column.cast(pa.binary()).to_pylist():
            if len(value) >= TEXT_BYTES_MIN:
                texts.update(dict.fromkeys(_spellings(value)))
    return tuple(texts)


def _spellings(value: bytes) -> Iterator[bytes]:
    """Yield a value as it is, as JSON escapes it, and as the directory of a partition does."""
    yield value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield escape(text).encode()
