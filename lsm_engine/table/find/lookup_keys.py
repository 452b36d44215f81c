"""Convert keys from users to the key columns of a table; errors name the column."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.schema.table_schema import PADDED_KEYS, TableSchema
from lsm_engine.table.ground.fit import values_array
from lsm_engine.table.ground.incoming import conformed, open_rows


def keys_by_name(keys: Any, names: Sequence[str]) -> Any:
    """Return keys as rows: a dictionary is one key, and plain values are keys of a single column.

    `names`: the columns of a key. Any other input is returned unchanged, for `open_rows`.
    """
    if isinstance(keys, Mapping):
        return [keys]
    if len(names) != 1:
        return keys
    name = names[0]
    if isinstance(keys, int | float | str | bytes | Decimal | date):
        keys = [keys]
    if isinstance(keys, tuple | range | AbstractSet):
        keys = list(keys)
    if isinstance(keys, list):
        is_rows = not keys or isinstance(keys[0], Mapping)
        return keys if is_rows else pa.table({name: values_array(name, keys)})
    if isinstance(keys, np.ndarray):
        return pa.table({name: keys})
    if isinstance(keys, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(keys.type):
        return pa.table({name: keys})
    is_series = hasattr(keys, "to_frame") and not hasattr(keys, "columns")
    return keys.to_frame(name=name) if is_series else keys


def require_key(schema: TableSchema) -> None:
    """Raise InvalidInputError for a table without a primary key."""
    if not schema.has_primary_key:
        raise InvalidInputError(
            "the table has no primary key, so there is nothing to look up by; use scan(where=...)",
            kind=ErrorKind.INVALID_KEY,
        )


def require_dictionary(schema: TableSchema, key: object) -> None:
    """Raise InvalidInputError for a single key that is no mapping."""
    if not isinstance(key, Mapping):
        example = ", ".join(f"{name!r}: ..." for name in schema.primary_keys)
        raise InvalidInputError(
            f"get takes a key as a dictionary: {{{example}}}; lookup(keys) takes several",
            kind=ErrorKind.INVALID_KEY,
            given=type(key).__name__,
        )


def keys_of(schema: TableSchema, keys: Any, *, with_partitions: bool = False) -> pa.RecordBatch:
    """Return key columns of any Arrow data or list of dictionaries, as the table stores them.

    Plain values are keys if the key is one column. `with_partitions`: also return the partition columns that are
    not part of the primary key.

    Raises InvalidInputError, naming the column, for keys that are missing, null or of another type.
    """
    require_key(schema)
    names = dict.fromkeys(
        (*schema.primary_keys, *(schema.partition_keys if with_partitions else ()))
    )
    only_keys = replace(schema, fields=schema.select_read(names), options=PADDED_KEYS)
    key_schema = only_keys.arrow
    if isinstance(keys, list) and not keys:
        return pa.RecordBatch.from_pylist([], schema=key_schema)
    batches = [piece.rows for piece in conformed(_without_values(keys, schema, names), only_keys)]
    columns = [
        pa.concat_arrays([batch.column(index) for batch in batches])
        if batches
        else pa.array([], field.type)
        for index, field in enumerate(key_schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=key_schema)


def _without_values(
    keys: Any, schema: TableSchema, key_names: Iterable[str]
) -> pa.RecordBatchReader:
    """Return a stream of keys without the table's other columns, which are ignored."""
    reader = open_rows(keys_by_name(keys, tuple(key_names)))
    other_names = set(schema.names) - set(key_names)
    names = [name for name in reader.schema.names if name not in other_names]
    fields = pa.schema([reader.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(fields, (batch.select(names) for batch in reader))
