"""Delete from an append table: rows that have one of some keys, or that a filter keeps, are marked
in deletion vectors.

No data file is rewritten; the next compaction of the files leaves the marked rows behind.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.data_files.reader import POSITION
from lsm_engine.dml.write import Write
from lsm_engine.filter.binding import bind
from lsm_engine.filter.expression import matches, tree_of
from lsm_engine.filter.predicate import Predicate, columns_of
from lsm_engine.filter.where import AllOf, Filter, col
from lsm_engine.format.commit_message import CommitMessage, DataIncrement, WriteResult
from lsm_engine.format.manifest import Bucket, ManifestEntry
from lsm_engine.format.snapshot import RowCounts, Snapshot
from lsm_engine.kernels.arrow_views import Longs, one_array
from lsm_engine.lookup.locate import matching_rows, rows_deleted_by_vectors
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.read.scan_plan import prune_files
from lsm_engine.table.deletion_vectors import BucketDeletions
from lsm_engine.table.incoming import conformed, open_rows
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import require_writable
from lsm_engine.types.table_schema import PADDED_KEYS, TableSchema
from lsm_engine.types.types import ArrayType, MapType, RowType

_Found: TypeAlias = tuple[ManifestEntry, Longs]


def delete_rows(session: TableSession, keys: Any, identity: CommitIdentity) -> WriteResult | None:
    """Delete every row that equals one of `keys` in all of their columns; None if there is none.

    Raises InvalidInputError for tables without 'deletion-vectors.enabled', and for keys that have no
    column, a null, a column of a nested type or one that the table does not have.
    """
    _require_vectors(session)
    batch = columns_asked(session.schema, keys)
    # No keys match no row, so nothing is committed.
    if not batch.num_rows:
        return None
    return _commit_marks(session, identity, partial(_rows_with_keys, session, batch))


def delete_where(
    session: TableSession, where: Filter, identity: CommitIdentity
) -> WriteResult | None:
    """Delete every row that a filter keeps; None if there is none.

    How many there were is in the result's properties. Raises InvalidInputError for tables without
    'deletion-vectors.enabled', and for filters that the table's columns do not allow.
    """
    _require_vectors(session)
    predicate = tree_of(where, session.filter_columns)
    return _commit_marks(session, identity, partial(_rows_where, session, predicate))


def _require_vectors(session: TableSession) -> None:
    if not session.options[core_options.DELETION_VECTORS_ENABLED]:
        raise InvalidInputError(
            "the table has no primary key; rows can be deleted from it once it has the option "
            "'deletion-vectors.enabled' = true, which it can get at any time, or by overwrite",
            option=core_options.DELETION_VECTORS_ENABLED.key,
            table=session.name,
        )


def _commit_marks(
    session: TableSession, identity: CommitIdentity, find: Callable[[Snapshot], Iterable[_Found]]
) -> WriteResult | None:
    """Mark the rows that `find` names in the newest state, again where they change meanwhile."""
    write = Write(session, identity)
    before = write.replayed(CommitKind.OVERWRITE)
    # The same commit was made by an earlier attempt of the caller.
    if before is not None:
        return before
    require_writable(session)

    def attempt(_: int) -> WriteResult | None:
        base = session.snapshots.latest()
        if base is None:
            # A table without commits has no row to mark.
            return None
        messages, count = _marked(session, base, find(base))
        if not messages:
            return None
        return write.land(
            messages,
            planned_on=base,
            properties=RowCounts(deleted=count).properties,
            overwritten=lambda _: (),
        )

    # Others may delete rows or move them to other files: then it is looked where they are by then.
    return write.again(attempt)


def columns_asked(schema: TableSchema, keys: Any) -> pa.RecordBatch:
    """Return keys as the table stores them: the columns that were given, no row twice."""
    # An empty list has no columns that Arrow could infer.
    if isinstance(keys, list) and not keys:
        return pa.RecordBatch.from_pylist([], schema=pa.schema([]))
    reader = open_rows(keys)
    names = [name for name in schema.names if name in reader.schema.names]
    nested = [
        name for name in names if isinstance(schema.field(name).type, ArrayType | MapType | RowType)
    ]
    if not names or nested:
        raise InvalidInputError(
            "keys need columns of the table that rows can be known by, none of a nested type",
            kind=ErrorKind.INVALID_KEY,
            columns=nested or reader.schema.names,
        )
    only_keys = replace(
        schema,
        # A null is refused, and names no row of the default.
        fields=tuple(replace(field, default_value=None) for field in schema.select_read(names)),
        partition_keys=(),
        primary_keys=tuple(names),
        options=PADDED_KEYS,
    )
    nullable = pa.schema([field.with_nullable(True) for field in only_keys.arrow])  # noqa: FBT003
    table = pa.Table.from_batches(
        [incoming.rows for incoming in conformed(reader, only_keys)], schema=nullable
    )
    # A key that is given twice would be counted twice.
    distinct = table.group_by(names).aggregate([]).select(names)
    return pa.RecordBatch.from_arrays(
        [one_array(distinct.column(name)) for name in names], names=names
    )


def _marked(
    session: TableSession, base: Snapshot, matches: Iterable[_Found]
) -> tuple[list[CommitMessage], int]:
    """Write the deletion vectors of some rows; return what to commit, and how many rows went."""
    vectors = session.vector_files(base)
    context = session.context()
    deletions: dict[Bucket, BucketDeletions] = {}
    totals: dict[Bucket, int] = {}
    counts: dict[Bucket, int] = {}
    for entry, positions in matches:
        bucket = (entry.partition, entry.bucket)
        if bucket not in deletions:
            deletions[bucket] = BucketDeletions(context, vectors.get(bucket, ()))
            totals[bucket] = entry.total_buckets
        added = deletions[bucket].add(entry.file.file_name, positions)
        counts[bucket] = counts.get(bucket, 0) + added
    messages = _written({key: deletions[key] for key in counts if counts[key]}, totals)
    return messages, sum(counts.values())


def _rows_with_keys(
    session: TableSession, keys: pa.RecordBatch, base: Snapshot
) -> Iterator[_Found]:
    deleted = rows_deleted_by_vectors(session, base)
    for match in matching_rows(session, keys, _candidates(session, base, keys), deleted=deleted):
        yield match.entry, match.positions


def _rows_where(session: TableSession, predicate: Predicate, base: Snapshot) -> Iterator[_Found]:
    """Yield the rows that a filter keeps, file by file; those that are deleted already may be among them."""
    entries = prune_files(session, base, predicate, predicate).matching
    context = session.context(entry.file.schema_id for entry in entries)
    names = tuple(name for name in session.readable_columns.names if name in columns_of(predicate))
    for entry in entries:
        with context.open_file(
            (entry.partition, entry.bucket), entry.file, names, with_positions=True
        ) as reader:
            file_positions = [
                rows.column(POSITION).to_numpy()[matches(predicate, rows)]
                for rows in map(pa.Table.from_batches, ([batch] for batch in reader.batches()))
            ]
        positions = np.concatenate([np.zeros(0, np.int64), *file_positions])
        if len(positions):
            yield entry, positions


def _written(
    deletions: Mapping[Bucket, BucketDeletions],
    totals: Mapping[Bucket, int],
) -> list[CommitMessage]:
    messages = []
    try:
        for bucket, marks in deletions.items():
            change = marks.write()
            increment = DataIncrement(
                new_index_files=change.new, deleted_index_files=change.deleted
            )
            messages.append(
                CommitMessage(
                    partition=bucket[0],
                    bucket=bucket[1],
                    total_buckets=totals[bucket],
                    data=increment,
                )
            )
    except BaseException:
        # No snapshot names the index files yet.
        for marks in deletions.values():
            marks.abort()
        raise
    return messages


def _candidates(session: TableSession, base: Snapshot, keys: pa.RecordBatch) -> list[ManifestEntry]:
    """Return the files whose partition and statistics allow one of the keys."""
    ranges = []
    for name in keys.schema.names:
        ends = pc.min_max(keys.column(name)).as_py() if _has_order(keys, name) else None
        # A type without an order has no bounds to compare with.
        if ends is None:
            continue
        ranges.append(col(name).between(ends["min"], ends["max"]))
    predicate = bind(AllOf(parts=tuple(ranges)), session.schema.compared)
    return prune_files(session, base, predicate, predicate).matching


def _has_order(keys: pa.RecordBatch, name: str) -> bool:
    kind = keys.schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))
