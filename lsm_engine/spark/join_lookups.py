"""Lookup join: rows of a DataFrame beside the newest rows of a table with the same keys.

stage one   any task      find each row's bucket, pack rows by the task that has it
shuffle     Spark         the DataFrame's rows only; of the table nothing travels
stage two   one a bucket  look the keys up in local lookup files, put rows side by side
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as sql

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.key_tasks import balanced, file_shares
from lsm_engine.plan.task_packing import TASK_COUNT_MAX
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.spark.arrow_rows import arrow_schema_of, fitter, spark_schema
from lsm_engine.spark.jobs import Batches, by_task, map_arrow, prepare_worker
from lsm_engine.spark.key_rows import (
    PARCEL_DDL,
    Group,
    Homes,
    PinnedTable,
    chunks,
    homes_of,
    parcels,
)
from lsm_engine.spark.session import task_goal
from lsm_engine.spark.shared_storage import check_shared
from lsm_engine.table.find.lookup import FOUND, TableQuery
from lsm_engine.table.find.lookup_keys import keys_of
from lsm_engine.table.find.lookup_view import bucket_totals
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import snapshot_to_read
from lsm_engine.table.table import Table


def lookup_join(
    frame: DataFrame,
    table: Table,
    on: Sequence[str] | Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    how: str = "left",
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
) -> DataFrame:
    """Return a DataFrame's rows with the table's newest row of the same key beside each; lazy.

    `on`: the DataFrame's columns that hold the primary key, in its order, or a dictionary from key
    column to the DataFrame's; None: they have the same names. `columns`: the table's columns to add,
    by default all that are not of the key. `how`: "left" keeps rows whose key is not there, or null,
    with nulls; "inner" drops them. The snapshot is the newest one now, or that of an id or a tag. The table is not shuffled: each
    bucket's keys go to one task, which looks them up in local files. Raises InvalidInputError for
    columns of another type, and for names that both sides have; as `scan` does for an id or a tag that is not there.
    """
    if how not in ("left", "inner"):
        raise InvalidInputError("a lookup join is 'left' or 'inner'", given=how)
    schema = table.schema
    keys = _key_columns(schema, frame.columns, on)
    added = [name for name in schema.names if name not in schema.primary_keys]
    names = tuple(added if columns is None else columns)
    schema.select(names)
    both = sorted(set(names) & set(frame.columns))
    if both:
        raise InvalidInputError(
            "the DataFrame and the table both have these columns; rename them, or name others in "
            "columns=",
            columns=both,
        )
    snapshot = snapshot_to_read(table.session, snapshot_id=snapshot_id, tag=tag)
    return joined_at(frame, table, keys, names, snapshot, keeps_all=how == "left")


def joined_at(
    frame: DataFrame,
    table: Table,
    keys: Mapping[str, str],
    names: Sequence[str],
    snapshot: Snapshot | None,
    *,
    keeps_all: bool = True,
) -> DataFrame:
    """Return a DataFrame's rows beside the rows of one state; see `lookup_join`.

    `keys`: the DataFrame's column of each key column. `names`: the columns to add, whose names the
    DataFrame has not; the key's may be among them, and are null where a row is not there.
    """
    schema, fields = table.schema, table.schema.select_read(names)
    arrow = arrow_schema_of(frame.schema)
    keys_of(schema, _renamed(arrow.empty_table().to_batches() or [_empty(arrow)], keys))
    looked_up = [
        sql.StructField(each.name, each.dataType, nullable=True)
        for each in spark_schema(fields).fields
    ]
    result = sql.StructType([*frame.schema.fields, *looked_up])
    check_shared(frame.sparkSession, table.session.file_io)
    most = min(TASK_COUNT_MAX, task_goal(frame.sparkSession))
    homes, count = _homes(table.session, snapshot, most)
    out = PackTask(keys=keys, rows=arrow, homes=homes, task_count=count)
    handed = by_task(map_arrow(frame, out, PARCEL_DDL), count)
    task = JoinTask(
        table=PinnedTable.of(table.session, snapshot),
        keys=keys,
        rows=arrow,
        names=tuple(names),
        result=arrow_schema_of(result),
        keeps_all=keeps_all,
    )
    return map_arrow(handed, task, result)


def _homes(session: TableSession, snapshot: Snapshot | None, most: int) -> tuple[Homes, int]:
    """Return which task has which bucket, and how many tasks there are."""
    schema = session.schema
    if snapshot is None:
        return homes_of(schema, {}, [], []), 1
    if not set(schema.partition_keys) <= set(schema.primary_keys):
        # A key may be in any bucket: cut the keys, and let each task look in all of them.
        tasks = {(b"", number): (number,) for number in range(most)}
        return Homes(schema=schema, totals={b"": most}, tasks=tasks, everywhere=True), most
    entries = [entry for entry in session.live_entries(snapshot) if entry.bucket >= 0]
    totals = bucket_totals(schema, entries)
    shares = file_shares(entries, task_count=most, task_rows_max=None)
    costs: Counter[Group] = Counter()
    for share in shares:
        whole = totals.get(share.partition, 0) == 0  # a key may be in any bucket of the partition
        costs[share.partition, -1 if whole else share.bucket] += share.row_count
    count = max(1, min(most, len(costs)))
    tasks_of = balanced([*costs.values()], count)
    return homes_of(schema, totals, [*costs], tasks_of), count


def _key_columns(
    schema: TableSchema, given: Sequence[str], on: Sequence[str] | Mapping[str, str] | None
) -> dict[str, str]:
    """Return the DataFrame's column of each key column."""
    if isinstance(on, Mapping):
        keys = dict(on)
    else:
        keys = dict(zip(schema.primary_keys, on or schema.primary_keys, strict=False))
        if on is not None and len(on) != len(schema.primary_keys):
            keys = {}
    if set(keys) != set(schema.primary_keys):
        raise InvalidInputError(
            f"a lookup join is on the whole primary key, {', '.join(schema.primary_keys)}",
            given=on,
        )
    missing = [name for name in keys.values() if name not in given]
    if missing:
        raise InvalidInputError("the DataFrame lacks key columns", columns=missing)
    return keys


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _renamed(batches: Sequence[pa.RecordBatch], keys: Mapping[str, str]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return pa.table({key: table.column(name) for key, name in keys.items()})


def _valid(rows: pa.RecordBatch, keys: Mapping[str, str]) -> Bools:
    """Return which rows have no null in their key."""
    valid = np.ones(rows.num_rows, np.bool_)
    for name in keys.values():
        valid &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    return valid


@record
class PackTask:
    """Stage one: rows to the tasks that know their keys; rows with a null in the key to any."""

    keys: Mapping[str, str]
    rows: pa.Schema
    homes: Homes
    task_count: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        schema = self.homes.schema
        for given in batches:
            batch = fitter(self.rows)(given)
            valid = _valid(batch, self.keys)
            without = np.flatnonzero(~valid)
            if len(without):
                yield from parcels(batch, iter([((0,), without)]), self.task_count)
            rows = batch if valid.all() else batch.filter(pa.array(valid))
            if rows.num_rows:
                keys = keys_of(schema, _renamed([rows], self.keys))
                yield from parcels(rows, self.homes.of(keys), self.task_count)


@record
class JoinTask:
    """Stage two: the rows of some buckets, with what the table holds for their keys."""

    table: PinnedTable
    keys: Mapping[str, str]
    rows: pa.Schema
    names: tuple[str, ...]
    result: pa.Schema
    keeps_all: bool

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        if self.table.snapshot is None:
            for _, rows in chunks(batches, self.rows):
                yield from self._joined(rows, None, np.zeros(rows.num_rows, np.bool_))
            return
        with TableQuery(self.table.session(), snapshot=self.table.snapshot) as query:
            for _, rows in chunks(batches, self.rows):
                valid = _valid(rows, self.keys)
                some = rows if valid.all() else rows.filter(pa.array(valid))
                found = query.lookup(_renamed([some], self.keys), [*self.names])
                yield from self._joined(rows, found, valid)

    def _joined(self, rows: pa.RecordBatch, found: pa.Table | None, valid: Bools) -> Batches:
        row = np.cumsum(valid) - 1  # where each row with a key is among those looked up
        if found is None:
            is_found = np.zeros(rows.num_rows, np.bool_)
        else:
            is_found = np.zeros(rows.num_rows, np.bool_)
            is_found[valid] = found.column(FOUND).to_numpy()
        keep = np.arange(rows.num_rows) if self.keeps_all else np.flatnonzero(is_found)
        places = pa.array(row[keep], mask=~is_found[keep])
        columns = {name: rows.column(name).take(pa.array(keep)) for name in self.rows.names}
        for name in self.names:
            if found is None:
                kind = self.result.field(name).type
                columns[name] = pa.nulls(len(keep), kind)
            else:
                columns[name] = found.column(name).combine_chunks().take(places)
        if len(keep):
            made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            yield fitter(self.result)(made)
