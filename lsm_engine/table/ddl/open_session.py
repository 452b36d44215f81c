"""Open a table by its directory; refuse tables that this version would misread. Imports no write modules."""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lsm_engine.base import core_options
from lsm_engine.base.errors import CorruptFileError, ErrorKind, NotFoundError
from lsm_engine.base.other_options import Verdict
from lsm_engine.base.table_options import unsupported_options
from lsm_engine.io.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.load_beside import load_beside
from lsm_engine.io.paths import TablePaths
from lsm_engine.io.storage_options import NO_OPTIONS, StorageOptions
from lsm_engine.io.warehouse import has_lost_schema, open_directory, undurable
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.store.newest import expect_newest
from lsm_engine.store.schemas import SchemaStore
from lsm_engine.table.ddl.check_row_tracking import refuse_row_tracking
from lsm_engine.table.ground.components import Components
from lsm_engine.table.ground.executor import Executor, LocalExecutor
from lsm_engine.table.ground.session import TableSession

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
    file_io, schema = open_directory_of_table(path, StorageOptions.coerce(storage))
    components = Components(
        file_io=file_io,
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
    if file_io.facts.is_far:
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
        raise NotFoundError(
            "no table is in this directory; a table has a schema folder",
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
