"""Options that give rows ids: refuse what they do not go with (docs/semantics.md, "Row ids")."""

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError, UnsupportedError
from lsm_engine.schema.table_schema import ROW_ID, SEQUENCE_NUMBER, TableSchema

_TRACKING = core_options.ROW_TRACKING_ENABLED
_EVOLUTION = core_options.DATA_EVOLUTION_ENABLED


def check_row_tracking(schema: TableSchema) -> None:
    """Raise InvalidOptionError, naming option and remedy, for a new table that cannot be."""
    conflict = _conflict(schema)
    if conflict is not None:
        key, why = conflict
        raise InvalidOptionError(f"option {key!r} {why}", key=key)


def refuse_row_tracking(schema: TableSchema) -> None:
    """Raise UnsupportedError, naming the option, for a table of others that cannot be read right."""
    conflict = _conflict(schema)
    if conflict is not None:
        key, why = conflict
        raise UnsupportedError(
            f"this version does not support the table's option {key!r}, which {why}; nothing was read "
            "or written",
            option=key,
        )


def _conflict(schema: TableSchema) -> tuple[str, str] | None:
    options = schema.options
    tracks, evolves = options[_TRACKING], options[_EVOLUTION]
    if evolves and not tracks:
        return _EVOLUTION.key, f"needs {_TRACKING.key!r} = true"
    if evolves and options[core_options.DELETION_VECTORS_ENABLED]:
        return _EVOLUTION.key, "does not go with 'deletion-vectors.enabled' = true"
    if not tracks:
        return None
    if schema.has_primary_key:
        return _TRACKING.key, "is for tables without a primary key"
    if not schema.bucket_mode.policy.is_unaware:
        return _TRACKING.key, "needs 'bucket' = -1, one bucket that all rows share"
    if not {ROW_ID, SEQUENCE_NUMBER}.isdisjoint(schema.names):
        return (
            _TRACKING.key,
            f"needs the column names {ROW_ID!r} and {SEQUENCE_NUMBER!r} to be free",
        )
    return None
