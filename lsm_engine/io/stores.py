"""Which FileIO keeps the files of a location: by its scheme.

A new store is a module with `open_store(location, options) -> FileIO`, and a line here.
"""

from collections.abc import Mapping
from importlib import import_module

from lsm_engine.base.errors import UnsafePathError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.storage_location import parse_location
from lsm_engine.io.storage_options import StorageOptions


@record
class Store:
    """A kind of store: its module, and the extra that installs what the module imports."""

    module: str
    extra: str


_OBJECTS = "lsm_engine.io.object_store"
STORES: Mapping[str, Store] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), Store(module=_OBJECTS, extra="s3")),
    **dict.fromkeys(
        ("abfs", "abfss", "az", "azure", "wasb", "wasbs"), Store(module=_OBJECTS, extra="azure")
    ),
    **dict.fromkeys(("gs", "gcs"), Store(module=_OBJECTS, extra="gcs")),
    "memory": Store(module=_OBJECTS, extra="s3"),
}


def open_remote(location: str, options: StorageOptions) -> FileIO:
    """Return storage at a location with a scheme.

    Raises UnsafePathError for a scheme that is unknown, UnsupportedError, with the command that
    installs it, where the store's library is not there, InvalidOptionError for its options.
    """
    parsed = parse_location(location)
    store = STORES.get(parsed.scheme)
    if store is None:
        raise UnsafePathError(
            f"there is no store for the scheme {parsed.scheme!r}; there are "
            f"{', '.join(sorted(STORES))}, and plain paths",
            location=location,
        )
    try:
        module = import_module(store.module)
    except ModuleNotFoundError as cause:
        raise UnsupportedError(
            f"locations with {parsed.scheme}:// need a library that is not installed: "
            f"pip install 'lsm-assets[{store.extra}]'",
            location=location,
            module=cause.name,
        ) from cause
    found: FileIO = module.open_store(parsed, options)
    return found
