"""Which FileIO keeps the files of a location: by its scheme.

A new store is a module with `open_store(location, options) -> FileIO`, and a line here, or one that its
users add (docs/object-stores.md).
"""

from importlib import import_module
from types import ModuleType

from lsm_engine.base.errors import UnsafePathError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.storage_location import StorageLocation, parse_location
from lsm_engine.io.storage_options import StorageOptions


@record
class Store:
    """A kind of store: its module, and the extra that installs what the module imports.

    `moves`: it renames a directory at once, and its module has `move_directory(source, target, options)`.
    """

    module: str
    extra: str = ""
    moves: bool = False


_OBJECTS = "lsm_engine.io.object_store"
STORES: dict[str, Store] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), Store(module=_OBJECTS, extra="s3")),
    **dict.fromkeys(
        ("abfs", "abfss", "az", "azure", "wasb", "wasbs"), Store(module=_OBJECTS, extra="azure")
    ),
    **dict.fromkeys(("gs", "gcs"), Store(module=_OBJECTS, extra="gcs")),
    **dict.fromkeys(
        ("hdfs", "viewfs"), Store(module="lsm_engine.io.hdfs_store", extra="hdfs", moves=True)
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
    """Give a directory of a store another name. Raises UnsupportedError where that cannot be done at once."""
    parsed = parse_location(source)
    store = _store(parsed)
    if not store.moves:
        raise UnsupportedError(
            "a table on an object store cannot be moved or renamed: its location follows from its name, and "
            "the store cannot move files at once; create a table of the new name and copy the rows",
            location=source,
        )
    _module(store, parsed).move_directory(parsed, parse_location(target), options)


def _store(location: StorageLocation) -> Store:
    store = STORES.get(location.scheme)
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
