"""Rows with keys, on their way to the tasks that know where those keys are: parcels by task.

A table's rows never travel; of the DataFrame's each goes to the tasks whose data files may hold its
key, as one Arrow message per task and batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.io.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.io.file_io import FileIO
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.hashing import bucket_of
from lsm_engine.kernels.routing import group_rows
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.spark.jobs import Batches
from lsm_engine.table.ground.bucket_keys import bucket_hashes, partition_numbers
from lsm_engine.table.ground.components import Components
from lsm_engine.table.ground.session import TableSession

PARCEL_DDL = "task int, rows binary"
_PARCEL = pa.schema([pa.field("task", pa.int32()), pa.field("rows", pa.binary())])
_CHUNK_BYTES = 64 << 20
_ANY_BUCKET = -1
Group = tuple[bytes, int]


@record
class PinnedTable:
    """One snapshot of a table (None: it is empty), as tasks open it. Pickles."""

    name: str
    file_io: FileIO
    schema: TableSchema
    branch_name: str
    snapshot: Snapshot | None
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)

    @staticmethod
    def of(session: TableSession, snapshot: Snapshot | None) -> "PinnedTable":
        """Return a snapshot of the table that a session is about."""
        return PinnedTable(
            name=session.name,
            file_io=session.file_io,
            schema=session.schema,
            branch_name=session.paths.branch_name,
            snapshot=snapshot,
            clock=session.clock,
            ids=session.ids,
        )

    def session(self) -> TableSession:
        """Open the table in this process."""
        components = Components(file_io=self.file_io, clock=self.clock, ids=self.ids)
        return TableSession(self.name, components, self.schema, branch=self.branch_name)


@record
class Homes:
    """Which tasks know a key. `totals`: how many buckets the keys of a partition are hashed into, 0
    where its keys may be in any bucket; such a partition is one group, of bucket -1.

    With `everywhere` a key may be in any partition, and partitions are taken for one, b"".
    """

    schema: TableSchema
    totals: Mapping[bytes, int]
    tasks: Mapping[Group, tuple[int, ...]]
    everywhere: bool = False

    def of(self, keys: pa.RecordBatch) -> Iterator[tuple[tuple[int, ...], Longs]]:
        """Yield tasks, and the numbers of the keys that go to each of them."""
        schema = self.schema
        if self.everywhere:
            stored, ids = [b""], np.zeros(keys.num_rows, np.int32)
        else:
            stored, ids = partition_numbers(schema.select(schema.partition_keys), keys)
        hashes: npt.NDArray[np.int32] | None = None
        groups = group_rows(ids, len(stored))
        for number, start, stop in groups.stretches():
            rows = groups.order[start:stop]
            total = self.totals.get(stored[number], 0)
            if total == 0:
                yield self._tasks(stored[number], _ANY_BUCKET), rows
                continue
            if hashes is None:
                hashes = bucket_hashes(schema.select(schema.bucket_keys), keys)
            by_bucket = group_rows(bucket_of(hashes[rows], total), total)
            for bucket, first, last in by_bucket.stretches():
                yield self._tasks(stored[number], bucket), rows[by_bucket.order[first:last]]

    def _tasks(self, partition: bytes, bucket: int) -> tuple[int, ...]:
        # Buckets without files hold no key: any task may return that.
        return self.tasks.get((partition, bucket), (max(0, bucket),))


def homes_of(
    schema: TableSchema,
    totals: Mapping[bytes, int],
    groups: Sequence[Group],
    tasks: Sequence[int],
    *,
    everywhere: bool = False,
) -> Homes:
    """Return homes, from the bucket of each share of work and the task that has it."""
    if everywhere:
        known = set(totals.values())
        totals = {b"": known.pop() if len(known) == 1 else 0}
    found: dict[Group, set[int]] = {}
    for (partition, bucket), task in zip(groups, tasks, strict=True):
        home = b"" if everywhere else partition
        number = bucket if totals.get(home, 0) else _ANY_BUCKET
        found.setdefault((home, number), set()).add(task)
    return Homes(
        schema=schema,
        totals=totals,
        tasks={group: tuple(sorted(of)) for group, of in found.items()},
        everywhere=everywhere,
    )


def parcels(
    rows: pa.RecordBatch, homes: Iterator[tuple[tuple[int, ...], Longs]], task_count: int
) -> Iterator[pa.RecordBatch]:
    """Yield the parcels of one batch of rows."""
    for tasks, numbers in homes:
        part = rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))
        data = part.serialize().to_pybytes()
        for task in tasks:
            yield pa.RecordBatch.from_pylist(
                [{"task": task % task_count, "rows": data}], schema=_PARCEL
            )


def chunks(batches: Batches, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows that a task was handed, many at a time, and the task's number."""
    held: list[pa.RecordBatch] = []
    task, byte_count = 0, 0
    for batch in batches:
        for number, data in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if held and (number != task or byte_count > _CHUNK_BYTES):
                yield task, _joined(held)
                held, byte_count = [], 0
            task = number
            held.append(pa.ipc.read_record_batch(data.as_buffer(), schema))
            byte_count += held[-1].nbytes
    if held:
        yield task, _joined(held)


def _joined(held: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(held) == 1:
        return held[0]
    return pa.Table.from_batches(held).combine_chunks().to_batches()[0]
