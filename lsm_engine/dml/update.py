"""Insert only, update only, and new values for single columns."""

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.dml.write import Write, stage, write_looked_up
from lsm_engine.format.commit_message import CommitMessage, DataIncrement, WriteResult
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import by_bucket
from lsm_engine.format.snapshot import RowCounts, Snapshot
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values, one_array
from lsm_engine.kernels.changes import retracts
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.locate import RowLocations, locate_rows
from lsm_engine.options import core_options
from lsm_engine.options.modes import FileSource, RowKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.planning.row_ids import column_groups, row_ids_of
from lsm_engine.read.split import BucketReader
from lsm_engine.table.bucket_context import BucketContext, discard
from lsm_engine.table.incoming import ROW_KIND_COLUMN, conformed, open_rows, takes_kinds
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import require_writable
from lsm_engine.types.table_schema import ROW_ID, TableSchema

# -- Insert only, and update only ------------------------------------------------------------------
#
# Rows are located before they are written, and again if others write.

_SHOWN = 3


class OnMismatch(Enum):
    """The handling of rows whose keys do not suit an insert or update."""

    REFUSE = "refuse"
    SKIP = "skip"


class KeyCondition(Enum):
    """Which rows a write accepts: with new keys, or with existing keys."""

    NEW = "insert"
    EXISTING = "update"


def write_only(
    session: TableSession,
    rows: Any,
    identity: CommitIdentity,
    condition: KeyCondition,
    mismatch: str,
) -> WriteResult | None:
    """Write the rows whose keys are not there (`NEW`), or only those that are (`EXISTING`).

    The others are skipped, or refused with all the rest: InvalidInputError, nothing written. The
    rows are held in memory. Returns and raises as `upsert` does.
    """
    try:
        skips = OnMismatch(mismatch) is OnMismatch.SKIP
    except ValueError:
        raise InvalidInputError(
            "rows can be refused or skipped: give 'refuse' or 'skip'", given=mismatch
        ) from None
    table = _conformed_table(session.schema, rows, condition)
    # No rows match no key, so nothing is committed.
    if not table.num_rows:
        return None

    def stage_on(
        _: TableSession, base: Snapshot | None
    ) -> tuple[list[CommitMessage], RowCounts] | None:
        # Whole rows are written, which were made to fit the columns that the caller knows.
        locations = locate_rows(session, table, base)
        fits, counts = _fitting(locations, session.schema, condition)
        if not skips and not fits.all():
            raise _refusal(locations, session.schema, condition, fits)
        # Every row was skipped, so nothing is staged.
        if not fits.any():
            return None
        return stage(session, table.filter(pa.array(fits)), base), counts

    return write_looked_up(session, identity, stage_on)


def _conformed_table(schema: TableSchema, rows: Any, condition: KeyCondition) -> pa.Table:
    """Return all rows, made to fit; retracts are refused."""
    # An empty list has no columns that Arrow could infer.
    if isinstance(rows, list) and not rows:
        return pa.table({})
    reader = open_rows(rows, schema)
    is_update = condition is KeyCondition.EXISTING and takes_kinds(schema)
    if is_update and ROW_KIND_COLUMN not in reader.schema.names:
        reader = _as_updates(reader)
    batches = []
    for incoming in conformed(reader, schema):
        if retracts(fixed_values(incoming.kinds, np.int8)).any():
            raise InvalidInputError(
                f"{condition.value} takes rows to write, and some are -U or -D; use upsert or delete"
            )
        batches.append(incoming.rows)
    table = pa.Table.from_batches(batches) if batches else pa.table({})
    return _as_updates(table.to_reader()).read_all() if is_update else table


def _as_updates(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return rows of kind +U: a null that they state stands where a column has a default."""
    schema = reader.schema.append(pa.field(ROW_KIND_COLUMN, pa.int8()))
    kinds = (
        [*batch.columns, pa.repeat(pa.scalar(RowKind.UPDATE_AFTER.value, pa.int8()), len(batch))]
        for batch in reader
    )
    batches = (pa.RecordBatch.from_arrays(columns, schema=schema) for columns in kinds)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _fitting(
    locations: RowLocations, schema: TableSchema, condition: KeyCondition
) -> tuple[Bools, RowCounts]:
    """Return which rows are written, and what that does. A key is inserted once: the first row is."""
    is_first = _firsts(locations.keys, schema)
    # The first of two rows with one new key is the one that is inserted.
    if condition is KeyCondition.NEW:
        fits = ~locations.is_there & is_first
        return fits, RowCounts(inserted=int(fits.sum()), skipped=int((~fits).sum()))
    fits = locations.is_there
    return fits, RowCounts(updated=int((fits & is_first).sum()), skipped=int((~fits).sum()))


def _firsts(keys: pa.RecordBatch, schema: TableSchema) -> Bools:
    """Return which rows are the first ones of their keys."""
    fields = schema.select(schema.primary_keys)
    columns = [keys.column(field.name) for field in fields]
    batch, places = KeyBatch.from_columns(columns, [field.type for field in fields])
    firsts: Bools = np.zeros(len(places), np.bool_)
    firsts[places[batch.firsts]] = True
    return firsts


def _refusal(
    locations: RowLocations, schema: TableSchema, condition: KeyCondition, fits: Bools
) -> InvalidInputError:
    wrong = np.flatnonzero(~fits)
    shown = (
        locations.keys.select(list(schema.primary_keys)).take(pa.array(wrong[:_SHOWN])).to_pylist()
    )
    if condition is KeyCondition.NEW:
        text, kind = "to insert, with keys that are there already", ErrorKind.ROW_EXISTS
        remedy = "upsert replaces them, existing='skip' leaves them out"
    else:
        text, kind = "to update, with keys that are not there", ErrorKind.ROW_MISSING
        remedy = "upsert adds them, missing='skip' leaves them out"
    return InvalidInputError(
        f"{counted(len(wrong), 'row')} {text}; nothing was written: {remedy}",
        kind=kind,
        rows=len(wrong),
        keys=shown,
    )


# -- Update some columns of rows by row id: each range of ids gets a file of these columns ---------
#
# For `data-evolution.enabled`. The file has a value for every row of the range, so that readers
# can join it with the range's other files row by row; rows that were not updated keep their old
# values.


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
    # The same commit was made by an earlier attempt of the caller.
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
            is_remote=context.file_io.facts.is_remote,
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
            # No row of this range is updated, so its files stay.
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
    # A row that was not found has been deleted, or its id is wrong.
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
    with context.new_files(
        (work.partition, work.bucket),
        level=0,
        source=FileSource.APPEND,
        never_roll=True,
        write_columns=None if names == context.schema.names else names,
    ) as writer:
        for batch in _replaced(context, work, names):
            writer.write(batch)
        (file,) = writer.close()
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
