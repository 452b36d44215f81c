"""Scan: snapshot → manifests → files that may hold a match → splits → rows."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import declared
from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.codec.manifest import entries_of
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.explain import ScanExplanation, prune_counts
from lsm_engine.plan.scan import Packing, ReadMode, Split, deepest_level, plan_splits
from lsm_engine.prune.expression import from_expression, to_expression
from lsm_engine.prune.predicate import Predicate, split_conjuncts
from lsm_engine.schema.arrow_types import arrow_schema
from lsm_engine.table.context import BucketContext
from lsm_engine.table.executor import LocalExecutor
from lsm_engine.table.live import LEVEL, SCHEMA_ID
from lsm_engine.table.many_splits import ManySplits
from lsm_engine.table.merge_rules import merge_rules, read_mode
from lsm_engine.table.prune_files import PrunedFiles, prune_files
from lsm_engine.table.read import ReadRows, read_split
from lsm_engine.table.session import TableSession
from lsm_engine.table.time_travel import snapshot_to_read


@record
class ScanRequest:
    """What to read: columns (None: all), rows, and as of when (None: now).

    `read_optimized`: only what needs no merging (system table ro).
    """

    columns: tuple[str, ...] | None = None
    where: pc.Expression | None = None
    snapshot_id: int | None = None
    tag: str | None = None
    as_of_millis: int | None = None
    limit: int | None = None
    read_optimized: bool = False

    @property
    def is_of_the_past(self) -> bool:
        """Whether a snapshot, a tag or a time is named."""
        return (self.snapshot_id, self.tag, self.as_of_millis) != (None, None, None)


@record
class PlannedScan:
    """The splits of one scan, and how they came about."""

    splits: Sequence[Split]
    explanation: ScanExplanation
    context: BucketContext
    rows: ReadRows


class Scan:
    """One read of one snapshot. Rows of a primary-key table come merged, deletes gone."""

    def __init__(
        self, session: TableSession, request: ScanRequest, snapshot: Snapshot | None = None
    ) -> None:
        """`snapshot`: the one that the request names, where that is known already."""
        self._request = request
        if request.limit is not None and request.limit < 0:
            raise InvalidInputError("a limit cannot be negative", limit=request.limit)
        self.snapshot = snapshot or snapshot_to_read(
            session,
            snapshot_id=request.snapshot_id,
            tag=request.tag,
            as_of_millis=request.as_of_millis,
        )
        # The past is read with its own columns; only the newest state has today's.
        if request.is_of_the_past and self.snapshot is not None:
            session = session.as_of(self.snapshot)
        self._session = session
        for name in request.columns or ():
            session.schema.field(name)
        self._predicate = (
            None if request.where is None else from_expression(request.where, session.schema.arrow)
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows come out with."""
        names = self._request.columns
        table = self._session.schema
        return arrow_schema(table.fields if names is None else table.select(names))

    def to_arrow(self) -> pa.Table:
        """Return all rows; in no promised order."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, a few splits at a time, in memory that does not grow."""
        left = self._request.limit
        for batch in self._batches():
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            if batch.num_rows:
                yield batch
            if left == 0:
                return

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream that other Arrow libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Return the number of rows; raw splits without a filter are counted from metadata."""
        plan = self.plan
        limit = self._request.limit
        plain = _is_plain(plan)
        rows = 0
        narrow = ReadRows(
            names=self._session.schema.primary_keys[:1] or self._session.schema.names[:1],
            where=plan.rows.where,
            filter_columns=plan.rows.filter_columns,
            predicate=plan.rows.predicate,
            key_predicate=plan.rows.key_predicate,
        )
        for split in plan.splits:
            if plain and split.raw and split.is_counted:
                rows += split.row_count
                continue
            rows += sum(batch.num_rows for batch in read_split(plan.context, narrow, split))
        return rows if limit is None else min(rows, limit)

    def splits(self) -> Sequence[Split]:
        """Return what reader tasks would read; the values pickle.

        Of very many files the splits are made as they are asked for: go through them once.
        """
        return self.plan.splits

    def explain(self) -> ScanExplanation:
        """Return what is read, what was pruned and why; `print(scan.explain().text())`."""
        return self.plan.explanation

    @cached_property
    def plan(self) -> PlannedScan:
        """Everything decided before the first data file is opened."""
        return plan_scan(self._session, self.snapshot, self._predicate, self._request)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        executor = LocalExecutor()
        if self._request.limit is not None or executor.threads == 1 or _at_most_one(plan):
            for split in plan.splits:
                yield from read_split(plan.context, plan.rows, split)
            return
        read = partial(_read_whole, plan.context, plan.rows)
        for batches in executor.ordered(read, plan.splits):
            yield from batches


def _at_most_one(plan: PlannedScan) -> bool:
    return len(list(islice(plan.splits, 2))) <= 1


def _read_whole(context: BucketContext, rows: ReadRows, split: Split) -> list[pa.RecordBatch]:
    return list(read_split(context, rows, split))


def _is_plain(plan: PlannedScan) -> bool:
    return plan.rows.where is None


def plan_scan(
    session: TableSession,
    snapshot: Snapshot | None,
    predicate: Predicate | None,
    request: ScanRequest,
) -> PlannedScan:
    """Plan the read of one snapshot; None is an empty table."""
    schema = session.schema
    pushable = {*schema.partition_keys, *schema.trimmed_primary_keys}
    if not schema.has_primary_key:
        pushable = set(schema.names)
    pushed, residual = (None, None) if predicate is None else split_conjuncts(predicate, pushable)
    found = prune_files(session, snapshot, predicate, pushed)
    mode = read_mode(schema)
    entries = found.entries
    if request.read_optimized and mode is ReadMode.MERGE:
        rows = [] if found.many is None else entries_of(found.many)
        entries = deepest_level([*entries, *rows], session.options.level_count)
    plan = partial(
        plan_splits,
        key_order=session.key_order or bytes,
        mode=mode,
        packing=Packing(
            target_size_bytes=session.options[declared.SOURCE_SPLIT_TARGET_SIZE],
            open_file_cost_bytes=session.options[declared.SOURCE_SPLIT_OPEN_FILE_COST],
        ),
        snapshot_id=None if snapshot is None else snapshot.id,
        value_match=found.value_match,
        merge_keeps_rows=schema.has_primary_key and merge_rules(schema).function.keeps_rows,
        vectors={} if snapshot is None else session.vector_places(snapshot),
    )
    splits: Sequence[Split]
    if found.many is not None and not request.read_optimized:
        splits = ManySplits(found.many, lambda entries: plan(entries).splits)
        levels = found.many.column(LEVEL)
        seen = pc.greater(levels, 0) if mode is ReadMode.ABOVE_LEVEL_0 else pc.is_valid(levels)
        read = int(pc.sum(seen).as_py() or 0)
        ids = pc.unique(found.many.column(SCHEMA_ID)).to_pylist()
    else:
        splits = plan(entries).splits
        read = sum(len(split.files) for split in splits)
        ids = [file.schema_id for split in splits for file in split.files]
    names = schema.names if request.columns is None else request.columns
    return PlannedScan(
        splits=splits,
        explanation=_explanation(snapshot, pushed, residual, found, splits, read),
        context=session.context(ids),
        rows=ReadRows.of(names, request.where, predicate, pushed),
    )


def _explanation(
    snapshot: Snapshot | None,
    pushed: Predicate | None,
    residual: Predicate | None,
    found: PrunedFiles,
    splits: Sequence[Split],
    read: int,
) -> ScanExplanation:
    return ScanExplanation(
        snapshot_id=None if snapshot is None else snapshot.id,
        pushed_filter=None if pushed is None else str(to_expression(pushed)),
        residual_filter=None if residual is None else str(to_expression(residual)),
        manifests=found.manifests,
        files=prune_counts(found.file_count, [*found.kept_after, ("by_stats", read)]),
        splits=splits,
    )
