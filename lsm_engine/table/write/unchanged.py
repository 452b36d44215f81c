"""Skip buckets whose staged rows equal the stored rows."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.kernels.arrow_views import fixed_values, one_array
from lsm_engine.kernels.row_kinds import retracts
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.schema.table_schema import VALUE_KIND, TableSchema
from lsm_engine.schema.types import ScalarType
from lsm_engine.table.find.lookup import FOUND, TableQuery
from lsm_engine.table.ground.session import TableSession

_ROWS = 65_536


def skips_unchanged(schema: TableSchema) -> bool:
    """Whether writes of a table leave out what is stored already."""
    return schema.has_primary_key and schema.options[core_options.WRITE_SKIP_UNCHANGED]


def changed_messages(
    session: TableSession, base: Snapshot | None, messages: Sequence[CommitMessage]
) -> list[CommitMessage]:
    """Return the messages of buckets in which a row differs from that of a snapshot.

    Staged files are read until the first row that differs: a load that changes much costs little, one
    that changes nothing is read whole and looked up. Rows with nested columns count as changed.
    """
    fields = session.schema.fields
    if base is None or not all(isinstance(field.type, ScalarType) for field in fields):
        return list(messages)
    with TableQuery(session.with_level_0(), snapshot=base) as query:
        return [message for message in messages if _changes(session, query, message)]


def _changes(session: TableSession, query: TableQuery, message: CommitMessage) -> bool:
    if message.bucket < 0 or not message.data.new_files or not message.compact.is_empty:
        return True  # rows that wait for a bucket cannot be looked up
    return any(
        _differs(query, rows)
        for file in message.data.new_files
        for rows in _rows_of(session, message, file)
    )


def _rows_of(
    session: TableSession, message: CommitMessage, file: DataFileMeta
) -> Iterable[pa.RecordBatch]:
    context = session.context([file.schema_id])
    names = (*session.schema.names, VALUE_KIND)
    with context.open_file(message.partition, message.bucket, file, names) as reader:
        for batch in reader.batches():
            for start in range(0, batch.num_rows, _ROWS):
                yield batch.slice(start, _ROWS)


def _differs(query: TableQuery, rows: pa.RecordBatch) -> bool:
    """Whether storing rows would change what readers see; a delete of no row does not."""
    names = rows.schema.names[:-1]
    retracted = retracts(fixed_values(one_array(rows.column(VALUE_KIND)), np.int8))
    stored = query.lookup(rows.select(names), names)
    is_there = stored.column(FOUND).to_numpy()
    if (is_there == retracted).any():
        return True
    new, old = rows.filter(pa.array(is_there)), stored.filter(pa.array(is_there))
    return not all(_equal(new.column(name), old.column(name)) for name in names)


def _equal(new: pa.Array, old: pa.ChunkedArray) -> bool:
    return bool(pc.all(_is_same(new, old.cast(new.type)), min_count=0).as_py())


def _is_same(new: pa.Array, old: pa.ChunkedArray) -> pa.ChunkedArray:
    same = pc.fill_null(pc.equal(new, old), pc.and_(pc.is_null(new), pc.is_null(old)))
    if not pa.types.is_floating(new.type):
        return same
    not_numbers = pc.and_(pc.is_nan(new), pc.is_nan(old))
    return pc.or_(same, pc.fill_null(not_numbers, fill_value=False))
