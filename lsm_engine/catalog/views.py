"""Views for people with a SQL prompt: names in place of ids, times in place of milliseconds.

They hold no rows, so each migration drops them and makes them anew.
"""

_TIMES = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', {0} / 1000.0, 'unixepoch')",
    "postgresql": "(to_timestamp({0} / 1000.0) AT TIME ZONE 'UTC')",
}

_NAME = (
    "t.database_name || '.' || t.table_name"
    " || CASE WHEN t.branch = 'main' THEN '' ELSE '@' || t.branch END"
)

_VIEWS = {
    "lsm_v_snapshots": """
        SELECT {name} AS table_name, s.snapshot_id, s.commit_kind, {time:s.time_millis} AS committed,
               s.state, s.total_record_count, s.delta_record_count, s.files_added, s.files_deleted,
               s.bytes_added, s.bytes_deleted, s.schema_id, s.operation, s.commit_user,
               s.run_id, s.asset_key, r.engine, r.kind AS run_kind, r.dagster_run_id, r.user_name
          FROM lsm_snapshots s
          JOIN lsm_tables t ON t.table_id = s.table_id
          LEFT JOIN lsm_runs r ON r.run_id = s.run_id AND r.asset_key = s.asset_key""",
    "lsm_v_runs": """
        SELECT r.run_id, r.asset_key, r.engine, r.kind, r.dagster_run_id, r.user_name,
               {time:COALESCE(r.started_millis, MIN(s.time_millis))} AS started,
               {time:MAX(s.time_millis)} AS ended, COUNT(*) AS snapshots
          FROM lsm_runs r
          JOIN lsm_snapshots s ON s.run_id = r.run_id AND s.asset_key = r.asset_key
         GROUP BY r.run_id, r.asset_key, r.engine, r.kind, r.dagster_run_id, r.user_name,
                  r.started_millis""",
    "lsm_v_live_files": """
        SELECT {name} AS table_name, f.partition_path, f.bucket, f.level, f.file_name, f.row_count,
               f.delete_row_count, f.file_size, f.min_sequence_number, f.max_sequence_number,
               f.schema_id, f.added_by, {time:f.creation_millis} AS created
          FROM lsm_files f JOIN lsm_tables t ON t.table_id = f.table_id
         WHERE f.deleted_by IS NULL AND f.content = 'data'""",
    "lsm_v_file_history": """
        SELECT {name} AS table_name, f.file_name, f.partition_path, f.bucket, f.level, f.content,
               f.row_count, f.file_size, f.added_by, {time:a.time_millis} AS added,
               f.deleted_by, {time:d.time_millis} AS deleted, d.commit_kind AS deleted_how, f.removed
          FROM lsm_files f
          JOIN lsm_tables t ON t.table_id = f.table_id
          LEFT JOIN lsm_snapshots a ON a.table_id = f.table_id AND a.snapshot_id = f.added_by
          LEFT JOIN lsm_snapshots d ON d.table_id = f.table_id AND d.snapshot_id = f.deleted_by""",
    "lsm_v_manifests": """
        SELECT {name} AS table_name, m.snapshot_id, m.kind, l.file_name AS manifest_list,
               m.position, m.file_name AS manifest, m.file_size, m.added_file_count,
               m.deleted_file_count, m.min_bucket, m.max_bucket, m.min_level, m.max_level
          FROM lsm_manifests m
          JOIN lsm_tables t ON t.table_id = m.table_id
          JOIN lsm_manifest_lists l ON l.table_id = m.table_id AND l.snapshot_id = m.snapshot_id
                                   AND l.kind = m.kind""",
    "lsm_v_compactions": """
        SELECT {name} AS table_name, c.snapshot_id, {time:s.time_millis} AS committed,
               c.partition_path, c.bucket, c.output_level, c.files_read, c.files_written,
               c.files_upgraded, c.rows_read, c.rows_written, c.bytes_read, c.bytes_written,
               s.run_id
          FROM lsm_compactions c
          JOIN lsm_tables t ON t.table_id = c.table_id
          JOIN lsm_snapshots s ON s.table_id = c.table_id AND s.snapshot_id = c.snapshot_id""",
    "lsm_v_file_edges": """
        SELECT {name} AS table_name, e.snapshot_id, e.bucket, e.source_name, e.source_level,
               e.kind, e.target_name, e.target_level
          FROM lsm_file_edges e JOIN lsm_tables t ON t.table_id = e.table_id""",
    "lsm_v_tags": """
        SELECT {name} AS table_name, g.tag_name, g.snapshot_id, g.created, g.retained_millis,
               g.deleted, {time:s.time_millis} AS committed, s.state AS snapshot_state,
               s.total_record_count
          FROM lsm_tags g
          JOIN lsm_tables t ON t.table_id = g.table_id
          LEFT JOIN lsm_snapshots s ON s.table_id = g.table_id
                                   AND s.snapshot_id = g.snapshot_id""",
    "lsm_v_inputs": """
        SELECT {name} AS table_name, i.snapshot_id, i.dataset, i.input_snapshot_id,
               i.after_snapshot_id, i.input_version, i.role, s.run_id,
               {time:s.time_millis} AS committed
          FROM lsm_inputs i
          JOIN lsm_tables t ON t.table_id = i.table_id
          LEFT JOIN lsm_snapshots s ON s.table_id = i.table_id
                                   AND s.snapshot_id = i.snapshot_id""",
    "lsm_v_column_inputs": """
        SELECT {name} AS table_name, c.snapshot_id, c.column_name, c.dataset, c.input_column
          FROM lsm_column_inputs c JOIN lsm_tables t ON t.table_id = c.table_id""",
}

VIEW_NAMES = tuple(_VIEWS)


class _Time:
    """Turns `{time:column}` into the dialect's way to show milliseconds as a time in UTC."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __format__(self, column: str) -> str:
        return self._pattern.format(column)


def view_statements(dialect: str) -> list[str]:
    """Return the SQL that drops and makes every view; `dialect` "sqlite" or "postgresql"."""
    statements = [f"DROP VIEW IF EXISTS {name}" for name in _VIEWS]
    time = _Time(_TIMES[dialect])
    statements += [
        f"CREATE VIEW {name} AS {select.format(name=_NAME, time=time)}"
        for name, select in _VIEWS.items()
    ]
    return statements
