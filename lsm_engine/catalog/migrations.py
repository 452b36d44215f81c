"""The catalog's own schema, version by version, forward only.

A new database gets all tables in one step; an older one runs the missing steps. A database that is
neither empty, nor Paimon's, nor this catalog's is refused before a byte of it changes.
"""

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
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.models import (
    FILES,
    METADATA,
    PAIMON_TABLES,
    REMOVALS,
    VERSIONS,
    fit_to_postgresql,
)
from lsm_engine.catalog.views import VIEW_NAMES, view_statements
from lsm_engine.io.storage_errors import to_storage_error

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
