"""Directories of tables, on disks and in stores: opened, renamed, and deleted file by file."""

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from lsm_engine.base.errors import AlreadyExistsError, StorageError, UnsupportedError
from lsm_engine.io.file_io import FileIO, FileStatus
from lsm_engine.io.local import LocalFileIO
from lsm_engine.io.paths import BEING_DROPPED, BRANCH_PREFIX, TablePaths
from lsm_engine.io.storage_errors import check_path_text, to_storage_error
from lsm_engine.io.storage_location import DATABASE_SUFFIX, parse_location, plain_path, scheme_of
from lsm_engine.io.storage_options import NO_OPTIONS, StorageOptions
from lsm_engine.io.stores import move_remote, open_remote

log = logging.getLogger(__name__)


def open_directory(location: str, *, storage: StorageOptions = NO_OPTIONS) -> FileIO:
    """Return storage rooted at a table's directory, which need not exist yet.

    `storage`: endpoints and credentials, for locations with a scheme. Raises UnsafePathError for a scheme
    that no store has and for text that no path can be, UnsupportedError where a store's library is not
    installed.
    """
    if scheme_of(location) is not None:
        return open_remote(location, storage)
    plain = plain_path(location)
    check_path_text(plain)
    return LocalFileIO(os.path.abspath(plain))


def undurable(file_io: FileIO) -> FileIO:
    """Return the same storage, where nothing waits for a disk of this machine (option commit.fsync)."""
    return file_io.undurable() if isinstance(file_io, LocalFileIO) else file_io


def database_directories(warehouse: str, storage: StorageOptions = NO_OPTIONS) -> list[str]:
    """Return the databases whose directories lie in a warehouse, "<database>.db", with tables or without."""
    return sorted(
        one.name.removesuffix(DATABASE_SUFFIX)
        for one in open_directory(warehouse, storage=storage).list("")
        if one.is_directory and one.name.endswith(DATABASE_SUFFIX)
    )


def table_directories(
    warehouse: str, storage: StorageOptions = NO_OPTIONS
) -> list[tuple[str, str]]:
    """Return the database and the table of each directory of a table that lies in a warehouse, sorted.

    A table is a directory "<database>.db/<table>" with a schema folder in it, whatever it is called, or one that
    this user may not look into, or that has lost its schema: opening it raises why. Of a database that may not be listed there is a warning.
    """
    file_io = open_directory(warehouse, storage=storage)
    candidates = [
        table
        for database in file_io.list("")
        if database.is_directory and database.name.endswith(DATABASE_SUFFIX)
        for table in _listed(file_io, warehouse, database.path)
        if table.is_directory
    ]
    first = {f"{table.path}/schema/schema-0": table for table in candidates}
    # On a store these come together; one listing after another would be a request each.
    there = set() if file_io.facts.has_directories else _there(file_io, first)
    found = [
        table.path.split("/")
        for path, table in first.items()
        if path in there or _may_be_table(file_io, table.path)
    ]
    return sorted((database.removesuffix(DATABASE_SUFFIX), table) for database, table in found)


def _listed(file_io: FileIO, warehouse: str, database: str) -> list[FileStatus]:
    try:
        return file_io.list(database)
    except StorageError as error:
        if not _is_forbidden(error):
            raise
        _warn_once(warehouse, database)
        return []


@lru_cache(maxsize=1024)
def _warn_once(warehouse: str, database: str) -> None:
    """Warn of a database the first time that this process looks for tables in the warehouse."""
    log.warning("the tables of %s are left out: this user may not list it", database)


def _may_be_table(file_io: FileIO, directory: str) -> bool:
    try:
        return bool(file_io.list(f"{directory}/schema")) or has_lost_schema(file_io, directory)
    except StorageError as error:
        if not _is_forbidden(error):
            raise
        return True


def has_lost_schema(file_io: FileIO, directory: str = "") -> bool:
    """Whether snapshots are in a directory without a schema, and no drop, not one that died, takes them away."""
    if not file_io.list(f"{directory}/snapshot".lstrip("/")):
        return False
    return not any(one.name.startswith(BEING_DROPPED) for one in file_io.list(directory))


def _is_forbidden(error: StorageError) -> bool:
    return error.facts.get("errno") in ("EACCES", "EPERM")


def _there(file_io: FileIO, paths: Iterable[str]) -> set[str]:
    return {path for path, data in file_io.read_many(paths) if data is not None}


def move_directory(source: str, target: str, storage: StorageOptions = NO_OPTIONS) -> None:
    """Give a table's directory another name on the same disk; nothing in it changes.

    A source that does not exist is no error. Raises AlreadyExistsError if the target exists, and
    UnsupportedError for object stores, which have no rename, and from one disk or store to another.
    """
    if _place_of(source) != _place_of(target):
        raise UnsupportedError(
            "a table's directory moves only within one disk or cluster; create a table of that name and "
            "copy the rows",
            source=source,
            target=target,
        )
    if scheme_of(source) is not None:
        move_remote(source, target, storage)
        return
    if os.path.lexists(target):
        raise AlreadyExistsError("a directory is already there; move it away", path=target)
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(source):
            os.rename(source, target)
    except OSError as cause:
        raise to_storage_error(target, cause) from cause


def _place_of(location: str) -> tuple[str, str] | None:
    """Return the scheme and host of a location, None for this machine's disks."""
    if scheme_of(location) is None:
        return None
    parsed = parse_location(location)
    return parsed.scheme, parsed.authority


def drop_directory(file_io: FileIO, forget: Callable[[], bool], drop_id: str) -> None:
    """Take a table's name by `forget`, and if that is done (True) delete its files.

    Meanwhile a sign of this drop lies there, and no table is made beside it (`table/ddl/create`). Others
    that drop the same table have signs of their own: only one of them gets True, and clears. On a full
    disk the drop goes on without the sign. `drop_id`: of this drop, and no other.
    """
    if not file_io.list(""):
        forget()
        return
    sign = f"{BEING_DROPPED}-{drop_id}"
    with suppress(StorageError):
        file_io.replace(sign, b"")
    try:
        if forget():
            _clear_table(file_io)
    finally:
        file_io.delete(sign)


def _clear_table(file_io: FileIO) -> None:
    """Delete the files below a dropped table's directory one by one, but for signs of drops.

    Schemas go first, then snapshots, of main and of each branch: a writer whose snapshot lands after that
    finds neither its base nor its schema, and takes it back; what landed before is listed then. Links are
    not followed: one that is found is left, and its directory with it.
    """
    found = file_io.list(TablePaths().branch_directory)
    names = [one.name for one in found if one.is_directory and one.name.startswith(BRANCH_PREFIX)]
    lines = [TablePaths(branch_name=name.removeprefix(BRANCH_PREFIX)) for name in names]
    lines.append(TablePaths())
    first = [
        *(one.schema_directory for one in lines),
        *(one.snapshot_directory for one in lines),
    ]
    for directory in (*first, ""):
        _clear(file_io, directory)


def _clear(file_io: FileIO, directory: str) -> None:
    if not file_io.facts.has_directories:
        paths = (one.path for one in file_io.list_files(directory))
        file_io.delete_many([path for path in paths if not path.startswith(BEING_DROPPED)])
        return
    for status in file_io.list(directory):
        if status.is_directory:
            _clear(file_io, status.path)
            file_io.remove_empty_directory(status.path)
        elif not status.path.startswith(BEING_DROPPED):
            file_io.delete(status.path)
