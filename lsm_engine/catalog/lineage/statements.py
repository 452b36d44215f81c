"""The statements of each recorded commit, built once per dialect: only their values differ."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Connection, Table, bindparam, case, select
from sqlalchemy.dialects import sqlite

from lsm_engine.catalog.models import FILES, LIVE, RUNS, SNAPSHOTS, TABLES, TAGS

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

Insert: TypeAlias = "postgresql.Insert | sqlite.Insert"

FROM_ADDITIONS = tuple(
    column.name
    for column in FILES.columns
    if not column.primary_key and column.name not in ("deleted_by", "removed")
)
"""The columns that the addition of a file fills; its deletion and removal fill the others."""

TABLE_ID = select(TABLES.c.table_id).where(
    *(
        TABLES.c[name] == bindparam(name)
        for name in ("catalog_key", "database_name", "table_name", "branch")
    )
)
"""The number of a table, by its name."""

BRANCH_IDS = select(TABLES.c.branch, TABLES.c.table_id).where(
    *(TABLES.c[name] == bindparam(name) for name in ("catalog_key", "database_name", "table_name"))
)
"""The numbers of a table and its branches, by branch."""

LIVE_TAGS = select(TAGS).where(TAGS.c.table_id == bindparam("table_id"), TAGS.c.deleted.is_(False))
"""The rows of the tags of a table that are not deleted."""

RECORDED_DELTAS = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.delta_manifest_list).where(
    SNAPSHOTS.c.table_id == bindparam("table_id"),
    SNAPSHOTS.c.snapshot_id.in_(bindparam("snapshot_ids", expanding=True)),
)
"""The delta manifest lists of recorded snapshots, each of which no other snapshot has."""

_LIVE_DELTAS = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.delta_manifest_list).where(
    SNAPSHOTS.c.table_id == bindparam("table_id"),
    SNAPSHOTS.c.snapshot_id >= bindparam("since"),
    SNAPSHOTS.c.state == LIVE,
)


def live_deltas(connection: Connection, table_id: int, since: int = 0) -> dict[int, str]:
    """Return the snapshots recorded as live, from an id on, each with its delta manifest list."""
    rows = connection.execute(_LIVE_DELTAS, {"table_id": table_id, "since": since})
    return {row.snapshot_id: row.delta_manifest_list for row in rows}


def _insert_into(dialect: str, model: Table) -> Insert:
    """Return an INSERT that knows ON CONFLICT, in a dialect."""
    if dialect == "postgresql":
        statement: Insert = import_module("sqlalchemy.dialects.postgresql").insert(model)
        return statement
    return sqlite.insert(model)


@cache
def added(dialect: str, model: Table) -> Insert:
    """Return an INSERT that retains existing rows."""
    return _insert_into(dialect, model).on_conflict_do_nothing()


@cache
def replacing(dialect: str, model: Table, columns: tuple[str, ...]) -> Insert:
    """Return an INSERT that replaces `columns` of existing rows."""
    new = _insert_into(dialect, model)
    keys = [column.name for column in model.primary_key]
    values = {name: new.excluded[name] for name in columns}
    return new.on_conflict_do_update(index_elements=keys, set_=values)


@cache
def run_added(dialect: str) -> Insert:
    """Return an INSERT of a run. Of differing facts the least is retained, whatever the order."""
    new = _insert_into(dialect, RUNS)
    chosen = {}
    for name in ("engine", "kind", "dagster_run_id", "user_name", "started_millis"):
        recorded, reported = RUNS.c[name], new.excluded[name]
        chosen[name] = case(
            (recorded.is_(None), reported), (reported < recorded, reported), else_=recorded
        )
    return new.on_conflict_do_update(index_elements=["run_id", "asset_key"], set_=chosen)
