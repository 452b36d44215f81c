"""An LSM storage engine for upsertable lake tables in the Apache Paimon format.

    import lsm_engine as lsm

    catalog = lsm.open_catalog("sqlite:///lake/catalog.db", warehouse="lake")
    table = catalog.create_table("shop.orders", schema, primary_key=["order_id"])
    table.upsert(rows)
    table.scan(where=lsm.col("price") > 5).to_arrow()

Everything works in one process on Arrow data. `lsm_engine.spark` runs the same verbs on Spark. The
rooms and which may use which: docs/architecture.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsafePathError,
    UnsupportedError,
)
from lsm_engine.base.modes import CommitKind, RowKind
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.prune.where import Predicate, col
from lsm_engine.schema.arrow_types import sql_field
from lsm_engine.schema.changes import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SetColumnComment,
    SetColumnDefault,
    SetComment,
    SetNullable,
    SetOption,
)
from lsm_engine.table.ground.executor import LocalExecutor
from lsm_engine.table.open_table import open_table
from lsm_engine.table.table import Table

if TYPE_CHECKING:
    from lsm_engine.table.warehouse import Catalog, open_catalog

__all__ = [
    "AddColumn",
    "AlreadyExistsError",
    "Catalog",
    "ChangeType",
    "CommitConflictError",
    "CommitKind",
    "CommitUnknownError",
    "CorruptFileError",
    "DropColumn",
    "ErrorKind",
    "ExpiredError",
    "InvalidInputError",
    "InvalidOptionError",
    "LocalExecutor",
    "LsmError",
    "MoveColumn",
    "NotFoundError",
    "Predicate",
    "RemoveOption",
    "RenameColumn",
    "RowKind",
    "SetColumnComment",
    "SetColumnDefault",
    "SetComment",
    "SetNullable",
    "SetOption",
    "Snapshot",
    "StorageError",
    "Table",
    "Tag",
    "UnsafePathError",
    "UnsupportedError",
    "WriteResult",
    "col",
    "open_catalog",
    "open_table",
    "sql_field",
]

_WITH_DATABASE = ("Catalog", "open_catalog")
"""Loaded when first asked for: whoever opens a table by its path need not hold SQLAlchemy."""


def __getattr__(name: str) -> Any:
    if name not in _WITH_DATABASE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("lsm_engine.table.warehouse"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WITH_DATABASE})
