"""Rows as users hand them in → rows as the table stores them, or an error before anything is written."""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import ErrorKind, InvalidInputError, unwritable_text
from lsm_engine.base.modes import RowKind
from lsm_engine.base.near_names import nearest
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.kernels.arrow_views import fixed_values
from lsm_engine.kernels.row_kinds import adds
from lsm_engine.schema.arrow_types import arrow_type, default_of
from lsm_engine.schema.declared_lengths import short_count, stored_values
from lsm_engine.schema.plain_types import decoded
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.schema.types import DataField, ScalarType, type_text
from lsm_engine.table.ground.fit import check_type, fitted, values_array
from lsm_engine.table.ground.row_kinds import ROW_KIND_COLUMN, RowKinds

KEY_BYTES_MAX = 1 << 20
"""Bytes of text and binary in one key: a manifest entry holds up to six copies of it in its cap of 8 MB."""


@record
class IncomingRows:
    """A batch that fits the table: every column, in order, and what each row does."""

    rows: pa.RecordBatch
    kinds: pa.Array  # int8


def joined(gathered: Sequence[IncomingRows]) -> IncomingRows:
    """Return batches as one, in their order."""
    if len(gathered) == 1:
        return gathered[0]
    table = pa.Table.from_batches([part.rows for part in gathered]).combine_chunks()
    return IncomingRows(
        rows=table.to_batches()[0], kinds=pa.concat_arrays([part.kinds for part in gathered])
    )


def _from_dictionaries(rows: list[Any], table: TableSchema | None) -> pa.Table:
    """Return rows as a table of every column that any of them names."""
    if not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInputError(
            "a list of rows, or of keys, has to hold dictionaries, such as [{'id': 1, 'name': 'x'}]"
            + _rows_of(rows)
        )
    types = {} if table is None else {field.name: arrow_type(field.type) for field in table.fields}
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"the names of columns in a dictionary are text, not {name!r}",
                given=type(name).__name__,
            )
    columns = {
        name: values_array(name, [row.get(name) for row in rows], types.get(name)) for name in names
    }
    try:
        return pa.table(columns)
    except UnicodeEncodeError as cause:
        raise unwritable_text(cause) from cause


def _rows_of(rows: list[Any]) -> str:
    """Return how a list of something else becomes rows, behind ": "; empty if nobody knows."""
    first = next((row for row in rows if not isinstance(row, Mapping)), None)
    if isinstance(first, pa.RecordBatch):
        return ": write pyarrow.Table.from_batches(rows)"
    if isinstance(first, pa.Table):
        return ": write pyarrow.concat_tables(rows)"
    if hasattr(first, "__dataclass_fields__"):
        return ": write [dataclasses.asdict(row) for row in rows]"
    if hasattr(first, "model_dump"):
        return ": write [row.model_dump() for row in rows]"
    return ": write [row._asdict() for row in rows]" if hasattr(first, "_asdict") else ""


def open_rows(rows: Any, table: TableSchema | None = None) -> pa.RecordBatchReader:
    """Return a stream over anything with `__arrow_c_stream__`, or over a list of dictionaries.

    Views and dictionaries, which polars makes of text and categories, come as plain values. `table`
    names the columns that are maps, whose values are dictionaries as those of structures are. Raises
    InvalidInputError for anything else, for two columns of one name, and, as it is read, for data that is none.
    """
    if isinstance(rows, list):
        return decoded(_from_dictionaries(rows, table).to_reader())
    if isinstance(rows, pa.RecordBatchReader):
        reader = rows
    elif hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        reader = _exported(rows)
    else:
        raise InvalidInputError(
            "rows must be Arrow data (a pyarrow Table, a polars or pandas frame, a DuckDB result) "
            f"or a list of dictionaries{_instead_of(rows)}",
            given=type(rows).__name__,
        )
    names = reader.schema.names
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InvalidInputError("two columns share a name; rename one", columns=doubled)
    return decoded(pa.RecordBatchReader.from_batches(reader.schema, _whole(reader)))


def _exported(rows: Any) -> pa.RecordBatchReader:
    """Return a stream over what exports one, or a batch; InvalidInputError for one column, and for types Arrow has not."""
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(rows)
        batch = pa.record_batch(rows)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError) as cause:
        named = hasattr(rows, "columns")
        hint = (
            "cast it first"
            if named
            else "write rows.to_frame(name), or pyarrow.table({name: rows})"
        )
        has = "a column that is no Arrow data" if named else "no columns with names"
        raise InvalidInputError(
            f"this {type(rows).__name__} has {has}: {hint} ({cause})", given=type(rows).__name__
        ) from cause


def _whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches whose text is UTF-8, and whose offsets and indexes lead to values: else no reader takes a file."""
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowException as cause:
                raise InvalidInputError(
                    f"column {name!r} is not what Arrow allows, and no file can hold it; make it anew: {cause}",
                    column=name,
                ) from cause
        yield batch


def _instead_of(rows: Any) -> str:
    """Return what to type instead of something that is nearly rows, as the end of a message."""
    if isinstance(rows, Mapping):
        return ": write [row] for a row, and pyarrow.table(columns) for columns"
    if isinstance(rows, str | os.PathLike):
        return ": read a file by pyarrow.csv.read_csv or pyarrow.parquet.read_table; a condition is where=…, a key [{'id': 'x'}]"
    if isinstance(rows, int | float):
        return ", also for a key: [{'id': 5}]"
    if hasattr(rows, "collect"):
        return ": write rows.collect()"
    if hasattr(rows, "scanner"):
        return ": write rows.scanner().to_reader()"
    return ": write list(rows)" if isinstance(rows, Iterable) else ""


class Conformer:
    """Makes batches of one incoming schema fit a table; checks names and types when built.

    `deletes`: the rows name keys to delete, so that only key columns are needed.
    """

    def __init__(self, incoming: pa.Schema, table: TableSchema, *, deletes: bool = False) -> None:
        self._table = table
        self._deletes = deletes
        self._required = frozenset(table.primary_keys)
        self._unpadded = table.unpadded_keys
        self._defaults = {
            field.name: default_of(field)
            for field in table.fields
            if field.default_value is not None and not deletes
        }
        self._kinds = RowKinds(incoming, table, deletes=deletes)
        self._check_names(incoming)
        for field in table.fields:
            if field.name in incoming.names:
                check_type(field.name, incoming.field(field.name).type, arrow_type(field.type))

    def conform(self, batch: pa.RecordBatch) -> IncomingRows:
        """Return the batch with every column of the table; raises InvalidInputError naming the
        column and the number of rows that do not fit.
        """
        kinds = self._kinds.of(batch)
        dropped = self._kinds.dropped(kinds)
        if dropped is not None:
            kept = pa.array(~dropped)
            batch, kinds = batch.filter(kept), kinds.filter(kept)
        columns = [self._column(field, batch, kinds) for field in self._table.fields]
        self._check_key_sizes(columns)
        schema = pa.schema(
            pa.field(field.name, arrow_type(field.type)) for field in self._table.fields
        )
        return IncomingRows(rows=pa.RecordBatch.from_arrays(columns, schema=schema), kinds=kinds)

    def _check_names(self, incoming: pa.Schema) -> None:
        known = set(self._table.names) | ({ROW_KIND_COLUMN} if self._kinds.is_given else set())
        unknown = [name for name in incoming.names if name not in known]
        if unknown:
            near = nearest(unknown[0], self._table.names)
            hint = f"; did you mean {near!r}?" if near else "; add it with alter(AddColumn(...))"
            raise InvalidInputError(
                f"the table has no column {unknown[0]!r}{hint}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                columns=unknown,
            )
        needed = set(self._required)
        if not self._deletes and not self._kinds.has_kinds:
            needed |= {
                field.name
                for field in self._table.fields
                if not field.type.nullable and field.name not in self._defaults
            }
        missing = [name for name in self._table.names if name in needed - set(incoming.names)]
        if missing:
            raise InvalidInputError("rows lack columns that may not be null", columns=missing)

    def _column(self, field: DataField, batch: pa.RecordBatch, kinds: pa.Array) -> pa.Array:
        index = batch.schema.get_field_index(field.name)
        target = arrow_type(field.type)
        if self._deletes and field.name == self._kinds.stored_in:
            column = self._kinds.column(kinds)
        elif index < 0:
            column = fitted(field.name, pa.nulls(batch.num_rows, target), target)
        else:
            column = fitted(field.name, batch.column(index), target)
        default = self._defaults.get(field.name)
        if column.null_count and default is not None:
            found = pc.fill_null(column, default)
            if index >= 0 and field.type.nullable:  # what an update states stands, be it null
                is_update = fixed_values(kinds, np.int8) == RowKind.UPDATE_AFTER
                found = pc.if_else(pa.array(is_update), column, found)
            column = found
        if column.null_count:
            self._check_nulls(field, column, kinds, is_given=index >= 0)
        column = stored_values(field.name, field.type, column)
        if field.name in self._unpadded and isinstance(field.type, ScalarType):
            _refuse_short_keys(field.name, field.type, column)
        return column

    def _check_key_sizes(self, columns: Sequence[pa.Array]) -> None:
        """Refuse keys that no manifest could hold: it keeps a file's first and last key whole."""
        keys = [
            (field.name, column)
            for field, column in zip(self._table.fields, columns, strict=True)
            if field.name in self._required and _has_bytes(column.type)
        ]
        if sum(column.nbytes for _, column in keys) <= KEY_BYTES_MAX:
            return
        lengths = [pc.binary_length(column).cast(pa.int64()) for _, column in keys]
        total = functools.reduce(pc.add, (pc.fill_null(length, 0) for length in lengths))
        wrong = pc.sum(pc.greater(total, KEY_BYTES_MAX)).as_py() or 0
        if wrong:
            largest = [pc.max(length).as_py() or 0 for length in lengths]
            size = max(largest)
            name = keys[largest.index(size)][0]
            raise InvalidInputError(
                f"{counted(wrong, 'key')} of more than {KEY_BYTES_MAX} bytes; key column {name!r} has a "
                f"value of {size} bytes: use a digest of it as the key",
                kind=ErrorKind.INVALID_KEY,
                column=name,
                bytes=size,
                limit=KEY_BYTES_MAX,
            )

    def _check_nulls(
        self, field: DataField, column: pa.Array, kinds: pa.Array, *, is_given: bool
    ) -> None:
        if field.name in self._required:
            raise InvalidInputError(
                f"{counted(column.null_count, 'row')} without a value in key column {field.name!r}",
                kind=ErrorKind.INVALID_KEY,
                column=field.name,
                rows=column.null_count,
            )
        if field.type.nullable or (self._deletes and not is_given):
            return
        added = pa.array(adds(fixed_values(kinds, np.int8)))
        nulls = pc.is_null(column)
        wrong = pc.sum(nulls if self._deletes else pc.and_(nulls, added)).as_py() or 0
        if wrong:
            raise InvalidInputError(
                f"{counted(wrong, 'row')} without a value in column {field.name!r}, which may not be null",
                column=field.name,
                rows=wrong,
            )


def conformed(
    reader: pa.RecordBatchReader, table: TableSchema, *, deletes: bool = False
) -> Iterator[IncomingRows]:
    """Yield a stream's batches, made to fit; names and types are checked before the first."""
    conformer = Conformer(reader.schema, table, deletes=deletes)
    made = (conformer.conform(batch) for batch in reader if batch.num_rows)
    return (incoming for incoming in made if incoming.rows.num_rows)


def _has_bytes(value: pa.DataType) -> bool:
    return bool(pa.types.is_string(value) or pa.types.is_binary(value))


def _refuse_short_keys(name: str, kind: ScalarType, column: pa.Array) -> None:
    """Refuse keys whose row may be stored with blanks or without them: it would be two rows."""
    count = short_count(kind, column)
    if count:
        key = core_options.CHAR_KEYS_PADDED.key
        raise InvalidInputError(
            f"{counted(count, 'value')} of key column {name!r} shorter than {type_text(kind.with_nullable(nullable=True))}, and nobody knows "
            f"whether the keys of this table are stored with the blanks at their end; set option {key!r} = true, "
            "which looks at them all once",
            kind=ErrorKind.INVALID_KEY,
            column=name,
            rows=count,
            option=key,
        )
