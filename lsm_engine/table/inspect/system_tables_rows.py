"""System tables that hold a table's own rows: audit_log, binlog and ro. And table_indexes."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidInputError
from lsm_engine.kernels.arrow_views import Bools, Longs, one_array
from lsm_engine.kernels.equality import equal_rows
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.changes.changelog_splits import Changes, ChangesRequest
from lsm_engine.table.changes.read_changes import ROW_KIND, SNAPSHOT_ID
from lsm_engine.table.ground.added_columns import refuse_taken
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.read.scan_plan import ScanRequest

ROWKIND = "rowkind"
TABLE_INDEXES = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("index_type", pa.string(), nullable=False),
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        (
            "dv_ranges",
            pa.list_(
                pa.struct(
                    [
                        ("f0", pa.string()),
                        ("f1", pa.int32()),
                        ("f2", pa.int32()),
                        ("cardinality", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)
"""`dv_ranges`: data file, offset and length of each deletion vector, and how many rows it deletes."""


def audit_log(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return all changes that are kept, up to a snapshot, oldest first, with their row kind first."""
    refuse_taken(session.schema.names, (ROWKIND,), "audit_log")
    rows = _changes(session, snapshot)
    columns = [rows.column(ROW_KIND), *(rows.column(name) for name in session.schema.names)]
    kind = pa.field(ROWKIND, pa.string(), nullable=False)
    return pa.Table.from_arrays(columns, schema=pa.schema([kind, *session.schema.arrow]))


def binlog(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the changes with a -U and the +U behind it in one row: every column as a list.

    A list holds [before, after] where `rowkind` is +U and both are known, else the one value.
    """
    refuse_taken(session.schema.names, (ROWKIND,), "binlog")
    rows = _changes(session, snapshot).combine_chunks()
    kinds = one_array(rows.column(ROW_KIND))
    starts = _row_starts(rows, session.schema)
    offsets = pa.array(np.append(starts, rows.num_rows).astype(np.int32))
    # The last of a pair holds the pair's row kind.
    last = pa.array(np.append(starts[1:], rows.num_rows)[: len(starts)] - 1)
    columns = [kinds.take(last)]
    fields = [pa.field(ROWKIND, pa.string(), nullable=False)]
    for field in session.schema.arrow:
        values = one_array(rows.column(field.name))
        listed = pa.ListArray.from_arrays(offsets, values)
        columns.append(listed)
        fields.append(pa.field(field.name, listed.type, nullable=False))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def read_optimized(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the rows of the deepest level alone, which need no merging; newer rows do not show.

    Where level 0 is hidden anyway (deletion vectors, first-row), nothing above it needs merging, and
    all of it is read.
    """
    if snapshot is None:
        return session.schema.arrow.empty_table()
    request = ScanRequest(snapshot_id=snapshot.id, read_optimized=True, is_batch=False)
    return Scan(session, request, snapshot).to_arrow()


def row_tracking(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the rows with their ids, and the snapshots that they came or changed with.

    Raises InvalidInputError for tables without 'row-tracking.enabled'.
    """
    if not session.schema.tracks_rows:
        raise InvalidInputError(
            "rows of this table have no ids; they do in tables created with 'row-tracking.enabled' = true",
            option=core_options.ROW_TRACKING_ENABLED.key,
            table=session.name,
        )
    current_id = None if snapshot is None else snapshot.id
    names = (*session.schema.names, *session.schema.tracking_names)
    request = ScanRequest(columns=names, snapshot_id=current_id, is_batch=False)
    return Scan(session, request, snapshot).to_arrow()


def table_indexes(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the index files of a snapshot: deletion vectors and hash indexes."""
    context = session.context()
    entries = [] if snapshot is None else session.index_entries(snapshot)
    rows = [
        {
            "partition": context.partition_path(entry.partition),
            "bucket": entry.bucket,
            "index_type": entry.index_file.index_type,
            "file_name": entry.index_file.file_name,
            "file_size": entry.index_file.file_size,
            "row_count": entry.index_file.row_count,
            "dv_ranges": [
                {
                    "f0": vector.data_file_name,
                    "f1": vector.offset,
                    "f2": vector.length,
                    "cardinality": vector.cardinality,
                }
                for vector in entry.index_file.deletion_vectors
            ]
            if entry.index_file.deletion_vectors is not None
            else None,
        }
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, schema=TABLE_INDEXES)


ROWS: Mapping[str, Callable[[TableSession, Snapshot | None], pa.Table]] = {
    "audit_log": audit_log,
    "binlog": binlog,
    "ro": read_optimized,
    "row_tracking": row_tracking,
}
"""By name; their columns are the table's, and some more."""


def _changes(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    request = ChangesRequest(upto=0 if snapshot is None else snapshot.id)
    return Changes(session, request).to_arrow()


def _row_starts(rows: pa.Table, schema: TableSchema) -> Longs:
    """Return where each row of a binlog begins: everywhere but at a +U that follows its own -U."""
    count = rows.num_rows
    begins: Bools = np.ones(count, np.bool_)
    if count > 1:
        kinds = one_array(rows.column(ROW_KIND))
        before = np.asarray(pc.equal(kinds, "-U").to_numpy(zero_copy_only=False), np.bool_)
        after = np.asarray(pc.equal(kinds, "+U").to_numpy(zero_copy_only=False), np.bool_)
        names = [SNAPSHOT_ID, *schema.primary_keys]
        keys = [one_array(rows.column(name)) for name in names]
        alike = equal_rows([key[:-1] for key in keys], [key[1:] for key in keys], count - 1)
        begins[1:] = ~(before[:-1] & after[1:] & alike)
    return np.flatnonzero(begins)
