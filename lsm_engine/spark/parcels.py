"""Rows on their way to the task that owns their bucket, as parcels: one Arrow message per bucket.

Spark shuffles few opaque values instead of many rows, so that rows cross between the JVM and Python
once at most; and a parcel's number keeps rows in the order in which they came.
"""

import zlib
from collections.abc import Iterator

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.bucket_context import Staging
from lsm_engine.table.ground.bucket_keys import RoutedRows
from lsm_engine.table.ground.incoming import IncomingRows, joined
from lsm_engine.table.stage.bucket_routing import PartitionRouting, assigns_buckets, routing_of
from lsm_engine.table.stage.local_merge import LocalMerge

PARCEL_DDL = "task int, partition binary, bucket int, number bigint, rows binary, error string"
PARCEL = pa.schema(
    [
        pa.field("task", pa.int32()),
        pa.field("partition", pa.binary()),
        pa.field("bucket", pa.int32()),
        pa.field("number", pa.int64()),
        pa.field("rows", pa.binary()),
        pa.field("error", pa.string()),
    ]
)
_KIND = "_kind"
_GATHERED_BYTES = 32 << 20
"""Rows gathered before they are cut by bucket: the more, the fewer and larger the parcels."""
_PARCEL_BYTES = 8 << 20
"""No parcel is much larger: Spark copies each through its heap."""
_SOURCE_BITS = 40


class FailedParcelError(Exception):
    """A parcel came with an error instead of rows; `error` is what `failures.encode_error` wrote."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


@record
class Owners:
    """Which task owns a bucket. All parcels of one bucket go to one task, and only to that one."""

    task_count: int

    def owner(self, partition: bytes, bucket: int) -> int:
        """Return the number of the task; buckets of one partition go to tasks in turn."""
        return (zlib.crc32(partition) + bucket) % self.task_count


def parcel_schema(schema: TableSchema) -> pa.Schema:
    """Return what a parcel's rows look like: the table's columns, and what each row does."""
    return schema.arrow.append(pa.field(_KIND, pa.int8()))


class Packer:
    """Packs the rows of one source into parcels.

    `source` numbers the sources in the order in which their rows count: of two rows of one key the
    one of the later source is newer, and within a source the later one. Where buckets are dynamic,
    a parcel holds rows of a whole partition: its owner gives them buckets.
    """

    def __init__(self, staging: Staging, owners: Owners, *, source: int) -> None:
        schema = staging.context.schema
        assigned = assigns_buckets(schema.bucket_mode)
        self._routing = PartitionRouting(staging) if assigned else routing_of(staging)
        self._schema = parcel_schema(schema)
        self._owners = owners
        self._merge = LocalMerge.for_schema(schema)
        asked = schema.options[core_options.LOCAL_MERGE_BUFFER_SIZE]
        self._gathered_max = _GATHERED_BYTES if self._merge is None or asked is None else asked
        self._next = source << _SOURCE_BITS
        self._gathered: list[IncomingRows] = []
        self._byte_count = 0

    def pack(self, incoming: IncomingRows) -> Iterator[pa.RecordBatch]:
        """Take rows; yield parcels when enough have been gathered."""
        self._gathered.append(incoming)
        self._byte_count += incoming.rows.nbytes
        if self._byte_count >= self._gathered_max:
            yield self._parcels()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left."""
        if self._gathered:
            yield self._parcels()

    def _parcels(self) -> pa.RecordBatch:
        parcels = [
            self._parcel(routed.partition, routed.bucket, part)
            for whole in self._routing.route(joined(self._gathered))
            for routed in ([whole] if self._merge is None else self._merge.merged(whole))
            for part in self._parts(routed)
        ]
        self._gathered, self._byte_count = [], 0
        return pa.RecordBatch.from_pylist(parcels, schema=PARCEL)

    def _parts(self, routed: RoutedRows) -> Iterator[pa.RecordBatch]:
        rows = pa.RecordBatch.from_arrays([*routed.rows.columns, routed.kinds], schema=self._schema)
        step = max(1, rows.num_rows * _PARCEL_BYTES // max(1, rows.nbytes))
        return (rows.slice(start, step) for start in range(0, rows.num_rows, step))

    def _parcel(self, partition: bytes, bucket: int, rows: pa.RecordBatch) -> dict[str, object]:
        self._next += 1
        return {
            "task": self._owners.owner(partition, bucket),
            "partition": partition,
            "bucket": bucket,
            "number": self._next,
            "rows": rows.serialize().to_pybytes(),
        }


def unpack(parcel: pa.Buffer, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.Array]:
    """Return the rows of a parcel, and what each does. `schema` is that of `parcel_schema`."""
    rows = pa.ipc.read_record_batch(parcel, schema)
    last = rows.num_columns - 1
    return rows.remove_column(last), rows.column(last)


def failed_parcel(error: str) -> pa.RecordBatch:
    """Return a parcel that carries an error, as `failures.encode_error` writes it, and no rows."""
    return pa.RecordBatch.from_pylist([{"task": 0, "error": error}], schema=PARCEL)
