"""Lookups on Spark: rows are shuffled to the tasks that have their keys, and located or joined there."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_sql
from pyspark.sql import types as sql_types

from lsm_engine.api.table import Table
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.manifest_columns import rows_of
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.buckets import bucket_of, group_rows
from lsm_engine.lookup.key_search import KeySearch, SearchWay, entries_with_buckets
from lsm_engine.lookup.keys import keys_of
from lsm_engine.lookup.locate import (
    INSERT,
    MOVE,
    UPDATE,
    located_schema,
    looks_everywhere,
    newest_decides,
    rows_deleted_by_vectors,
    search_files,
)
from lsm_engine.lookup.lookup import FOUND, TableQuery
from lsm_engine.lookup.view import bucket_totals
from lsm_engine.options import core_options
from lsm_engine.planning.keys import TASK_COUNT_MAX, balanced, file_shares, moves_records
from lsm_engine.spark.jobs import Batches, by_task, map_arrow, prepare_worker
from lsm_engine.spark.session import check_shared, task_goal
from lsm_engine.spark.types import arrow_schema_of, fitter, quoted, spark_schema
from lsm_engine.storage.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.storage.file_io import FileIO
from lsm_engine.table.bucket_keys import bucket_hashes, partition_numbers
from lsm_engine.table.components import Components
from lsm_engine.table.session import TableSession
from lsm_engine.table.time_travel import snapshot_to_read
from lsm_engine.types.table_schema import TableSchema

# -- Batches of keys, shuffled to the tasks that search for them -----------------------------------
#
# A table's rows never travel; of the DataFrame's each goes to the tasks whose data files may
# hold its key, as one Arrow message per task and batch.

SHUFFLE_DDL = "task int, rows binary"
_SHUFFLE_SCHEMA = pa.schema([pa.field("task", pa.int32()), pa.field("rows", pa.binary())])
_CHUNK_BYTES = 64 << 20
_ANY_BUCKET = -1
Group = tuple[bytes, int]


@record
class PinnedTable:
    """One snapshot of a table, as tasks open it (None: the table is empty). It pickles."""

    name: str
    file_io: FileIO
    schema: TableSchema
    branch_name: str
    snapshot: Snapshot | None
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)

    @staticmethod
    def from_session(session: TableSession, snapshot: Snapshot | None) -> "PinnedTable":
        """Return a snapshot of the table of a session."""
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
class KeyRouting:
    """The tasks that search for a key, by its bucket.

    `totals`: the number of buckets of each partition, 0 if a key may be in any of them; such a partition is one
    group, of bucket -1. With `everywhere` a key may be in any partition, and all partitions are one, b"".
    """

    schema: TableSchema
    totals: Mapping[bytes, int]
    tasks: Mapping[Group, tuple[int, ...]]
    everywhere: bool = False

    def route(self, keys: pa.RecordBatch) -> Iterator[tuple[tuple[int, ...], Longs]]:
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
                # No hash leads to the bucket of a key: every task of the partition searches for it.
                yield self._tasks(stored[number], _ANY_BUCKET), rows
                continue
            if hashes is None:  # computed once, and only where some partition has hashed buckets
                hashes = bucket_hashes(schema.select(schema.bucket_keys), keys)
            by_bucket = group_rows(bucket_of(hashes[rows], total), total)
            for bucket, first, last in by_bucket.stretches():
                yield self._tasks(stored[number], bucket), rows[by_bucket.order[first:last]]

    def _tasks(self, partition: bytes, bucket: int) -> tuple[int, ...]:
        # Buckets without files hold no key: any task may return that.
        return self.tasks.get((partition, bucket), (max(0, bucket),))


def key_routing(
    schema: TableSchema,
    totals: Mapping[bytes, int],
    groups: Sequence[Group],
    tasks: Sequence[int],
    *,
    everywhere: bool = False,
) -> KeyRouting:
    """Return the routing, from the bucket of each share of work and the task that has it."""
    if everywhere:
        # The bucket of a key is known in all partitions only if they have the same number of buckets.
        bucket_counts = set(totals.values())
        totals = {b"": bucket_counts.pop() if len(bucket_counts) == 1 else 0}
    tasks_by_group: dict[Group, set[int]] = {}
    for (partition, bucket), task in zip(groups, tasks, strict=True):
        scope = b"" if everywhere else partition
        number = bucket if totals.get(scope, 0) else _ANY_BUCKET
        tasks_by_group.setdefault((scope, number), set()).add(task)
    return KeyRouting(
        schema=schema,
        totals=totals,
        tasks={group: tuple(sorted(numbers)) for group, numbers in tasks_by_group.items()},
        everywhere=everywhere,
    )


def shuffled_batches(
    rows: pa.RecordBatch, routes: Iterator[tuple[tuple[int, ...], Longs]], task_count: int
) -> Iterator[pa.RecordBatch]:
    """Yield one batch of rows as batches to shuffle."""
    for tasks, numbers in routes:
        part = rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))
        data = part.serialize().to_pybytes()
        for task in tasks:
            yield pa.RecordBatch.from_pylist(
                [{"task": task % task_count, "rows": data}], schema=_SHUFFLE_SCHEMA
            )


def chunks(batches: Batches, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a task in large batches, and the number of the task."""
    buffer: list[pa.RecordBatch] = []
    task, byte_count = 0, 0
    for batch in batches:
        for number, data in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if buffer and (number != task or byte_count > _CHUNK_BYTES):
                yield task, _joined(buffer)
                buffer, byte_count = [], 0
            task = number
            buffer.append(pa.ipc.read_record_batch(data.as_buffer(), schema))
            byte_count += buffer[-1].nbytes
    if buffer:
        yield task, _joined(buffer)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


# -- Locate on Spark -------------------------------------------------------------------------------
#
# Which rows of a DataFrame replace a record of a table, and where that one is.
#
# stage one   any task        cut keys by bucket, pack them for the tasks that have its files
# shuffle     Spark           keys only
# stage two   balanced tasks  search some files each, answer with the newest version found
# join        Spark           the newest of all answers, left-joined to the rows by their keys

_ANSWER = sql_types.StructType(
    [
        sql_types.StructField("_first", sql_types.BooleanType()),
        sql_types.StructField("_second", sql_types.LongType()),
        sql_types.StructField("_alive", sql_types.BooleanType()),
        sql_types.StructField("_own", sql_types.BooleanType()),
        sql_types.StructField("_partition", sql_types.StringType()),
        sql_types.StructField("_bucket", sql_types.IntegerType()),
        sql_types.StructField("_file_name", sql_types.StringType()),
    ]
)
Find = Callable[[int, KeySearch], object]
"""Notes in a search of some task's keys what the task knows of them."""
_closures = CloudPickleSerializer()  # type: ignore[no-untyped-call]


def locate_dataframe(table: Table, frame: DataFrame) -> DataFrame:
    """Return the rows of a DataFrame with the five columns that `Table.locate` returns; lazy.

    `_action`, `_partition`, `_bucket`, `_file_name`, `_snapshot_id`. The DataFrame has the table's key columns, without nulls; it is
    computed twice, so cache one that is costly. Tasks have about the same number of rows to search,
    unless `bloom.index.bucketized.checking` is off, which gives each bucket to one task; so do tables
    whose versions have to be merged (lookup/locate.newest_decides), through lookup files.
    """
    session = table.session
    schema = session.schema
    names = tuple(dict.fromkeys((*schema.primary_keys, *schema.partition_keys)))
    _refuse_taken(frame.columns, names)
    keys = frame.select(*map(quoted, names))
    arrow = arrow_schema_of(keys.schema)
    keys_of(schema, pa.RecordBatch.from_pylist([], schema=arrow), with_partitions=True)
    check_shared(frame.sparkSession, session.file_io)
    snapshot = table.latest_snapshot()
    answers = _searched(session, snapshot, keys, arrow)
    newest = answers.groupBy(*map(quoted, names)).agg(
        sql.max_by(
            sql.struct("_alive", "_own", "_partition", "_bucket", "_file_name"),
            sql.struct("_first", "_second", "_partition"),
        ).alias("_there")
    )
    locations = newest.select(
        *(sql.col(quoted(name)).alias(f"_there_{name}") for name in names), "_there"
    )
    joined = frame.join(locations, _same_keys(names), "left")
    return joined.select(*map(quoted, frame.columns), *_locations(session, snapshot))


def _refuse_taken(columns: Sequence[str], keys: Sequence[str]) -> None:
    """Spark compares names without case, so a second column of a name could not be selected."""
    added = {f"_{name}" for name in located_schema().names} | {"_there"}
    added |= {f"_there_{name}".lower() for name in keys}
    conflicts = [column for column in columns if column.lower() in added]
    conflicts += [name for name in keys if name.lower() in _ANSWER.names]
    if conflicts:
        raise InvalidInputError(
            "the rows have columns of the names that locate adds; rename them",
            kind=ErrorKind.INVALID_NAME,
            columns=conflicts,
        )


def _answers_of(keys: DataFrame) -> sql_types.StructType:
    return sql_types.StructType([*keys.schema.fields, *_ANSWER.fields])


def _searched(
    session: TableSession, snapshot: Snapshot | None, keys: DataFrame, arrow: pa.Schema
) -> DataFrame:
    """Return the answer of each task for each of its keys; every key has at least one answer."""
    schema, options = session.schema, session.options
    kind = options[core_options.INDEX_TYPE]
    # A key that is not bound to a partition may have its row in any of them.
    everywhere = looks_everywhere(schema)
    order = session.key_order
    assert order is not None
    live = [] if snapshot is None else session.live_entries(snapshot)
    entries = entries_with_buckets(session, live)
    entries.sort(key=lambda entry: order(entry.file.min_key))  # shares of near keys
    cuts = options[core_options.INDEX_BLOOM_BUCKETIZED_CHECKING] and not everywhere
    cuts = cuts and newest_decides(schema)
    most = min(TASK_COUNT_MAX, task_goal(keys.sparkSession))
    shares = file_shares(
        entries,
        task_count=most,
        task_rows_max=options[core_options.INDEX_BLOOM_KEYS_PER_BUCKET] if cuts else None,
    )
    rows = sum(share.row_count for share in shares)
    needed = -(-rows // options[core_options.INDEX_BLOOM_KEYS_PER_BUCKET])
    count = max(1, min(TASK_COUNT_MAX, len(shares), max(most, needed)))
    tasks = balanced([share.row_count for share in shares], count)
    routing = key_routing(
        schema,
        bucket_totals(schema, entries),
        [(share.partition, share.bucket) for share in shares],
        tasks,
        everywhere=everywhere,
    )
    entries_by_task: list[list[ManifestEntry]] = [[] for _ in range(count)]
    for share, task in zip(shares, tasks, strict=True):
        entries_by_task[task] += share.entries
    out = PackKeys(rows=arrow, routing=routing, task_count=count)
    handed = by_task(map_arrow(keys, out, SHUFFLE_DDL), count)
    answers = _answers_of(keys)
    search = SearchTask(
        table=PinnedTable.from_session(session, snapshot),
        entries=tuple(_closures.dumps(task_entries) for task_entries in entries_by_task),  # type: ignore[no-untyped-call]
        rows=arrow,
        result=arrow_schema_of(answers),
        everywhere=everywhere,
        by_blooms=kind.policy.reads_blooms,
    )
    return map_arrow(handed, search, answers)


def _locations(session: TableSession, snapshot: Snapshot | None) -> list[Column]:
    """Return the columns with each row's location."""
    alive, own = sql.col("_there._alive"), sql.col("_there._own")
    action = sql.when(~alive, INSERT)
    if moves_records(session.options):
        action = action.when(~own, MOVE)
    number = sql.lit(None if snapshot is None else snapshot.id).cast("long")
    return [
        action.otherwise(UPDATE).alias("_action"),
        sql.col("_there._partition").alias("_partition"),
        sql.col("_there._bucket").alias("_bucket"),
        sql.col("_there._file_name").alias("_file_name"),
        sql.when(alive, number).alias("_snapshot_id"),
    ]


def _same_keys(names: Sequence[str]) -> Column:
    same = [sql.col(quoted(name)).eqNullSafe(sql.col(quoted(f"_there_{name}"))) for name in names]
    condition = same[0]
    for equality in same[1:]:
        condition = condition & equality
    return condition


@record
class PackKeys:
    """Stage one: the keys of one partition of the DataFrame, to the tasks that search for them."""

    rows: pa.Schema
    routing: KeyRouting
    task_count: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        fit = fitter(self.rows)
        for batch in batches:
            if batch.num_rows:
                keys = keys_of(self.routing.schema, batch, with_partitions=True)
                yield from shuffled_batches(fit(batch), self.routing.route(keys), self.task_count)


@record
class SearchTask:
    """Stage two: keys searched in the files that one task has."""

    table: PinnedTable
    entries: tuple[bytes, ...]
    rows: pa.Schema
    result: pa.Schema
    everywhere: bool
    by_blooms: bool

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        session = self.table.session()
        find = self._merging if not newest_decides(session.schema) else self._searching
        with find(session) as search_keys:
            for task, rows in chunks(batches, self.rows):
                keys = keys_of(session.schema, rows, with_partitions=True)
                search = KeySearch(session.schema, keys)
                search_keys(task, search)
                yield fitter(self.result)(self._answered(session, rows, search))

    @contextmanager
    def _merging(self, session: TableSession) -> Iterator[Find]:
        """Merge the versions of keys: the task's whole buckets through lookup files."""
        if self.table.snapshot is None:
            yield lambda _, __: None
            return
        with TableQuery(session, snapshot=self.table.snapshot) as query:
            yield lambda _, search: query.locate(
                search, everywhere=self.everywhere, with_positions=False
            )

    @contextmanager
    def _searching(self, session: TableSession) -> Iterator[Find]:
        """Search the key columns of the task's own files."""
        snapshot = self.table.snapshot
        way = SearchWay(
            by_ranges=session.options[core_options.INDEX_BLOOM_PRUNE_BY_RANGES],
            by_blooms=self.by_blooms,
            deleted=None if snapshot is None else rows_deleted_by_vectors(session, snapshot),
            numbers=True,
        )
        mine: tuple[int, pa.Table | None] = (-1, None)

        def find(task: int, search: KeySearch) -> None:
            nonlocal mine
            if mine[0] != task:
                entries = _closures.loads(self.entries[task])  # type: ignore[no-untyped-call]
                mine = task, rows_of(entries) if entries else None
            search_files(session, search, mine[1], way, everywhere=self.everywhere)

        yield find

    def _answered(
        self, session: TableSession, rows: pa.RecordBatch, search: KeySearch
    ) -> pa.RecordBatch:
        context = session.context()
        alive, places = search.is_there, search.places
        own_paths = np.array(
            [context.partition_path(partition) for partition in search.partitions], object
        )
        paths = np.array(
            [context.partition_path(place.partition) for place in places] + [""], object
        )
        names = np.array([place.file_name for place in places] + [None], object)
        buckets = np.array([place.bucket for place in places] + [-1], np.int32)
        place_index = np.where(alive, search.place, -1)
        mine = own_paths[search.partition_of]
        row_paths = np.where(alive, paths[place_index], mine)
        bucket = np.where(alive, buckets[place_index], search.own_buckets)
        own = (row_paths == mine).astype(np.bool_)
        first = alive if self.everywhere else np.ones(len(alive), np.bool_)
        second = own.astype(np.int64) if self.everywhere else search.sequence
        columns = [
            *rows.columns,
            pa.array(first),
            pa.array(second),
            pa.array(alive),
            pa.array(own),
            pa.array(row_paths, pa.string()),
            pa.array(bucket, pa.int32(), mask=bucket < 0),
            pa.array(names[place_index], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, names=self.result.names)


# -- Lookup join of a DataFrame with the newest rows -----------------------------------------------
#
# stage one   any task      find each row's bucket, pack rows by the task that has it
# shuffle     Spark         the DataFrame's rows only; of the table nothing travels
# stage two   one a bucket  look the keys up in local lookup files, put rows side by side


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
        sql_sql.StructField(field.name, field.dataType, nullable=True)
        for field in spark_schema(fields).fields
    ]
    result = sql_sql.StructType([*frame.schema.fields, *looked_up])
    check_shared(frame.sparkSession, table.session.file_io)
    most = min(TASK_COUNT_MAX, task_goal(frame.sparkSession))
    routing, count = _bucket_routing(table.session, snapshot, most)
    out = PackTask(keys=keys, rows=arrow, routing=routing, task_count=count)
    handed = by_task(map_arrow(frame, out, SHUFFLE_DDL), count)
    task = JoinTask(
        table=PinnedTable.from_session(table.session, snapshot),
        keys=keys,
        rows=arrow,
        names=tuple(names),
        result=arrow_schema_of(result),
        keeps_all=keeps_all,
    )
    return map_arrow(handed, task, result)


def _bucket_routing(
    session: TableSession, snapshot: Snapshot | None, most: int
) -> tuple[KeyRouting, int]:
    """Return the tasks of each bucket, and the number of tasks."""
    schema = session.schema
    if snapshot is None:
        return key_routing(schema, {}, [], []), 1
    if not set(schema.partition_keys) <= set(schema.primary_keys):
        # A key may be in any bucket: cut the keys, and let each task look in all of them.
        tasks = {(b"", number): (number,) for number in range(most)}
        return KeyRouting(schema=schema, totals={b"": most}, tasks=tasks, everywhere=True), most
    entries = entries_with_buckets(session, session.live_entries(snapshot))
    totals = bucket_totals(schema, entries)
    shares = file_shares(entries, task_count=most, task_rows_max=None)
    costs: Counter[Group] = Counter()
    for share in shares:
        # A key may be in any bucket of the partition.
        any_bucket = totals.get(share.partition, 0) == 0
        costs[share.partition, -1 if any_bucket else share.bucket] += share.row_count
    count = max(1, min(most, len(costs)))
    tasks_of = balanced([*costs.values()], count)
    return key_routing(schema, totals, [*costs], tasks_of), count


def _key_columns(
    schema: TableSchema, columns: Sequence[str], on: Sequence[str] | Mapping[str, str] | None
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
    missing = [name for name in keys.values() if name not in columns]
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
    routing: KeyRouting
    task_count: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        schema = self.routing.schema
        for spark_batch in batches:
            batch = fitter(self.rows)(spark_batch)
            valid = _valid(batch, self.keys)
            without = np.flatnonzero(~valid)
            if len(without):
                yield from shuffled_batches(batch, iter([((0,), without)]), self.task_count)
            rows = batch if valid.all() else batch.filter(pa.array(valid))
            if rows.num_rows:
                keys = keys_of(schema, _renamed([rows], self.keys))
                yield from shuffled_batches(rows, self.routing.route(keys), self.task_count)


@record
class JoinTask:
    """Stage two: the rows of some buckets, joined with the rows of the table that have their keys."""

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
                keyed_rows = rows if valid.all() else rows.filter(pa.array(valid))
                looked_up = query.lookup(_renamed([keyed_rows], self.keys), [*self.names])
                yield from self._joined(rows, looked_up, valid)

    def _joined(self, rows: pa.RecordBatch, looked_up: pa.Table | None, valid: Bools) -> Batches:
        row = np.cumsum(valid) - 1  # where each row with a key is among those looked up
        if looked_up is None:
            is_found = np.zeros(rows.num_rows, np.bool_)
        else:
            is_found = np.zeros(rows.num_rows, np.bool_)
            is_found[valid] = looked_up.column(FOUND).to_numpy()
        keep = np.arange(rows.num_rows) if self.keeps_all else np.flatnonzero(is_found)
        places = pa.array(row[keep], mask=~is_found[keep])
        columns = {name: rows.column(name).take(pa.array(keep)) for name in self.rows.names}
        for name in self.names:
            if looked_up is None:
                kind = self.result.field(name).type
                columns[name] = pa.nulls(len(keep), kind)
            else:
                columns[name] = looked_up.column(name).combine_chunks().take(places)
        if len(keep):
            batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            yield fitter(self.result)(batch)
