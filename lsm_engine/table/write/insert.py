"""Insert only, and update only: rows are tagged before they are written, and again if others write."""

from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.modes import RowKind
from lsm_engine.base.units import counted
from lsm_engine.kernels.arrow_views import Bools, fixed_values
from lsm_engine.kernels.row_kinds import retracts
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.row_counts import RowCounts
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.find.row_locations import RowLocations, locate_rows
from lsm_engine.table.ground.incoming import conformed, open_rows
from lsm_engine.table.ground.row_kinds import ROW_KIND_COLUMN, takes_kinds
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.write.looked_up import write_looked_up
from lsm_engine.table.write.write import stage

_SHOWN = 3


class OnMismatch(Enum):
    """What an insert or update does with rows whose keys do not fit it."""

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
    if not table.num_rows:
        return None

    def stage_on(
        _: TableSession, base: Snapshot | None
    ) -> tuple[list[CommitMessage], RowCounts] | None:
        # Whole rows are written, which were made to fit the columns that the caller knows.
        tags = locate_rows(session, table, base)
        fits, counts = _fitting(tags, session.schema, condition)
        if not skips and not fits.all():
            raise _refusal(tags, session.schema, condition, fits)
        if not fits.any():
            return None
        return stage(session, table.filter(pa.array(fits)), base), counts

    return write_looked_up(session, identity, stage_on)


def _conformed_table(schema: TableSchema, rows: Any, condition: KeyCondition) -> pa.Table:
    """Return all rows, made to fit; retracts are refused."""
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
    tags: RowLocations, schema: TableSchema, condition: KeyCondition
) -> tuple[Bools, RowCounts]:
    """Return which rows are written, and what that does. A key is inserted once: the first row is."""
    is_first = _firsts(tags.keys, schema)
    if condition is KeyCondition.NEW:
        fits = ~tags.is_there & is_first
        return fits, RowCounts(inserted=int(fits.sum()), skipped=int((~fits).sum()))
    fits = tags.is_there
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
    tags: RowLocations, schema: TableSchema, condition: KeyCondition, fits: Bools
) -> InvalidInputError:
    wrong = np.flatnonzero(~fits)
    shown = tags.keys.select(list(schema.primary_keys)).take(pa.array(wrong[:_SHOWN])).to_pylist()
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
