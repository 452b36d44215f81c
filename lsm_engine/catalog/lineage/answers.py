"""Results of lineage queries: their columns, in order, and records of several tables."""

from typing import Any

import pyarrow as pa
from sqlalchemy import Boolean, ColumnElement, Connection, Integer, LargeBinary, Select, and_, or_

from lsm_engine.base.record import record
from lsm_engine.catalog.models import FILE_EDGES, FILES, MANIFEST_LISTS, MANIFESTS, RUNS, SNAPSHOTS

# -- The rows of a SELECT as an Arrow table --------------------------------------------------------


def arrow_rows(connection: Connection, statement: Select[Any]) -> pa.Table:
    """Return the rows of `statement`; types follow from its columns, so no rows have them too."""
    rows = connection.execute(statement).all()
    selected = list(statement.selected_columns)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(selected)
    return pa.table(
        {
            column.name: pa.array(values, type=_arrow_type(column.type))
            for column, values in zip(selected, columns, strict=True)
        }
    )


def _arrow_type(kind: object) -> pa.DataType:
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, Integer):
        return pa.int64()
    return pa.binary() if isinstance(kind, LargeBinary) else pa.string()


# -- Results of lineage queries: their columns, in order, and records of several tables ------------

SNAPSHOT_COLUMNS = (
    SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.commit_kind, SNAPSHOTS.c.time_millis, SNAPSHOTS.c.state,
    SNAPSHOTS.c.total_record_count, SNAPSHOTS.c.delta_record_count, SNAPSHOTS.c.files_added,
    SNAPSHOTS.c.files_deleted, SNAPSHOTS.c.bytes_added, SNAPSHOTS.c.bytes_deleted,
    SNAPSHOTS.c.schema_id, SNAPSHOTS.c.operation, SNAPSHOTS.c.commit_user, SNAPSHOTS.c.properties,
)  # fmt: skip

RUN_COLUMNS = (
    SNAPSHOTS.c.run_id, SNAPSHOTS.c.asset_key, RUNS.c.engine, RUNS.c.kind.label("run_kind"),
    RUNS.c.dagster_run_id, RUNS.c.user_name,
)  # fmt: skip

OF_RUN = and_(RUNS.c.run_id == SNAPSHOTS.c.run_id, RUNS.c.asset_key == SNAPSHOTS.c.asset_key)

IN_LIST = and_(
    MANIFEST_LISTS.c.table_id == MANIFESTS.c.table_id,
    MANIFEST_LISTS.c.snapshot_id == MANIFESTS.c.snapshot_id,
    MANIFEST_LISTS.c.kind == MANIFESTS.c.kind,
)

FILE_COLUMNS = (
    FILES.c.file_name, FILES.c.partition_path, FILES.c.bucket, FILES.c.level, FILES.c.content,
    FILES.c.row_count, FILES.c.delete_row_count, FILES.c.file_size, FILES.c.min_key,
    FILES.c.max_key, FILES.c.min_sequence_number, FILES.c.max_sequence_number, FILES.c.schema_id,
    FILES.c.creation_millis, FILES.c.file_source, FILES.c.added_by, FILES.c.deleted_by,
    FILES.c.removed, FILES.c.partition,
)  # fmt: skip

FILE_ORDER = (FILES.c.partition_path, FILES.c.bucket, FILES.c.level, FILES.c.file_name)

EDGE_COLUMNS = (
    FILE_EDGES.c.snapshot_id, FILE_EDGES.c.bucket, FILE_EDGES.c.source_name,
    FILE_EDGES.c.source_level, FILE_EDGES.c.kind, FILE_EDGES.c.target_name,
    FILE_EDGES.c.target_level,
)  # fmt: skip


@record
class FileLife:
    """The life of one data file.

    `stages`: one row per level it lay on, oldest first, `added_by` and `deleted_by` snapshots.
    `made_from`, `became`: edges of the compactions that wrote it and that read it. `pinned_by`:
    tags whose snapshot holds it.
    """

    stages: pa.Table
    made_from: pa.Table
    became: pa.Table
    pinned_by: pa.Table


@record
class CompactionLineage:
    """The lineage of a compaction: `buckets` with counts, `edges` from file to file."""

    buckets: pa.Table
    edges: pa.Table


def held_by(snapshot_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether a file is part of the state of a snapshot."""
    return and_(
        or_(FILES.c.added_by.is_(None), FILES.c.added_by <= snapshot_id),
        or_(FILES.c.deleted_by.is_(None), FILES.c.deleted_by > snapshot_id),
    )
