"""Changes that a table's writer yields. Each change becomes one commit."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from lsm_engine import record


@record
class Upsert:
    """Insert or update rows by primary key. A table without a primary key appends them.

    Attributes:
        rows: An object with `__arrow_c_stream__` (Arrow, polars, pandas) or a Spark DataFrame. The optional column
            `_row_kind` (+I, -U, +U, -D) marks deletes.
        label: A short description of the rows, shown on the page of the snapshot.
        properties: Snapshot properties.
    """

    rows: Any
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@record
class Delete:
    """Delete rows by primary key. `keys` has the primary key columns; the other attributes are those of `Upsert`."""

    keys: Any
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@record
class Overwrite:
    """Replace the table, or one partition of it ({column: value}), by `rows`. Other attributes as in `Upsert`."""

    rows: Any
    partition: Mapping[str, Any] | None = None
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


Change: TypeAlias = Upsert | Delete | Overwrite


def as_change(value: Any) -> Change:
    """Return a value that a writer yielded as a change: rows become an `Upsert`."""
    return value if isinstance(value, Upsert | Delete | Overwrite) else Upsert(rows=value)
