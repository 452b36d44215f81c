"""Open a table by its directory; refuse tables that this version would misread. Imports no write modules."""

import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future, wait
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, ErrorKind, NotFoundError
from lsm_engine.ddl.checks import refuse_row_tracking
from lsm_engine.metadata.schemas import SchemaStore
from lsm_engine.metadata.snapshots import expect_newest
from lsm_engine.options import core_options
from lsm_engine.options.foreign import Verdict
from lsm_engine.options.table_options import unsupported_options
from lsm_engine.storage.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.storage.executor import begin
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions
from lsm_engine.storage.paths import TablePaths
from lsm_engine.storage.warehouse import has_lost_schema, open_directory, undurable
from lsm_engine.table.components import Components, Executor, LocalExecutor
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema

# -- Late imports of PyArrow, loaded while a remote store answers ----------------------------------
#
# PyArrow imports pandas, where it is installed, for the first value that it makes of one of
# Python's: 0.2 s of CPU.

_begun: "list[Future[Any]]" = []


def load_beside() -> None:
    """Begin it, once in a process; a fork waits for its end, as an import that a fork cuts off never ends."""
    if not _begun:
        _begun.append(begin(pa.scalar, 0))


def _wait() -> None:
    wait(_begun)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait)


# -- Open a table by its directory -----------------------------------------------------------------

log = logging.getLogger(__name__)


def open_session(
    path: str,
    *,
    storage: Mapping[str, Any] | StorageOptions | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> TableSession:
    """Open a table's stores; arguments and errors as of `open_table`."""
    options = StorageOptions.coerce(storage)
    file_io, schema = open_directory_of_table(path, options)
    components = Components(
        file_io=file_io,
        location=path,
        storage=options,
        executor=executor or LocalExecutor(),
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
    )
    return TableSession(path, components, schema)


def open_directory_of_table(
    location: str, storage: StorageOptions = NO_OPTIONS
) -> tuple[FileIO, TableSchema]:
    """Return storage at a table's directory, as durable as its options ask for, and its schema in force.

    Raises what `load_schema` does. From afar the newest snapshot is asked for meanwhile.
    """
    file_io = open_directory(location, storage=storage)
    expect_newest(file_io, TablePaths())
    if file_io.facts.is_remote:
        load_beside()
    schema = load_schema(file_io, location)
    return file_io if schema.options[core_options.COMMIT_FSYNC] else undurable(file_io), schema


def load_schema(file_io: FileIO, location: str) -> TableSchema:
    """Return the schema in force; raises NotFoundError where there is no table, CorruptFileError where only
    its schema is lost, UnsupportedError, naming the option, where we could not read one right.
    """
    schema = SchemaStore(file_io, TablePaths()).latest()
    if schema is None and has_lost_schema(file_io):
        raise CorruptFileError(
            "the table has snapshots and no schema: it was lost; restore it from a backup",
            file=TablePaths().schema_file(0),
        )
    if schema is None:
        is_delta = bool(file_io.list("_delta_log"))
        delta = "; this is a Delta table, whose rows lsm import takes over" if is_delta else ""
        raise NotFoundError(
            f"no table is in this directory; a table has a schema folder{delta}",
            kind=ErrorKind.NO_SUCH_TABLE,
            location=location,
        )
    schema.options.require_readable()
    refuse_row_tracking(schema)
    for unsupported in unsupported_options(schema.options):
        if unsupported.verdict is Verdict.UNKNOWN:
            _warn_once(location, str(unsupported))
    return schema


@lru_cache(maxsize=1024)
def _warn_once(location: str, text: str) -> None:
    """Warn of an option of a table the first time that this process opens it."""
    log.warning("table %s: %s; it is read as if the option were not there", location, text)
