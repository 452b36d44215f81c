"""Alter: the newest schema → the next one → one atomic create of its file, again if somebody was first."""

from collections.abc import Sequence

from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.schema.alteration import changed
from lsm_engine.schema.changes import ChangeType, SchemaChange
from lsm_engine.schema.mapping import map_fields
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ddl.create import check_columns, check_keys, check_options
from lsm_engine.table.ddl.narrowing import require_values_kept
from lsm_engine.table.ground.session import TableSession

_RACES = 20


def alter(session: TableSession, changes: Sequence[SchemaChange]) -> TableSchema:
    """Publish the next schema of a table and return it; with no change, the present one.

    Changes apply to the newest schema there is, in order, all or none. Raises what
    `schema/alteration.changed` raises, what `narrowing.require_values_kept` raises, and CommitConflictError if others keep being first.
    """
    for _ in range(_RACES):
        newest = session.schemas.latest() or session.schema
        if not changes:
            return newest
        schema = changed(
            newest,
            changes,
            has_data=session.snapshots.latest_id() is not None,
            now_millis=session.clock.now_millis(),
        )
        check_columns(schema, newest.names)
        check_keys(schema)
        check_options(schema)
        if any(isinstance(change, ChangeType) for change in changes):
            _check_older_files(session, schema)
            require_values_kept(session, schema)
        if session.schemas.publish(schema):
            _notify(session, schema)
            return schema
    raise CommitConflictError(
        "others keep changing the schema of this table; try again",
        kind=ErrorKind.RETRIES_EXHAUSTED,
        table=session.name,
    )


def _check_older_files(session: TableSession, schema: TableSchema) -> None:
    """Refuse a type that files of a former schema cannot be read as, whatever came in between."""
    for former in session.schemas.all():
        map_fields(former.fields, schema.fields)


def _notify(session: TableSession, schema: TableSchema) -> None:
    session.notify(lambda listener: listener.altered(session.name, schema))
