"""System tables of a whole catalog: its tables, their partitions, their options."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, LsmError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.prune.where import Filter
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.inspect.live_totals import LiveTotals, Newest, live_totals
from lsm_engine.table.inspect.system_tables import chosen
from lsm_engine.table.inspect.system_tables_files import PARTITIONS, STAMP, partitions
from lsm_engine.table.table import Table

SYSTEM_DATABASE = "sys"

_NAME_FIELDS = [
    pa.field("database_name", pa.string(), nullable=False),
    pa.field("table_name", pa.string(), nullable=False),
]
ALL_TABLES = pa.schema(
    [
        *_NAME_FIELDS,
        pa.field("table_type", pa.string(), nullable=False),  # primary-key or append
        pa.field("partitioned", pa.bool_(), nullable=False),
        pa.field("primary_key", pa.bool_(), nullable=False),
        ("schema_id", pa.int64()),
        ("snapshot_id", pa.int64()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("file_count", pa.int64()),
        ("last_update_time", STAMP),
        ("comment", pa.string()),
        ("location", pa.string()),
        ("problem", pa.string()),  # why a table could not be read; the others are null then
    ]
)
ALL_PARTITIONS = pa.schema(
    [*_NAME_FIELDS, pa.field("partition_name", pa.string(), nullable=False), *list(PARTITIONS)[1:]]
)
ALL_TABLE_OPTIONS = pa.schema(
    [*_NAME_FIELDS, pa.field("key", pa.string(), nullable=False), ("value", pa.string())]
)


TOGETHER = 200
"""Tables whose metadata is decoded together: most of the time is spent on each call."""


@record
class NewestState:
    """A table by its name in the catalog with its newest snapshot, or the error that keeps it from being read."""

    name: str
    table: Table | None = None
    newest: Snapshot | None = None
    problem: LsmError | None = None


def newest_of(states: Iterable[NewestState]) -> Newest:
    """Return the tables that have a snapshot, for what looks at many of them together."""
    return {
        each.name: (each.table.session, each.newest)
        for each in states
        if each.table is not None and each.newest is not None
    }


def catalog_table(
    tables: Iterable[NewestState],
    name: str,
    *,
    where: Filter | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return a catalog-wide system table; a table that cannot be opened is named, not left out.

    Raises NotFoundError, naming those there are, for any other name.
    """
    made = _MADE.get(name.removeprefix(f"{SYSTEM_DATABASE}."))
    if made is None:
        raise NotFoundError(
            f"no catalog-wide system table {name!r}; there are {', '.join(_MADE)}",
            kind=ErrorKind.NO_SUCH_TABLE,
            name=name,
        )
    return chosen(made(tables), where, columns)


def _tables(tables: Iterable[NewestState]) -> pa.Table:
    left, rows = iter(tables), []
    while some := list(islice(left, TOGETHER)):
        totals = live_totals(newest_of(some))
        rows += [_table_row(each, totals.get(each.name)) for each in some]
    return pa.Table.from_pylist(rows, schema=ALL_TABLES)


def _table_row(state: NewestState, totals: LiveTotals | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        **_names(state),
        "table_type": "unknown",
        "partitioned": False,
        "primary_key": False,
        "problem": None if state.problem is None else str(state.problem),
    }
    if state.table is None:
        return row
    schema, snapshot = state.table.schema, state.newest
    row |= {
        "table_type": "primary-key" if schema.has_primary_key else "append",
        "partitioned": bool(schema.partition_keys),
        "primary_key": schema.has_primary_key,
        "schema_id": schema.id,
        "comment": schema.comment,
        "location": state.table.location,
    }
    if state.problem is not None:
        return row
    try:
        found = totals or _totals_alone(state.table.session, snapshot)
    except LsmError as error:
        return row | {"problem": str(error)}
    return row | {
        "snapshot_id": None if snapshot is None else snapshot.id,
        "record_count": found.rows,
        "file_size_in_bytes": found.size_bytes,
        "file_count": found.files,
        "last_update_time": None if snapshot is None else snapshot.time_millis,
    }


def _names(state: NewestState) -> dict[str, str]:
    database, _, table = state.name.partition(".")
    return {"database_name": database, "table_name": table}


def _totals_alone(session: TableSession, snapshot: Snapshot | None) -> LiveTotals:
    held = partitions(session, snapshot)
    rows, size, files = (
        pc.sum(held.column(name)).as_py() or 0
        for name in ("record_count", "file_size_in_bytes", "file_count")
    )
    return LiveTotals(rows=rows, size_bytes=size, files=files)


def _partitions(tables: Iterable[NewestState]) -> pa.Table:
    found = [ALL_PARTITIONS.empty_table()]
    for each in tables:
        if each.table is None or not each.table.schema.partition_keys:
            continue
        if each.problem is not None:
            raise each.problem
        rows = partitions(each.table.session, each.newest)
        names = [pa.array([text] * rows.num_rows, pa.string()) for text in _names(each).values()]
        found.append(pa.Table.from_arrays([*names, *rows.columns], schema=ALL_PARTITIONS))
    return pa.concat_tables(found)


def _options(tables: Iterable[NewestState]) -> pa.Table:
    rows = [
        {**_names(each), "key": key, "value": value}
        for each in tables
        if each.table is not None
        for key, value in sorted(each.table.options.texts.items())
    ]
    return pa.Table.from_pylist(rows, schema=ALL_TABLE_OPTIONS)


_MADE: Mapping[str, Callable[[Iterable[NewestState]], pa.Table]] = {
    "tables": _tables,
    "partitions": _partitions,
    "all_table_options": _options,
}
CATALOG_TABLES = tuple(_MADE)
