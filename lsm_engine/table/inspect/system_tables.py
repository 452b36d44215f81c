"""System tables: a table's own metadata as Arrow tables, under Paimon's column names."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.prune.expression import to_expression, tree_of
from lsm_engine.prune.where import Filter
from lsm_engine.table.ground.given_names import names_of
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.inspect.health import HEALTH, health
from lsm_engine.table.inspect.system_tables_files import MADE
from lsm_engine.table.inspect.system_tables_integrity import MADE as OF_INTEGRITY
from lsm_engine.table.inspect.system_tables_metadata import LISTED, Rows
from lsm_engine.table.inspect.system_tables_rows import ROWS, TABLE_INDEXES, table_indexes


@record
class SystemTable:
    """One system table: how it is made for a snapshot (None: empty table), and its columns.

    `schema` None: they are the table's own.
    """

    schema: pa.Schema | None
    make: Callable[[TableSession, Snapshot | None], pa.Table]


def system_table(
    session: TableSession,
    name: str,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    where: Filter | None = None,
    columns: str | Sequence[str] | None = None,
) -> pa.Table:
    """Return a system table by name; raises NotFoundError naming those there are.

    `where` keeps the rows for which it is true; it may read columns that `columns` leaves out.
    """
    definition = TABLES.get(name)
    if definition is None:
        raise NotFoundError(
            f"no system table {name!r}; there are {', '.join(sorted(TABLES))}",
            kind=ErrorKind.NO_SUCH_TABLE,
            name=name,
        )
    snapshot = _snapshot(session, snapshot_id, tag)
    return chosen(definition.make(session, snapshot), where, columns)


def chosen(rows: pa.Table, where: Filter | None, columns: str | Sequence[str] | None) -> pa.Table:
    """Return some rows and columns of a system table; a wrong filter or name is a typed error."""
    if where is not None:
        rows = rows.filter(to_expression(tree_of(where, rows.schema)))
    if columns is None:
        return rows
    names = names_of(columns, "columns")
    for name in names:
        if name not in rows.schema.names:
            raise NotFoundError(
                f"no column {name!r}; there are {', '.join(rows.schema.names)}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=name,
            )
    return rows.select(names)


def _snapshot(session: TableSession, snapshot_id: int | None, tag: str | None) -> Snapshot | None:
    if snapshot_id is not None and tag is not None:
        raise InvalidInputError("name a snapshot or a tag, not both", tag=tag)
    if tag is not None:
        return session.tags.load(tag).snapshot
    return (
        session.snapshots.latest() if snapshot_id is None else session.snapshots.load(snapshot_id)
    )


def _listed(
    schema: pa.Schema, rows: Rows, session: TableSession, snapshot: Snapshot | None
) -> pa.Table:
    return pa.Table.from_pylist(rows(session, snapshot), schema=schema)


TABLES: Mapping[str, SystemTable] = {
    **{
        name: SystemTable(schema=schema, make=partial(_listed, schema, rows))
        for name, (schema, rows) in LISTED.items()
    },
    **{
        name: SystemTable(schema=schema, make=make)
        for name, (schema, make) in {**MADE, **OF_INTEGRITY, "health": (HEALTH, health)}.items()
    },
    **{name: SystemTable(schema=None, make=make) for name, make in ROWS.items()},
    "table_indexes": SystemTable(schema=TABLE_INDEXES, make=table_indexes),
}
