"""The catalog's own schema, version by version, forward only.

A new database gets all tables in one step; an older one runs the missing steps. A database that is
neither empty, nor Paimon's, nor this catalog's is refused before a byte of it changes."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import Connection, func, inspect, select

from lsm_engine.base.errors import (
    CorruptFileError,
    InvalidInputError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.catalog.database import Database, open_url
from lsm_engine.catalog.models import (
    FILES,
    METADATA,
    PAIMON_TABLES,
    REMOVALS,
    VERSIONS,
    fit_to_postgresql,
)
from lsm_engine.storage.file_io import to_storage_error

# -- Views for people with a SQL prompt: names in place of ids, times in place of milliseconds -----
#
# They hold no rows, so each migration drops them and makes them anew.

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


# -- The catalog's own schema, version by version, forward only ------------------------------------

OWNER_ONLY = 0o600
APPLICATION_ID = 0x4C534D43
"""Marks a SQLite file as a catalog ("LSMC"), in bytes 68 to 71 of its header."""

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_MIGRATION_LOCK = APPLICATION_ID
_NAMES_SHOWN_MAX = 5


@record
class Migration:
    """One step to the next version of the catalog's schema."""

    version: int
    description: str
    apply: Callable[[Connection], None]


def _create_everything(connection: Connection) -> None:
    METADATA.create_all(connection)


def _index_files_by_bucket(connection: Connection) -> None:
    (index,) = (candidate for candidate in FILES.indexes if candidate.name == "lsm_files_bucket")
    index.create(connection, checkfirst=True)


def _create_removals(connection: Connection) -> None:
    REMOVALS.create(connection, checkfirst=True)


MIGRATIONS = (
    Migration(
        version=1, description="Paimon's tables, lineage and views", apply=_create_everything
    ),
    Migration(version=2, description="files found by their bucket", apply=_index_files_by_bucket),
    Migration(version=3, description="what maintenance took, and why", apply=_create_removals),
)


def open_database(database: Database, steps: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring `database` to the newest version, creating it if there is none.

    Raises InvalidInputError for a database of something else, UnsupportedError for one made by a
    newer version of this library, CorruptFileError for a file that is no database.
    """
    if database.path is not None:
        _prepare_file(database, Path(database.path))
    if database.read(_version) != steps[-1].version:
        database.write(lambda connection: _migrate(connection, database, steps))
        if database.path is not None:
            _restrict(Path(database.path))
    if database.dialect == "sqlite" and database.path is not None:
        database.switch_to_wal()


def _migrate(connection: Connection, database: Database, steps: Sequence[Migration]) -> None:
    if database.dialect == "postgresql":
        fit_to_postgresql()
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    version = _version(connection)  # another process may have been faster
    if version is None:
        _refuse_foreign(_names(connection), database.shown_url)
    newest = steps[-1].version
    if version is not None and version > newest:
        raise UnsupportedError(
            "this catalog was made by a newer version of the library; upgrade the library, or move the "
            "file away and run 'lsm catalog rebuild'",
            catalog=database.shown_url,
            version=version,
            supported=newest,
        )
    # Tables that Paimon made are ours to share: every step asks whether its tables are there.
    for step in steps:
        if version is None or step.version > version:
            step.apply(connection)
            connection.execute(
                VERSIONS.insert().values(version=step.version, description=step.description)
            )
    for statement in view_statements(database.dialect):
        connection.exec_driver_sql(statement)
    if database.dialect == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def _version(connection: Connection) -> int | None:
    """Return the version of the catalog in the database; None if there is none yet."""
    if not inspect(connection).has_table(VERSIONS.name):
        return None
    version: int | None = connection.scalar(select(func.max(VERSIONS.c.version)))
    return version


def _names(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def _refuse_foreign(names: set[str], catalog: str) -> None:
    ours = {table.name for table in METADATA.sorted_tables} | set(VIEW_NAMES)
    if names and PAIMON_TABLES.name not in names:
        raise InvalidInputError(
            "this database belongs to something else; give the catalog one of its own",
            catalog=catalog,
            tables=sorted(names - ours)[:_NAMES_SHOWN_MAX],
        )


# ---- the file of a SQLite catalog ---------------------------------------------------------------


def _prepare_file(database: Database, path: Path) -> None:
    """Create the file, readable by its owner alone, or check the existing one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC  # others may be creating it as well
            os.close(os.open(path, flags, OWNER_ONLY))
    except OSError as error:
        raise StorageError(
            "the catalog's file cannot be created; choose a place that can be written to",
            catalog=database.shown_url,
        ) from error
    if path.is_dir() and not any(path.iterdir()):
        raise CorruptFileError(
            "an empty directory is where the catalog's file belongs, as a container's mount leaves one; "
            "'lsm catalog rebuild' moves it aside and makes the catalog anew",
            catalog=database.shown_url,
        )
    if not path.is_file():
        raise InvalidInputError(
            "the catalog's path is a directory or no plain file; move it away, then 'lsm catalog rebuild' "
            "makes a catalog there; or give another path",
            catalog=database.shown_url,
        )
    header = _header(path)
    if not header or int.from_bytes(header[68:72], "big") == APPLICATION_ID:
        return
    if not header.startswith(_MAGIC):
        raise CorruptFileError(
            "the catalog's file is no SQLite database; it was left alone; if it was the catalog, "
            "'lsm catalog rebuild' moves it aside and makes it anew; else give another path",
            catalog=database.shown_url,
        )
    names = database.patiently(lambda: _names_without_touching(path))
    _refuse_foreign(names, database.shown_url)


def _header(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as cause:
        raise to_storage_error(str(path), cause) from cause
    try:
        return os.read(descriptor, _HEADER_BYTES)
    finally:
        os.close(descriptor)


def _names_without_touching(path: Path) -> set[str]:
    """Return the tables of a SQLite file without creating other files.

    Without a log the file is complete, and SQLite may open it as immutable.
    """
    has_log = any(Path(f"{path}{suffix}").exists() for suffix in ("-wal", "-journal"))
    mode = "mode=ro" if has_log else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)
    try:
        return {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if not name.startswith("sqlite_")
        }
    finally:
        connection.close()


def _restrict(path: Path) -> None:
    """Remove permissions of other users, once: a later deliberate change is retained."""
    for suffix in ("", "-wal", "-shm"):
        file = Path(f"{path}{suffix}")
        try:
            if file.stat().st_mode & 0o077 and file.stat().st_uid == os.geteuid():
                file.chmod(OWNER_ONLY)
        except FileNotFoundError:  # SQLite has not created this log
            continue


# -- Moves a damaged catalog file aside, so that a rebuilt one can take its place ------------------

_ENDINGS = (".db", ".sqlite", ".sqlite3")
_BESIDE = ("", "-wal", "-shm", "-journal")


def set_damaged_file_aside(url: str) -> str | None:
    """Move the file of a damaged SQLite catalog to "<file>.damaged-1", -2, …; return that path.

    None, and nothing moved, for a sound catalog, one that does not exist yet, and one on a server.
    Every page is checked. Raises CorruptFileError for a file that is no database and is not named like
    one, and what opening raises for a database of something else, or of a newer version.
    """
    database = Database(open_url(url))
    if database.path is None or not os.path.exists(database.path):
        return None
    try:
        open_database(database)
        database.read(_check_pages)
    except CorruptFileError:
        if not database.path.endswith(_ENDINGS):
            raise
    else:
        return None
    finally:
        database.close()
    return _moved(database.path)


def _check_pages(connection: Connection) -> None:
    result = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
    if result != "ok":
        raise CorruptFileError("the catalog's pages do not agree with each other", cause=result)
    for table in METADATA.sorted_tables:
        connection.execute(select(table).limit(1)).all()


def _moved(path: str) -> str:
    number = 1
    while os.path.lexists(f"{path}.damaged-{number}"):
        number += 1
    aside = f"{path}.damaged-{number}"
    try:
        for suffix in _BESIDE:
            if Path(f"{path}{suffix}").exists():
                os.rename(f"{path}{suffix}", f"{aside}{suffix}")
    except OSError as cause:
        raise to_storage_error(path, cause) from cause
    return aside
