"""Open a table by its path, without the catalog and without the database that the catalog needs."""

from lsm_engine.base import core_options
from lsm_engine.io.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.io.warehouse import open_directory
from lsm_engine.table.ddl.create import load_schema
from lsm_engine.table.ground.components import Components
from lsm_engine.table.ground.executor import Executor, LocalExecutor
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.table import Table


def open_table(
    path: str,
    *,
    executor: Executor | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> Table:
    """Open any Paimon table directory; no catalog is needed, and none hears of what is done.

    Raises NotFoundError if there is no table, UnsupportedError, naming the option, if this version
    could not read it right.
    """
    schema = load_schema(open_directory(path), path)
    components = Components(
        file_io=open_directory(path, durable=schema.options[core_options.COMMIT_FSYNC]),
        executor=executor or LocalExecutor(),
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
    )
    return Table(TableSession(path, components, schema), path)
