"""System tables of a whole catalog: its tables, their partitions, their options."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.prune.where import Filter
from lsm_engine.table.inspect.system_tables import chosen
from lsm_engine.table.inspect.system_tables_files import PARTITIONS, STAMP, partitions
from lsm_engine.table.table import Table

SYSTEM_DATABASE = "sys"

_NAMES = [
    pa.field("database_name", pa.string(), nullable=False),
    pa.field("table_name", pa.string(), nullable=False),
]
ALL_TABLES = pa.schema(
    [
        *_NAMES,
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
    [*_NAMES, pa.field("partition_name", pa.string(), nullable=False), *list(PARTITIONS)[1:]]
)
ALL_TABLE_OPTIONS = pa.schema(
    [*_NAMES, pa.field("key", pa.string(), nullable=False), ("value", pa.string())]
)


@record
class Named:
    """A table of the catalog: opened, or the problem that kept it from being opened."""

    database: str
    name: str
    table: Table | None
    problem: str | None = None


def catalog_table(
    tables: Iterable[Named],
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


def _tables(tables: Iterable[Named]) -> pa.Table:
    return pa.Table.from_pylist([_table_row(each) for each in tables], schema=ALL_TABLES)


def _table_row(named: Named) -> dict[str, Any]:
    row: dict[str, Any] = {
        "database_name": named.database,
        "table_name": named.name,
        "table_type": "unknown",
        "partitioned": False,
        "primary_key": False,
        "problem": named.problem,
    }
    if named.table is None:
        return row
    schema, snapshot = named.table.schema, named.table.latest_snapshot()
    held = partitions(named.table.session, snapshot)
    sums = {
        name: pc.sum(held.column(name)).as_py() or 0
        for name in ("record_count", "file_size_in_bytes", "file_count")
    }
    return row | {
        "table_type": "primary-key" if schema.has_primary_key else "append",
        "partitioned": bool(schema.partition_keys),
        "primary_key": schema.has_primary_key,
        "schema_id": schema.id,
        "snapshot_id": None if snapshot is None else snapshot.id,
        **sums,
        "last_update_time": None if snapshot is None else snapshot.time_millis,
        "comment": schema.comment,
        "location": named.table.location,
    }


def _partitions(tables: Iterable[Named]) -> pa.Table:
    found = [ALL_PARTITIONS.empty_table()]
    for each in tables:
        if each.table is None or not each.table.schema.partition_keys:
            continue
        rows = partitions(each.table.session, each.table.latest_snapshot())
        names = [
            pa.array([text] * rows.num_rows, pa.string()) for text in (each.database, each.name)
        ]
        found.append(pa.Table.from_arrays([*names, *rows.columns], schema=ALL_PARTITIONS))
    return pa.concat_tables(found)


def _options(tables: Iterable[Named]) -> pa.Table:
    rows = [
        {"database_name": each.database, "table_name": each.name, "key": key, "value": value}
        for each in tables
        if each.table is not None
        for key, value in sorted(each.table.options.texts.items())
    ]
    return pa.Table.from_pylist(rows, schema=ALL_TABLE_OPTIONS)


_MADE: Mapping[str, Callable[[Iterable[Named]], pa.Table]] = {
    "tables": _tables,
    "partitions": _partitions,
    "all_table_options": _options,
}
CATALOG_TABLES = tuple(_MADE)
