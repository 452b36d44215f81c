"""Directories of tables: opened, renamed, and deleted file by file."""

import os
from pathlib import Path

from lsm_engine.base.errors import AlreadyExistsError, UnsafePathError
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.local import LocalFileIO
from lsm_engine.io.storage_errors import check_path_text, to_storage_error

_DATABASE_SUFFIX = ".db"


def open_directory(location: str, *, durable: bool = True) -> FileIO:
    """Return storage rooted at a table's directory, which need not exist yet.

    `durable` false: nothing waits for the disk (option commit.fsync).
    Raises UnsafePathError for locations with a scheme other than file://, and for text that no path can be.
    """
    plain = location.removeprefix("file://")
    if "://" in plain:
        raise UnsafePathError(
            "this version keeps tables on local or mounted disks; give a path", location=location
        )
    check_path_text(plain)
    return LocalFileIO(os.path.abspath(plain), durable=durable)


def table_directories(warehouse: str) -> list[str]:
    """Return the tables whose directories lie in a warehouse, as "database.table", sorted.

    A table is a directory "<database>.db/<table>" with a schema folder in it.
    """
    file_io = open_directory(warehouse)
    found = []
    for database in file_io.list(""):
        if database.is_directory and database.name.endswith(_DATABASE_SUFFIX):
            for table in file_io.list(database.path):
                if table.is_directory and file_io.list(f"{table.path}/schema"):
                    name = database.name.removesuffix(_DATABASE_SUFFIX)
                    found.append(f"{name}.{table.name}")
    return sorted(found)


def move_directory(source: str, target: str) -> None:
    """Give a table's directory another name on the same disk; nothing in it changes.

    A source that does not exist is no error. Raises AlreadyExistsError if the target exists.
    """
    if os.path.lexists(target):
        raise AlreadyExistsError("a directory is already there; move it away", path=target)
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(source):
            os.rename(source, target)
    except OSError as cause:
        raise to_storage_error(target, cause) from cause


def clear_directory(file_io: FileIO, directory: str = "") -> int:
    """Delete the files below a dropped table's directory one by one; return how many.

    Links are not followed: one that is found is left, and its directory with it.
    """
    count = 0
    for status in file_io.list(directory):
        if status.is_directory:
            count += clear_directory(file_io, status.path)
            file_io.remove_empty_directory(status.path)
        else:
            count += file_io.delete(status.path)
    return count
