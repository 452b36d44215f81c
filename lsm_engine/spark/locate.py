"""Locate on Spark: which rows of a DataFrame replace a record of a table, and where that one is.

stage one   any task        cut keys by bucket, pack them for the tasks that have its files
shuffle     Spark           keys only
stage two   balanced tasks  search some files each, answer with the newest version found
join        Spark           the newest of all answers, left-joined to the rows by their keys
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types

from lsm_engine.base import core_options
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.codec.manifest_rows import rows_of
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.key_moves import moves_records
from lsm_engine.plan.key_tasks import balanced, file_shares
from lsm_engine.plan.task_packing import TASK_COUNT_MAX
from lsm_engine.spark.arrow_rows import arrow_schema_of, fitter
from lsm_engine.spark.jobs import Batches, by_task, map_arrow, prepare_worker
from lsm_engine.spark.key_rows import PARCEL_DDL, Homes, PinnedTable, chunks, homes_of, parcels
from lsm_engine.spark.session import task_goal
from lsm_engine.spark.shared_storage import check_shared
from lsm_engine.spark.statement import quoted
from lsm_engine.table.find.key_search import KeySearch, SearchWay
from lsm_engine.table.find.locate import (
    INSERT,
    MOVE,
    UPDATE,
    located_schema,
    looks_everywhere,
)
from lsm_engine.table.find.lookup import TableQuery
from lsm_engine.table.find.lookup_keys import keys_of
from lsm_engine.table.find.lookup_view import bucket_totals
from lsm_engine.table.find.row_locations import (
    newest_decides,
    rows_deleted_by_vectors,
    search_files,
)
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.table import Table

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
    """Return a DataFrame's rows with five columns more: what `Table.locate` returns for each; lazy.

    `_action`, `_partition`, `_bucket`, `_file_name`, `_snapshot_id`. The DataFrame has the table's key columns, without nulls; it is
    computed twice, so cache one that is costly. Tasks have about the same number of rows to search,
    unless `bloom.index.bucketized.checking` is off, which gives each bucket to one task; so do tables
    whose versions have to be merged (table/find/row_locations.newest_decides), through lookup files.
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
    there = newest.select(
        *(sql.col(quoted(name)).alias(f"_there_{name}") for name in names), "_there"
    )
    joined = frame.join(there, _same_keys(names), "left")
    return joined.select(*map(quoted, frame.columns), *_locations(session, snapshot))


def _refuse_taken(columns: Sequence[str], keys: Sequence[str]) -> None:
    """Spark compares names without case, so a second column of a name could not be selected."""
    added = {f"_{name}" for name in located_schema().names} | {"_there"}
    added |= {f"_there_{name}".lower() for name in keys}
    taken = [column for column in columns if column.lower() in added]
    taken += [name for name in keys if name.lower() in _ANSWER.names]
    if taken:
        raise InvalidInputError(
            "the rows have columns of the names that locate adds; rename them",
            kind=ErrorKind.INVALID_NAME,
            columns=taken,
        )


def _answers_of(keys: DataFrame) -> sql_types.StructType:
    return sql_types.StructType([*keys.schema.fields, *_ANSWER.fields])


def _searched(
    session: TableSession, snapshot: Snapshot | None, keys: DataFrame, arrow: pa.Schema
) -> DataFrame:
    """Return each task's answer for each key that it was handed; every key has at least one."""
    schema, options = session.schema, session.options
    kind = options[core_options.INDEX_TYPE]
    everywhere = looks_everywhere(schema)
    order = session.key_order
    assert order is not None
    live = [] if snapshot is None else session.live_entries(snapshot)
    entries = [entry for entry in live if entry.bucket >= 0]
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
    homes = homes_of(
        schema,
        bucket_totals(schema, entries),
        [(share.partition, share.bucket) for share in shares],
        tasks,
        everywhere=everywhere,
    )
    of_tasks: list[list[ManifestEntry]] = [[] for _ in range(count)]
    for share, task in zip(shares, tasks, strict=True):
        of_tasks[task] += share.entries
    out = PackKeys(rows=arrow, homes=homes, task_count=count)
    handed = by_task(map_arrow(keys, out, PARCEL_DDL), count)
    answers = _answers_of(keys)
    search = SearchTask(
        table=PinnedTable.of(session, snapshot),
        entries=tuple(_closures.dumps(of) for of in of_tasks),  # type: ignore[no-untyped-call]
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
    found = same[0]
    for each in same[1:]:
        found = found & each
    return found


@record
class PackKeys:
    """Stage one: the keys of one partition of the DataFrame, to the tasks that search for them."""

    rows: pa.Schema
    homes: Homes
    task_count: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        fit = fitter(self.rows)
        for batch in batches:
            if batch.num_rows:
                keys = keys_of(self.homes.schema, batch, with_partitions=True)
                yield from parcels(fit(batch), self.homes.of(keys), self.task_count)


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
        with find(session) as found:
            for task, rows in chunks(batches, self.rows):
                keys = keys_of(session.schema, rows, with_partitions=True)
                search = KeySearch(session.schema, keys)
                found(task, search)
                yield fitter(self.result)(self._answered(session, rows, search))

    @contextmanager
    def _merging(self, session: TableSession) -> Iterator[Find]:
        """Merge the versions of keys: the task's whole buckets through lookup files."""
        if self.table.snapshot is None:
            yield lambda _, __: None
            return
        with TableQuery(session, snapshot=self.table.snapshot) as query:
            yield lambda _, search: query.tag(
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
        own_paths = np.array([context.partition_path(one) for one in search.partitions], object)
        paths = np.array([context.partition_path(one.partition) for one in places] + [""], object)
        names = np.array([one.file_name for one in places] + [None], object)
        buckets = np.array([one.bucket for one in places] + [-1], np.int32)
        at = np.where(alive, search.place, -1)
        mine = own_paths[search.partition_of]
        there = np.where(alive, paths[at], mine)
        bucket = np.where(alive, buckets[at], search.own_buckets)
        own = (there == mine).astype(np.bool_)
        first = alive if self.everywhere else np.ones(len(alive), np.bool_)
        second = own.astype(np.int64) if self.everywhere else search.sequence
        columns = [
            *rows.columns,
            pa.array(first),
            pa.array(second),
            pa.array(alive),
            pa.array(own),
            pa.array(there, pa.string()),
            pa.array(bucket, pa.int32(), mask=bucket < 0),
            pa.array(names[at], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, names=self.result.names)
