"""System tables of a catalog: its tables, and their partitions and options."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.api.table import Table
from lsm_engine.base.errors import ErrorKind, LsmError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.filter.where import Filter
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.inspect.system_tables import PARTITIONS, STAMP, chosen, partitions
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.metadata.manifests import joined_entries, keep_lists
from lsm_engine.options import core_options
from lsm_engine.options.modes import EntryKind
from lsm_engine.planning.commit import lists_to_fetch
from lsm_engine.table.live_files import (
    BUCKET,
    FILE_NAME,
    FILE_SIZE,
    KIND,
    LEVEL,
    PARTITION,
    ROW_COUNT,
)
from lsm_engine.table.session import TableSession

# -- Totals of the live files of many tables; their manifests are decoded in one pass --------------

_OWNER = "owner"
_IDENTITY = [_OWNER, PARTITION, BUCKET, LEVEL, FILE_NAME]
_COLUMNS = frozenset({KIND, PARTITION, BUCKET, LEVEL, FILE_NAME, ROW_COUNT, FILE_SIZE})

Newest = Mapping[str, tuple[TableSession, Snapshot]]
"""Tables and their newest snapshots, by name."""


@record
class LiveTotals:
    """The totals of the live files of a snapshot: rows before merging, bytes and files."""

    rows: int
    size_bytes: int
    files: int


def keep_newest_lists(tables: Newest) -> None:
    """Read the manifest lists of newest snapshots into the cache of `manifest_metas`."""
    keep_lists(
        (session.manifests, list_name, newest.checksum_of(list_name))
        for session, newest in tables.values()
        for list_name in lists_to_fetch(newest)
    )


def live_totals(tables: Newest) -> dict[str, LiveTotals]:
    """Return the totals of newest snapshots, by the name of their table.

    Those are left out that have to be looked at one by one: with large or damaged manifests, and tables
    that take partitions from a fallback branch.
    """
    keep_newest_lists(tables)
    manifests, owners, lacking = [], [], {}
    for owner, (session, snapshot) in enumerate(tables.values()):
        # A fallback branch adds partitions that the table's own manifests do not list.
        if session.options[core_options.SCAN_FALLBACK_BRANCH] is not None:
            continue
        with suppress(LsmError):  # a damaged table is read on its own, which raises its error
            metas = session.manifest_metas(snapshot)
            manifests += [(session.manifests, meta) for meta in metas]
            owners += [owner] * len(metas)
            lacking[owner] = len(metas)
    of_manifest = np.array(owners, np.int64)
    joined = []
    for entries, of_entry, places in joined_entries(manifests, _COLUMNS):
        joined.append(entries.append_column(_OWNER, pa.array(of_manifest[of_entry])))
        for place in places:
            lacking[owners[place]] -= 1
    sums = _sums(pa.concat_tables(joined), len(tables)) if joined else [(0, 0, 0)] * len(tables)
    return {
        name: LiveTotals(rows=rows, size_bytes=size, files=files)
        for owner, (name, (rows, size, files)) in enumerate(zip(tables, sums, strict=True))
        if lacking.get(owner) == 0  # all of its manifests were decoded
    }


def _sums(entries: pa.Table, count: int) -> list[tuple[int, int, int]]:
    """Return rows, bytes and number of the files of each owner that were added and not deleted."""
    kinds = entries.column(KIND)
    live = entries.filter(pc.not_equal(kinds, EntryKind.DELETE.value))
    deleted = entries.filter(pc.equal(kinds, EntryKind.DELETE.value))
    if deleted.num_rows:
        # A file that was added and deleted is not live; most manifests have no deletions.
        live = live.join(deleted.select(_IDENTITY), _IDENTITY, join_type="left anti")
    owners = live.column(_OWNER).to_numpy()

    def summed(values: Longs | None) -> list[int]:
        return [int(value) for value in np.bincount(owners, values, minlength=count)]

    rows, sizes = (summed(live.column(name).to_numpy()) for name in (ROW_COUNT, FILE_SIZE))
    return list(zip(rows, sizes, summed(None), strict=True))


# -- System tables of a whole catalog: its tables, their partitions, their options -----------------

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
    """Return the tables that have a snapshot, with it, for reads of many tables together."""
    return {
        state.name: (state.table.session, state.newest)
        for state in states
        if state.table is not None and state.newest is not None
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
    build = _MADE.get(name.removeprefix(f"{SYSTEM_DATABASE}."))
    if build is None:
        raise NotFoundError(
            f"no catalog-wide system table {name!r}; there are {', '.join(_MADE)}",
            kind=ErrorKind.NO_SUCH_TABLE,
            name=name,
        )
    return chosen(build(tables), where, columns)


def _tables(tables: Iterable[NewestState]) -> pa.Table:
    remaining, rows = iter(tables), []
    # In batches, so that the manifests of many tables are decoded together in bounded memory.
    while batch := list(islice(remaining, TOGETHER)):
        totals = live_totals(newest_of(batch))
        rows += [_table_row(state, totals.get(state.name)) for state in batch]
    return pa.Table.from_pylist(rows, schema=ALL_TABLES)


def _table_row(state: NewestState, totals: LiveTotals | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        **_names(state),
        "table_type": "unknown",
        "partitioned": False,
        "primary_key": False,
        "problem": None if state.problem is None else str(state.problem),
    }
    # A table that cannot be opened has no facts beyond its name.
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
    # The newest snapshot is unreadable, so nothing is known of its rows.
    if state.problem is not None:
        return row
    try:
        sums = totals or _totals_alone(state.table.session, snapshot)
    except LsmError as error:  # a damaged table has a row all the same, with what is wrong
        return row | {"problem": str(error)}
    return row | {
        "snapshot_id": None if snapshot is None else snapshot.id,
        "record_count": sums.rows,
        "file_size_in_bytes": sums.size_bytes,
        "file_count": sums.files,
        "last_update_time": None if snapshot is None else snapshot.time_millis,
    }


def _names(state: NewestState) -> dict[str, str]:
    database, _, table = state.name.partition(".")
    return {"database_name": database, "table_name": table}


def _totals_alone(session: TableSession, snapshot: Snapshot | None) -> LiveTotals:
    stats = partitions(session, snapshot)
    rows, size, files = (
        pc.sum(stats.column(name)).as_py() or 0
        for name in ("record_count", "file_size_in_bytes", "file_count")
    )
    return LiveTotals(rows=rows, size_bytes=size, files=files)


def _partitions(tables: Iterable[NewestState]) -> pa.Table:
    partition_tables = [ALL_PARTITIONS.empty_table()]
    for state in tables:
        # Only partitioned tables have partitions to list.
        if state.table is None or not state.table.schema.partition_keys:
            continue
        # A listing without this table would look complete.
        if state.problem is not None:
            raise state.problem
        rows = partitions(state.table.session, state.newest)
        names = [pa.array([text] * rows.num_rows, pa.string()) for text in _names(state).values()]
        partition_tables.append(
            pa.Table.from_arrays([*names, *rows.columns], schema=ALL_PARTITIONS)
        )
    return pa.concat_tables(partition_tables)


def _options(tables: Iterable[NewestState]) -> pa.Table:
    rows = [
        {**_names(state), "key": key, "value": value}
        for state in tables
        if state.table is not None
        for key, value in sorted(state.table.options.texts.items())
    ]
    return pa.Table.from_pylist(rows, schema=ALL_TABLE_OPTIONS)


_MADE: Mapping[str, Callable[[Iterable[NewestState]], pa.Table]] = {
    "tables": _tables,
    "partitions": _partitions,
    "all_table_options": _options,
}
CATALOG_TABLES = tuple(_MADE)
