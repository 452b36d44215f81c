"""Which bucket each row belongs to: its partition as a stored row, and the hash of its bucket key."""

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.binary_row import encode_rows, encode_stored
from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.kernels.buckets import bucket_of, group_rows, murmur32
from lsm_engine.table.incoming import IncomingRows
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField

_NO_TOTALS: Mapping[bytes, int] = MappingProxyType({})


@record
class RoutedRows:
    """Rows of one bucket, in the order in which they came. `partition` is a stored row."""

    partition: bytes
    bucket: int
    rows: pa.RecordBatch
    kinds: pa.Array


class Router:
    """Routes rows to fixed buckets (FixedBucketRowKeyExtractor) (format section 8).

    For tables whose rows find their bucket by themselves: fixed buckets, and append tables that have
    one. A partition in `totals` has that number of buckets, and others that of the schema. Raises
    UnsupportedError, when built, for other tables; write/buckets serves them all.
    """

    def __init__(self, schema: TableSchema, totals: Mapping[bytes, int] = _NO_TOTALS) -> None:
        if not schema.bucket_mode.policy.routes_by_hash:
            raise UnsupportedError(
                f"a row alone does not determine its bucket where 'bucket' = {schema.bucket_count}",
                option="bucket",
                value=schema.bucket_count,
            )
        self._partition_fields = schema.select(schema.partition_keys)
        self._bucket_fields = schema.select(schema.bucket_keys)
        self._bucket_count = schema.bucket_count
        self._stored = totals
        self._known: dict[bytes, int] = {}

    def total_buckets(self, partition: bytes) -> int:
        """Return the number of buckets that manifest entries of a partition record."""
        total = self._known.get(partition)
        if total is None:
            total = self._known[partition] = self._stored.get(partition, self._bucket_count)
        return total

    def route(self, incoming: IncomingRows) -> list[RoutedRows]:
        """Return the batch cut by bucket; one bucket's rows keep their order."""
        partitions, partition_ids = partition_numbers(self._partition_fields, incoming.rows)
        totals = [self.total_buckets(partition) for partition in partitions]
        # Mostly no partition was rescaled: then one number serves all rows.
        if all(total == self._bucket_count for total in totals):
            buckets = self.buckets(incoming.rows)
        else:
            hashes = bucket_hashes(self._bucket_fields, incoming.rows)
            buckets = bucket_of(hashes, np.array(totals)[partition_ids])
        return cut(incoming, partitions, partition_ids, buckets)

    def buckets(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32] | None:
        """Return each row's bucket by the schema's number, or None where the table has a single one."""
        if self._bucket_count <= 1:
            return None
        return bucket_of(bucket_hashes(self._bucket_fields, rows), self._bucket_count)


def cut(
    incoming: IncomingRows,
    partitions: Sequence[bytes],
    partition_ids: npt.NDArray[np.integer],
    buckets: npt.NDArray[np.integer] | None,
) -> list[RoutedRows]:
    """Return a batch cut by partition and bucket, from 0; one bucket's rows keep their order.

    `partition_ids` numbers each row's partition; `buckets` None: all rows are in bucket 0.
    """
    count = 1 if buckets is None else int(buckets.max(initial=0)) + 1
    if len(partitions) == count == 1:
        routed = RoutedRows(
            partition=partitions[0], bucket=0, rows=incoming.rows, kinds=incoming.kinds
        )
        return [routed]
    # One sort by a combined number keeps the order of rows within each bucket.
    ids = partition_ids.astype(np.int64) * count
    if buckets is not None:
        ids += buckets
    groups = group_rows(ids, len(partitions) * count)
    order = pa.array(groups.order)
    rows, kinds = incoming.rows.take(order), incoming.kinds.take(order)
    return [
        RoutedRows(
            partition=partitions[group // count],
            bucket=group % count,
            rows=rows.slice(start, stop - start),
            kinds=kinds.slice(start, stop - start),
        )
        for group, start, stop in groups.stretches()
    ]


def bucket_hashes(fields: Sequence[DataField], rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """Return the hash of each row's bucket key, whose columns are `fields`."""
    encoded = encode_rows(
        [rows.column(field.name) for field in fields],
        [field.type for field in fields],
        reserve_null_wide=True,
    )
    return murmur32(encoded.data, encoded.offsets)


def partition_numbers(
    fields: Sequence[DataField], rows: pa.RecordBatch
) -> tuple[list[bytes], npt.NDArray[np.int32]]:
    """Return the distinct partitions as stored rows, and the number of each row's among them."""
    if not fields:
        return [EMPTY_ROW], np.zeros(rows.num_rows, np.int32)
    columns = [rows.column(field.name) for field in fields]
    codes = reduce(_paired, (_codes(column) for column in columns))
    _, firsts, ids = np.unique(codes, return_index=True, return_inverse=True)
    firsts_array = pa.array(firsts)
    stored = encode_stored(
        [column.take(firsts_array) for column in columns],
        [field.type for field in fields],
        reserve_null_wide=True,
    )
    return stored, ids.astype(np.int32)


def _codes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return equal numbers for equal values; null is a value."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    codes: npt.NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
    return codes


def _paired(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return equal numbers for equal pairs, made dense so that they never overflow."""
    paired = first * (int(second.max(initial=0)) + 1) + second
    dense: npt.NDArray[np.int64] = np.unique(paired, return_inverse=True)[1].astype(np.int64)
    return dense
