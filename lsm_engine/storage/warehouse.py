"""Directories of tables, on disks and in stores: open, rename, and delete them file by file."""

import errno
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from lsm_engine.base.errors import (
    AlreadyExistsError,
    LsmError,
    StorageError,
    UnsafePathError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.storage.bulk import read_many
from lsm_engine.storage.file_io import FileIO, FileStatus, check_path_text, to_storage_error
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.storage.location import (
    DATABASE_SUFFIX,
    StorageLocation,
    parse_location,
    plain_path,
    scheme_of,
)
from lsm_engine.storage.options import AZURE, GCS, HDFS, NO_OPTIONS, S3, StorageOptions
from lsm_engine.storage.paths import (
    BEING_DROPPED,
    BEING_RENAMED,
    BRANCH_PREFIX,
    SNAPSHOT_PREFIX,
    TablePaths,
)

# -- Which FileIO keeps the files of a location: by its scheme -------------------------------------
#
# A new store is a module with `open_store(location, options) -> FileIO`, and a line here, or
# one that its users add (docs/object-stores.md).


@record
class Store:
    """A kind of store: its module, and the extra that installs what the module imports.

    `moves`: it renames a directory at once, and its module has `move_directory(source, target, options)`.
    """

    module: str
    extra: str = ""
    moves: bool = False


_OBJECTS = "lsm_engine.storage.object_store"
STORES: dict[str, Store] = {
    **dict.fromkeys(S3.schemes, Store(module=_OBJECTS, extra="s3")),
    **dict.fromkeys(AZURE.schemes, Store(module=_OBJECTS, extra="azure")),
    **dict.fromkeys(GCS.schemes, Store(module=_OBJECTS, extra="gcs")),
    **dict.fromkeys(
        HDFS.schemes, Store(module="lsm_engine.storage.hdfs", extra="hdfs", moves=True)
    ),
    "memory": Store(module=_OBJECTS, extra="s3"),
}


def open_remote(location: str, options: StorageOptions) -> FileIO:
    """Return storage at a location with a scheme.

    Raises UnsafePathError for a scheme that is unknown, UnsupportedError, with the command that
    installs it, where the store's library is not there, InvalidOptionError for its options.
    """
    parsed = parse_location(location)
    file_io: FileIO = _module(_store(parsed), parsed).open_store(parsed, options)
    return file_io


def move_remote(source: str, target: str, options: StorageOptions) -> None:
    """Give a directory of a store another name. Raises UnsupportedError where that is not atomic."""
    parsed = parse_location(source)
    store = _store(parsed)
    if not store.moves:
        raise UnsupportedError(
            "a table on an object store cannot be moved or renamed: its location follows from its name, and "
            "the store cannot move files in one step; create a table of the new name and copy the rows",
            location=source,
        )
    _module(store, parsed).move_directory(parsed, parse_location(target), options)


def _store(location: StorageLocation) -> Store:
    store = STORES.get(location.scheme)
    if store is None and location.scheme in ("http", "https"):
        raise UnsafePathError(
            "this is the address of a server of lsm serve: give it as the catalog, not as the warehouse",
            location=location.text,
        )
    if store is None:
        raise UnsafePathError(
            f"there is no store for the scheme {location.scheme!r}; there are "
            f"{', '.join(sorted(STORES))}, and plain paths",
            location=location.text,
        )
    return store


def _module(store: Store, location: StorageLocation) -> ModuleType:
    try:
        return import_module(store.module)
    except ModuleNotFoundError as cause:
        raise UnsupportedError(
            f"locations with {location.scheme}:// need a library that is not installed: "
            + (f"pip install 'lsm-assets[{store.extra}]'" if store.extra else str(cause.name)),
            location=location.text,
            module=cause.name,
        ) from cause


# -- Directories of tables, on disks and in stores: open, rename, and delete them file by file -----

log = logging.getLogger(__name__)


def open_directory(location: str, *, storage: StorageOptions = NO_OPTIONS) -> FileIO:
    """Return storage rooted at a table's directory, which need not exist yet.

    `storage`: endpoints and credentials, for locations with a scheme. Raises UnsafePathError for a scheme
    that no store has and for text that no path can be, UnsupportedError where a store's library is not
    installed.
    """
    if scheme_of(location) is not None:
        return open_remote(location, storage)
    path = plain_path(location)
    check_path_text(path)
    return LocalFileIO(os.path.abspath(path))


def undurable(file_io: FileIO) -> FileIO:
    """Return the same storage without waits for a local disk (option commit.fsync)."""
    return file_io.undurable() if isinstance(file_io, LocalFileIO) else file_io


def database_directories(warehouse: str, storage: StorageOptions = NO_OPTIONS) -> list[str]:
    """Return the databases whose directories lie in a warehouse, "<database>.db", with tables or without."""
    return sorted(
        status.name.removesuffix(DATABASE_SUFFIX)
        for status in open_directory(warehouse, storage=storage).list("")
        if status.is_directory and status.name.endswith(DATABASE_SUFFIX)
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
    # A store reads these concurrently; each listing would be a request of its own.
    existing = set() if file_io.facts.has_directories else _existing_paths(file_io, first)
    tables = [
        table.path.split("/")
        for path, table in first.items()
        if path in existing or _may_be_table(file_io, table.path)
    ]
    return sorted((database.removesuffix(DATABASE_SUFFIX), table) for database, table in tables)


def _listed(file_io: FileIO, warehouse: str, database: str) -> list[FileStatus]:
    try:
        return file_io.list(database)
    except StorageError as error:
        # A store may refuse a listing to some users, who can still open tables by name.
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
    """Whether snapshots are in a directory without a schema, and no drop, not one that died, takes them away.

    A hint alone, which the last writer of a dropped table may leave, is none.
    """
    listed = file_io.list(f"{directory}/snapshot".lstrip("/"))
    if not any(status.name.startswith(SNAPSHOT_PREFIX) for status in listed):
        return False
    return not any(status.name.startswith(BEING_DROPPED) for status in file_io.list(directory))


def _is_forbidden(error: StorageError) -> bool:
    return error.facts.get("errno") in ("EACCES", "EPERM")


def _existing_paths(file_io: FileIO, paths: Iterable[str]) -> set[str]:
    return {path for path, data in read_many(file_io, paths) if data is not None}


def move_directory(source: str, target: str, storage: StorageOptions = NO_OPTIONS) -> None:
    """Rename a table's directory on the same disk; its files do not change.

    A source that does not exist is no error. Raises AlreadyExistsError if the target exists and has something in it, and
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
    if _is_occupied(target):
        raise _occupied(target)
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(source):
            os.rename(source, target)
    except OSError as cause:
        # Another process has put files into the empty directory since.
        if cause.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _occupied(target) from cause
        raise to_storage_error(target, cause) from cause


def _is_occupied(path: str) -> bool:
    """Whether a local path is there, but for an empty directory: a drop of a table leaves one, which a rename replaces."""
    try:
        return os.path.lexists(path) and (os.path.islink(path) or bool(os.listdir(path)))
    except OSError:
        # A file, or a directory of others.
        return True


def _occupied(target: str) -> AlreadyExistsError:
    return AlreadyExistsError("a directory is already there; move it away", path=target)


def move_renamed(
    source: str, target: str, names: str, storage: StorageOptions = NO_OPTIONS
) -> None:
    """Rename the directory of a table whose name changes, with a sign in it that shows the rename after a kill.

    A directory that a rename of the same `names` has moved before it died is left. Raises as `move_directory`.
    """
    former = open_directory(source, storage=storage)
    has_files = bool(former.list(""))
    if not has_files and renamed_as(open_directory(target, storage=storage)) == names:
        return
    is_refused = scheme_of(target) is None and _is_occupied(target)
    if has_files and former.facts.has_directories and not is_refused:
        # On a full disk the rename goes on without a sign.
        with suppress(StorageError):
            former.replace(BEING_RENAMED, names.encode())
    move_directory(source, target, storage)


def renamed_as(file_io: FileIO) -> str:
    """Return the former and the new name of the table of a directory that a rename has signed, or ""."""
    if not file_io.facts.has_directories:
        return ""  # a store that renames nothing
    try:
        return file_io.read(BEING_RENAMED).decode("utf-8", "replace")
    except LsmError:
        # Without a sign, or one that can be read, nothing is known of a rename.
        return ""


def _place_of(location: str) -> tuple[str, str] | None:
    """Return the scheme and host of a location, None for this machine's disks."""
    if scheme_of(location) is None:
        return None
    parsed = parse_location(location)
    return parsed.scheme, parsed.authority


def drop_directory(
    file_io: FileIO, forget: Callable[[Callable[[], None]], bool], drop_id: str
) -> None:
    """Remove a table's name by `forget`, and delete its files if that returns True.

    A marker of the drop prevents that a table is created in the directory meanwhile (`ddl/create`). `forget` calls
    what it is given within its transaction, once it has found the name: a rename may have taken the marker along,
    and another table may have the name and the directory.
    Concurrent drops of the table have markers of their own; one of them gets True and deletes the files. On
    a full disk the drop goes on without a marker. `drop_id`: the unique id of the drop.
    """
    marker = f"{BEING_DROPPED}-{drop_id}"

    def mark() -> None:
        with suppress(StorageError):
            file_io.replace(marker, b"")

    def mark_again() -> None:
        # A store without directories renames no table.
        if file_io.facts.has_directories and not file_io.exists(marker):
            mark()

    if not file_io.list(""):
        forget(lambda: None)
        return
    mark()
    try:
        if forget(mark_again):
            _clear_table(file_io)
    finally:
        file_io.delete(marker)


def delete_drop_markers(file_io: FileIO) -> None:
    """Delete the markers of drops that can take no name of this directory any more, as it was renamed."""
    file_io.delete_many(
        [entry.path for entry in file_io.list("") if entry.name.startswith(BEING_DROPPED)]
    )


def _clear_table(file_io: FileIO) -> None:
    """Delete the files of a dropped table one by one, but for markers of drops.

    Schemas are deleted first, then snapshots, of main and of each branch: a writer that commits after that
    finds neither its base nor its schema, and rolls its snapshot back; a snapshot committed earlier is
    listed. Links are not followed: a link remains, and its directory with it.
    """
    statuses = file_io.list(TablePaths().branch_directory)
    names = [
        status.name
        for status in statuses
        if status.is_directory and status.name.startswith(BRANCH_PREFIX)
    ]
    branch_paths = [TablePaths(branch_name=name.removeprefix(BRANCH_PREFIX)) for name in names]
    branch_paths.append(TablePaths())
    first = [
        *(paths.schema_directory for paths in branch_paths),
        *(paths.snapshot_directory for paths in branch_paths),
    ]
    for directory in (*first, ""):
        _clear(file_io, directory)


def _clear(file_io: FileIO, directory: str) -> None:
    if not file_io.facts.has_directories:
        paths = (entry.path for entry in file_io.list_files(directory))
        file_io.delete_many([path for path in paths if not path.startswith(BEING_DROPPED)])
        return
    for status in file_io.list(directory):
        if status.is_directory:
            _clear(file_io, status.path)
            file_io.remove_empty_directory(status.path)
        elif not status.path.startswith(BEING_DROPPED):
            file_io.delete(status.path)
