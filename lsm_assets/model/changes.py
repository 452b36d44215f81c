"""What a table's writer yields: each change becomes one commit, one snapshot, one partition."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from lsm_engine import record


@record
class Upsert:
    """Insert or replace rows by key; a table without a key gets them appended.

    `rows` is anything with `__arrow_c_stream__` (Arrow, polars, pandas) or a Spark DataFrame; the
    optional column `_row_kind` (+I -U +U -D) mixes deletes in. `label` names in a few words what the
    rows are; it is shown on the snapshot. `properties` are stored in the snapshot.
    """

    rows: Any
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@record
class Delete:
    """Delete rows by key; `keys` holds the primary key columns."""

    keys: Any
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@record
class Overwrite:
    """Replace the whole table, or one partition, by `rows`."""

    rows: Any
    partition: Mapping[str, Any] | None = None
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


Change: TypeAlias = Upsert | Delete | Overwrite


def as_change(value: Any) -> Change:
    """Take a writer's word: bare rows mean an upsert."""
    return value if isinstance(value, Upsert | Delete | Overwrite) else Upsert(rows=value)
