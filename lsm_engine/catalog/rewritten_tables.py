"""PostgreSQL tables without the bytes of rows that were deleted or replaced: nothing old may still read them.

VACUUM FULL writes a table anew, but keeps each dead row that an older transaction could see, and says so to
nobody. Samples of values stand in the statistics of its planner, a table of its own.
"""

import logging
from collections.abc import Iterable

from sqlalchemy import Connection, text

from lsm_engine.base.errors import StorageError

log = logging.getLogger(__name__)

_NOW = text("SELECT pg_current_xact_id()::xid::text")
_OLDER = text(
    """
    SELECT 'process ' || pid FROM pg_stat_activity
     WHERE pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)
       AND greatest(age(backend_xmin), age(backend_xid)) > age(CAST(:now AS xid))
    UNION ALL
    SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts
     WHERE database = current_database() AND age(transaction) > age(CAST(:now AS xid))
    UNION ALL
    SELECT 'replication slot ' || slot_name FROM pg_replication_slots
     WHERE (database = current_database() OR database IS NULL)
       AND greatest(age(xmin), age(catalog_xmin)) > age(CAST(:now AS xid))
    """
)
_MAY_REWRITE_STATISTICS = text(
    "SELECT rolsuper OR oid = (SELECT datdba FROM pg_database WHERE datname = current_database()) "
    "FROM pg_roles WHERE rolname = current_user"
)


class OlderTransactionError(StorageError):
    """An older transaction may still see what was deleted: try again when it is done."""


def rewrite_tables(connection: Connection, tables: Iterable[str], shown_url: str) -> None:
    """Write tables and the statistics of their values anew. `connection` commits each statement by itself.

    Raises OlderTransactionError, naming who keeps dead rows alive: then nothing is proved to be gone.
    """
    _require_unread(connection, shown_url)
    for name in tables:
        connection.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {name}")
        connection.exec_driver_sql(f"COMMENT ON TABLE {name} IS NULL")
    if connection.scalar(_MAY_REWRITE_STATISTICS):
        _require_unread(connection, shown_url)
        connection.exec_driver_sql("VACUUM FULL pg_catalog.pg_statistic")
    else:
        log.warning(
            "catalog=%s samples of what was deleted may stand in its planner's statistics: have the owner of the "
            "database run VACUUM FULL pg_catalog.pg_statistic",
            shown_url,
        )


def _require_unread(connection: Connection, shown_url: str) -> None:
    now = connection.scalar(_NOW)
    older = connection.scalars(_OLDER, {"now": now}).all()
    if older:
        raise OlderTransactionError(
            "somebody may still read what was deleted from the catalog; end it, and run it again",
            held_by=", ".join(older)[:300],
            catalog=shown_url,
        )


# --- what still has to be written anew ----------------------------------------------------------------

_MARK = "holds bytes of deleted rows until it is written anew"
_MARKED = text(
    "SELECT count(*) FROM pg_class WHERE relname = ANY(:tables) AND relnamespace = current_schema()::regnamespace "
    "AND obj_description(oid, 'pg_class') = :mark"
)


def mark_tables(connection: Connection, tables: Iterable[str]) -> None:
    """Note that tables hold deleted rows, in the transaction that deletes them: a rewrite that fails is missed."""
    for name in tables if connection.dialect.name == "postgresql" else ():
        connection.exec_driver_sql(f"COMMENT ON TABLE {name} IS '{_MARK}'")


def count_marked(connection: Connection, tables: Iterable[str]) -> int:
    """Return the number of tables that were not rewritten since rows were deleted from them.

    None of SQLite, whose file is searched as bytes.
    """
    if connection.dialect.name != "postgresql":
        return 0
    marked = connection.scalar(_MARKED, {"tables": list(tables), "mark": _MARK})
    return int(marked or 0)
