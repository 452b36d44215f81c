"""Update some columns of rows by row id: each range of ids gets a file of these columns.

For `data-evolution.enabled`. The file has a value for every row of the range, so that readers can join it
with the range's other files row by row; rows that were not updated keep their old values.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.modes import FileSource
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.base.units import counted
from lsm_engine.kernels.arrow_views import Longs, one_array
from lsm_engine.meta.commit_message import CommitMessage, DataIncrement
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import by_bucket
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.plan.row_ids import column_groups, row_ids_of
from lsm_engine.schema.table_schema import ROW_ID, TableSchema
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.discard import discard
from lsm_engine.table.ground.incoming import conformed, open_rows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import require_writable
from lsm_engine.table.read.split_read import BucketReader
from lsm_engine.table.write.write import Write

_SHOWN = 3


@record
class ColumnWork:
    """New values for rows of one range: `files` hold the range, newest first; `rows` by ascending id."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    rows: pa.Table


def update_columns(
    session: TableSession, rows: Any, identity: CommitIdentity
) -> WriteResult | None:
    """Give rows new values in some columns; `rows` has `_ROW_ID` and these columns. None: no row.

    All rows are held in memory. Raises InvalidInputError for tables without 'data-evolution.enabled', for
    partition columns, ids that are null, doubled or nowhere in the table, and rows that do not fit.
    """
    new_values = _new_values(session, rows)
    write = Write(session, identity)
    before = write.replayed()
    if before is not None:
        return before
    require_writable(session)
    if not new_values.num_rows:
        return None

    def attempt(_: int) -> WriteResult | None:
        base = session.snapshots.latest()
        work = _planned(session, base, new_values)
        files = [file for item in work for file in item.files]
        context = session.context(file.schema_id for file in files)
        messages = session.components.executor.messages(
            partial(_written, context),
            work,
            label=f"update columns of {session.name}",
            discard=partial(discard, context),
            is_far=context.file_io.facts.is_far,
        )
        return write.land(messages, planned_on=base)

    # Others may join the files, or give the rows other values: then it is looked at what they are by then.
    return write.again(attempt)


def _new_values(session: TableSession, rows: Any) -> pa.Table:
    """Return rows as the table stores them, by ascending id."""
    schema = session.schema
    if not schema.evolves_data:
        raise InvalidInputError(
            "columns of rows are updated by id in tables that have 'row-tracking.enabled' and "
            "'data-evolution.enabled' = true; create the table with both",
            option=core_options.DATA_EVOLUTION_ENABLED.key,
            table=session.name,
        )
    if isinstance(rows, list) and len({frozenset(row) for row in rows}) > 1:
        raise InvalidInputError(
            "the rows name different columns, and a column that is left out of one is not to become null; "
            "update each set of columns by itself",
            kind=ErrorKind.INVALID_ROWS,
            table=session.name,
        )
    reader = open_rows(rows, schema)
    names = [name for name in schema.names if name in reader.schema.names]
    fixed = [name for name in names if name in schema.partition_keys]
    if ROW_ID not in reader.schema.names or not names or fixed:
        raise InvalidInputError(
            f"rows to update need {ROW_ID!r} and columns of the table that are no partition columns",
            columns=fixed or reader.schema.names,
            table=session.name,
        )
    narrowed = _narrowed(schema, tuple(names))
    nullable = pa.schema([field.with_nullable(True) for field in narrowed.arrow])  # noqa: FBT003
    batches = [incoming.rows for incoming in conformed(reader, narrowed)]
    table = pa.Table.from_batches(batches, schema=nullable).sort_by(ROW_ID)
    ids = one_array(table.column(ROW_ID)).to_numpy()
    doubled = ids[1:][ids[1:] == ids[:-1]]
    if len(doubled):
        raise InvalidInputError(
            "a row is named twice, so that its new values are not known; name each once",
            kind=ErrorKind.INVALID_KEY,
            row_ids=doubled[:_SHOWN].tolist(),
        )
    return table


def _narrowed(schema: TableSchema, names: tuple[str, ...]) -> TableSchema:
    fields = tuple(
        replace(field, default_value=None) if field.type.nullable else field  # a null stands
        for field in schema.written_fields((ROW_ID, *names))
    )
    return replace(schema, fields=fields, partition_keys=(), options=TableOptions())


def _planned(session: TableSession, base: Snapshot | None, rows: pa.Table) -> list[ColumnWork]:
    """Return the ranges that hold the rows; raises InvalidInputError for rows that are nowhere."""
    ids = one_array(rows.column(ROW_ID)).to_numpy()
    live = [] if base is None else session.live_entries(base)
    is_found = np.zeros(len(ids), np.bool_)
    work = []
    for (partition, bucket), entries in by_bucket(live).items():
        for files in column_groups(entry.file for entry in entries):
            id_range = row_ids_of(files[0])
            low, high = np.searchsorted(ids, (id_range.start, id_range.stop)).tolist()
            if low == high:
                continue
            is_found[low:high] = True
            work.append(
                ColumnWork(
                    partition=partition,
                    bucket=bucket,
                    total_buckets=entries[0].total_buckets,
                    files=files,
                    rows=rows.slice(low, high - low),
                )
            )
    if not is_found.all():
        raise InvalidInputError(
            f"{counted(int((~is_found).sum()), 'row')} to update could not be found in the table; nothing was written",
            kind=ErrorKind.ROW_MISSING,
            row_ids=ids[~is_found][:_SHOWN].tolist(),
        )
    return work


def _written(context: BucketContext, work: ColumnWork) -> CommitMessage:
    """Write the columns for all rows of a range, as a file that nothing names yet."""
    names = tuple(name for name in work.rows.column_names if name != ROW_ID)
    writer = context.new_files(
        work.partition,
        work.bucket,
        level=0,
        source=FileSource.APPEND,
        never_roll=True,
        write_columns=None if names == context.schema.names else names,
    )
    try:
        for batch in _replaced(context, work, names):
            writer.write(batch)
        (file,) = writer.close()
    except BaseException:
        writer.abort()
        raise
    # The commit numbers it, with the snapshot that it lands in.
    first = row_ids_of(work.files[0]).start
    file = replace(file, first_row_id=first, min_sequence_number=0, max_sequence_number=0)
    return CommitMessage(
        partition=work.partition,
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        data=DataIncrement(new_files=(file,)),
    )


def _replaced(
    context: BucketContext, work: ColumnWork, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a range, in order, with the values that were given."""
    first = row_ids_of(work.files[0]).start
    positions: Longs = one_array(work.rows.column(ROW_ID)).to_numpy() - first
    new_columns = [one_array(work.rows.column(name)) for name in names]
    reader = BucketReader(context, work.partition, work.bucket)
    begin = 0
    for batch in reader.joined(tuple((file,) for file in work.files), names):
        count = batch.num_rows
        low, high = np.searchsorted(positions, (begin, begin + count)).tolist()
        chosen: Longs = np.arange(count, dtype=np.int64)
        chosen[positions[low:high] - begin] = count + np.arange(high - low)
        columns = [
            pa.concat_arrays([batch.column(name), new.slice(low, high - low)]).take(
                pa.array(chosen)
            )
            for name, new in zip(names, new_columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=list(names))
        begin += count
