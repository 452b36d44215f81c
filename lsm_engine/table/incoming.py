"""Rows as users hand them in → rows as the table stores them, or an error before anything is written."""

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError, unwritable_text
from lsm_engine.base.names import did_you_mean
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.kernels.arrow_views import Bools, fixed_values
from lsm_engine.kernels.changes import adds
from lsm_engine.merge.function import RetractRule, retract_rule
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.types.arrow_types import arrow_type, default_of
from lsm_engine.types.columns import decoded
from lsm_engine.types.declared_lengths import short_count, stored_values
from lsm_engine.types.mapping import has_entries, in_type
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, ScalarType, type_text

# -- Values as users give them → values of a column's type -----------------------------------------
#
# Never another value, and nothing left out.

_FAMILIES: tuple[tuple[str, Any], ...] = (
    ("boolean", pa.types.is_boolean),
    ("whole number", pa.types.is_integer),
    ("floating number", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("date", pa.types.is_date),
    ("time", pa.types.is_time),
    ("timestamp", pa.types.is_timestamp),
)
_WIDENS = {
    ("whole number", "floating number"),
    ("whole number", "decimal"),
    ("string_view", "string"),
    ("binary_view", "binary"),
    ("date", "timestamp"),
}
_INDEX = re.compile(r"__index_level_\d+__")
"""The name that Arrow gives to the index of a pandas frame that has none."""
_DIGITS = {"decimal128": 38, "decimal256": 76}
_WHOLE_DIGITS = 20  # of a whole number of 64 bits


def check_type(column: str, value_type: pa.DataType, column_type: pa.DataType) -> None:
    """Refuse what only a guess could turn into the column's type, and fields that it does not have.

    `column`: its name; those of nested fields follow it, behind dots. Raises InvalidInputError.
    """
    types = pa.types
    if types.is_dictionary(value_type):
        value_type = value_type.value_type
    if value_type == column_type or types.is_null(value_type):
        return
    if types.is_nested(value_type) and types.is_nested(column_type):
        _check_nested(column, value_type, column_type)
        return
    families = (_family(value_type), _family(column_type))
    narrowing = types.is_float64(value_type) and types.is_float32(column_type)
    zones = types.is_timestamp(value_type) and types.is_timestamp(column_type)
    other_zone = zones and (value_type.tz is None) != (column_type.tz is None)
    if narrowing or other_zone or (families[0] != families[1] and families not in _WIDENS):
        raise InvalidInputError(
            f"column {column!r} takes {column_type}, not {value_type}; {_remedy(value_type, column_type)}",
            column=column,
            given=str(value_type),
            wanted=str(column_type),
        )


def _check_nested(column: str, value_type: pa.DataType, column_type: pa.DataType) -> None:
    types = pa.types
    if types.is_struct(value_type) and types.is_struct(column_type):
        columns = {field.name: field.type for field in column_type}
        if len({field.name for field in value_type}) < value_type.num_fields:
            raise InvalidInputError(
                f"two fields of column {column!r} share a name: {value_type}; rename one",
                kind=ErrorKind.INVALID_SCHEMA,
                column=column,
            )
        for field in value_type:
            if field.name not in columns:
                raise InvalidInputError(
                    f"column {column!r} has no field {field.name!r}; there are {', '.join(columns)}",
                    kind=ErrorKind.NO_SUCH_COLUMN,
                    column=f"{column}.{field.name}",
                )
            check_type(f"{column}.{field.name}", field.type, columns[field.name])
    elif types.is_map(value_type) and types.is_map(column_type):
        check_type(f"{column}.key", value_type.key_type, column_type.key_type)
        check_type(f"{column}.value", value_type.item_type, column_type.item_type)
    elif types.is_map(column_type) and _is_pairs(value_type):
        key, value = value_type.value_type
        check_type(f"{column}.key", key.type, column_type.key_type)
        check_type(f"{column}.value", value.type, column_type.item_type)
    elif _is_list(value_type) and _is_list(column_type):
        check_type(f"{column}.element", value_type.value_type, column_type.value_type)
    else:
        remedy = "cast it first"
        if types.is_map(column_type) and types.is_struct(value_type):
            remedy = "maps are dictionaries in a list of rows, such as frame.to_dict('records') of pandas"
        raise InvalidInputError(
            f"column {column!r} takes {column_type}, not {value_type}; {remedy}",
            column=column,
            given=str(value_type),
            wanted=str(column_type),
        )


def fitted(column: str, values: pa.Array, column_type: pa.DataType) -> pa.Array:
    """Return values, checked by `check_type`, in a column's type.

    Raises InvalidInputError for what does not fit, and for nulls in nested fields that may not be null.
    Under a missing structure such fields hold zeros and empty text: no file takes nulls there.
    """
    try:
        return in_type(column, values, column_type, _scalars)
    except pa.ArrowException as cause:
        # The column is named, which Arrow does not do.
        raise InvalidInputError(
            f"column {column!r} has values that do not fit {column_type}: {cause}",
            column=column,
            given=str(values.type),
            wanted=str(column_type),
        ) from cause


def _scalars(values: pa.Array, column_type: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type) and pa.types.is_decimal(column_type):
        # Arrow casts whole numbers only to a decimal with room for all of them.
        digits = max(column_type.precision, _WHOLE_DIGITS + column_type.scale)
        wide = pa.decimal128 if digits <= _DIGITS["decimal128"] else pa.decimal256
        values = values.cast(wide(digits, column_type.scale))
    return values.cast(column_type)


def values_array(
    column: str, values: Sequence[Any], column_type: pa.DataType | None = None
) -> pa.Array:
    """Return Python values of a column as Arrow's, in the type that they have.

    `column_type`: the column's type; where it is a map, dictionaries and lists of pairs are maps. Raises
    InvalidInputError for values that have no type in common, such as times with a zone and without,
    for what is no map, and for half of a character.
    """
    try:
        if column_type is not None and pa.types.is_map(column_type):
            return _maps(column, values)
        array = pa.array(values)
    except UnicodeEncodeError as cause:
        raise InvalidInputError(
            f"column {column!r} holds half of a character, which no file can; correct it",
            column=column,
            text=unwritable_text(cause).facts["text"],
        ) from cause
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as cause:
        # The column is named, which Arrow does not do.
        raise InvalidInputError(
            f"the values of column {column!r} have no type in common: {cause}", column=column
        ) from cause
    # Arrow would silently take a time without a zone for one with, or the reverse.
    if _has_times(array.type):
        _check_zones(column, values)
    return array


def _has_times(kind: pa.DataType) -> bool:
    fields = (kind.field(index) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) or any(_has_times(field.type) for field in fields))


def _check_zones(column: str, values: Sequence[Any]) -> None:
    """Refuse times with a zone beside times without: Arrow would take one of them for the other."""
    zones: dict[str, bool] = {}
    for path, aware in _zones(column, values):
        if zones.setdefault(path, aware) != aware:
            raise InvalidInputError(
                f"column {path!r} has times with a time zone and times without; give them all one, "
                "or none",
                column=path,
            )


def _zones(path: str, values: Iterable[Any]) -> Iterator[tuple[str, bool]]:
    """Yield a column or nested field of each time, and whether the time has a zone."""
    for value in values:
        if isinstance(value, datetime):
            yield path, value.tzinfo is not None
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                yield from _zones(f"{path}.{name}", (inner,))
        elif isinstance(value, list | tuple):
            yield from _zones(path, value)


def _maps(column: str, values: Sequence[Any]) -> pa.Array:
    maps = [_pairs(column, value) for value in values]
    offsets = pa.array(accumulate(map(len, maps), initial=0), pa.int32())
    keys, items = ([pair[index] for pairs in maps for pair in pairs] for index in (0, 1))
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.MapArray.from_arrays(
        offsets, values_array(column, keys), values_array(column, items), mask=missing
    )


def _pairs(column: str, value: Any) -> list[tuple[Any, Any]]:
    """Return the pairs of one map as it is given; none of a missing one."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return list(value.items())
    if not isinstance(value, list | tuple):
        raise _no_map(column, value)
    pairs = []
    for member in value:
        if isinstance(member, Mapping) and set(member) == {"key", "value"}:
            pairs.append((member["key"], member["value"]))
        elif isinstance(member, list | tuple) and len(member) == len(("key", "value")):
            pairs.append((member[0], member[1]))
        else:
            raise _no_map(column, value)
    keys = [key for key, _ in pairs]
    try:
        repeated = len(set(keys)) < len(keys)
    except TypeError:  # keys with structure
        repeated = any(key in keys[:index] for index, key in enumerate(keys))
    if repeated:
        raise InvalidInputError(
            f"a map of column {column!r} has a key twice; give one value for each key",
            column=column,
        )
    return pairs


def _no_map(column: str, value: Any) -> InvalidInputError:
    return InvalidInputError(
        f"column {column!r} takes maps, as dictionaries or lists of pairs, not {value!r:.200}",
        column=column,
        given=type(value).__name__,
    )


def _remedy(value_type: pa.DataType, column_type: pa.DataType) -> str:
    if pa.types.is_timestamp(value_type) and pa.types.is_timestamp(column_type):
        if column_type.tz is not None:
            return "give it a time zone"
        return "take its time zone away, such as by value.astimezone(UTC).replace(tzinfo=None)"
    if pa.types.is_floating(value_type) and pa.types.is_decimal(column_type):
        return "write Decimal('12.50') for 12.5, or cast the column first"
    return "cast it first"


def _family(value: pa.DataType) -> str:
    for name, test in _FAMILIES:
        if test(value):
            return name
    if pa.types.is_nested(value):
        return "nested"
    if pa.types.is_binary(value) or pa.types.is_large_binary(value):
        return "binary"
    return "binary" if pa.types.is_fixed_size_binary(value) else str(value).removeprefix("large_")


def _is_list(value: pa.DataType) -> bool:
    return has_entries(value) and not pa.types.is_map(value)


def _is_pairs(value: pa.DataType) -> bool:
    if not _is_list(value) or not pa.types.is_struct(value.value_type):
        return False
    return [field.name for field in value.value_type] == ["key", "value"]


# -- Row kinds of incoming rows --------------------------------------------------------------------
#
# Where its kind stands, and which kinds a table takes.

ROW_KIND_COLUMN = "_row_kind"
"""Optional column of incoming rows: +I, -U, +U or -D as text, or the format's number 0 to 3."""

_APPEND_ONLY = RetractRule(
    refused=frozenset(RowKind) - {RowKind.INSERT},
    remedy="a table without a primary key takes new rows (+I) only: nothing in it is ever replaced",
)


@functools.cache
def kind_symbols() -> pa.Array:
    """Return +I, -U, +U and -D, each at its number; made late, as Arrow loads pandas for a list's sake."""
    return pa.array([kind.symbol for kind in RowKind], pa.string())


def takes_kinds(table: TableSchema) -> bool:
    """Whether rows of a table may have their kinds in `_row_kind`: no column of its own holds them."""
    own = table.options[core_options.ROWKIND_FIELD]
    return own is None and ROW_KIND_COLUMN not in table.names


class RowKinds:
    """Finds the kinds of rows of one incoming schema. `deletes`: every row names a key to delete.

    Raises InvalidInputError, when built, for kinds in two places, and for deletes that the table's
    merge engine does not take.
    """

    def __init__(self, incoming: pa.Schema, table: TableSchema, *, deletes: bool) -> None:
        self.stored_in: str | None = table.options[core_options.ROWKIND_FIELD]
        self._deletes = deletes
        self._rule = retract_rule(table) if table.has_primary_key else _APPEND_ONLY
        has_column = ROW_KIND_COLUMN in incoming.names and ROW_KIND_COLUMN not in table.names
        self.is_given = has_column and not deletes
        if self.is_given and self.stored_in is not None:
            raise InvalidInputError(
                f"the table takes row kinds from column {self.stored_in!r}; leave out "
                f"{ROW_KIND_COLUMN!r}",
                column=ROW_KIND_COLUMN,
            )
        if deletes and RowKind.DELETE in self._rule.refused:
            raise InvalidInputError(self._rule.remedy)
        lacks = set(self._rule.delete_needs).isdisjoint(incoming.names)
        if deletes and self._rule.delete_needs and lacks:
            raise InvalidInputError(
                "a delete of this table retracts the values of its row, and these rows hold a key "
                "only: nothing would change; add columns",
                columns=self._rule.delete_needs,
            )

    @property
    def has_kinds(self) -> bool:
        """Whether rows carry their own row kinds."""
        return self.is_given or (self.stored_in is not None and not self._deletes)

    def codes_of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return each row's kind as int8; InvalidInputError for kinds that the table refuses."""
        if self._deletes:
            return pa.array(np.full(batch.num_rows, RowKind.DELETE, np.int8))
        column = ROW_KIND_COLUMN if self.is_given else self.stored_in
        if column is None:
            return pa.array(np.zeros(batch.num_rows, np.int8))
        if column not in batch.schema.names:
            raise InvalidInputError(f"rows lack column {column!r}, which holds each row's kind")
        kinds = _codes(batch.column(batch.schema.get_field_index(column)), column)
        refused = self._among(kinds, self._rule.refused)
        if refused.any():
            raise InvalidInputError(self._rule.remedy, column=column, rows=int(refused.sum()))
        return kinds

    def column(self, kinds: pa.Array) -> pa.Array:
        """Return kinds as the text that the table's own column of kinds holds."""
        return kind_symbols().take(kinds)

    def dropped(self, kinds: pa.Array) -> Bools | None:
        """Return the rows that the table drops, or None."""
        mask = self._among(kinds, self._rule.dropped)
        return mask if mask.any() else None

    def _among(self, kinds: pa.Array, chosen: frozenset[RowKind]) -> Bools:
        if not chosen:
            return np.zeros(len(kinds), np.bool_)
        return np.isin(kinds.to_numpy(), [kind.value for kind in chosen])


def _codes(kinds: pa.Array, name: str) -> pa.Array:
    if pa.types.is_dictionary(kinds.type):
        kinds = kinds.dictionary_decode()
    if pa.types.is_integer(kinds.type):
        codes = kinds.cast(pa.int64())
    else:
        codes = pc.index_in(kinds.cast(pa.string()), value_set=kind_symbols())
    inside = pc.and_(pc.greater_equal(codes, 0), pc.less_equal(codes, 3))
    wrong = len(kinds) - (pc.sum(pc.fill_null(inside, False)).as_py() or 0)  # noqa: FBT003
    if wrong:
        raise InvalidInputError(
            f"{counted(wrong, 'row')} without a valid {name}; write +I, -U, +U or -D",
            column=name,
            rows=wrong,
        )
    return codes.cast(pa.int8())


# -- Incoming --------------------------------------------------------------------------------------

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
    """Return how a list of something else becomes rows, behind ": "; empty if unknown."""
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
    # An object that offers its reader raises errors of its own, which a C stream turns into Arrow's.
    reader = getattr(rows, "reader", rows)
    if hasattr(rows, "to_reader") and hasattr(rows, "__arrow_c_stream__"):
        reader = rows.to_reader()
    if isinstance(reader, pa.RecordBatchReader):
        pass
    elif hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        reader = _without_index(_exported(rows))
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
    return decoded(pa.RecordBatchReader.from_batches(reader.schema, _validated_batches(reader)))


def _without_index(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return a stream without the index of a pandas frame, unless it has a name: only positions are lost."""
    metadata = reader.schema.metadata or {}
    names = [name for name in reader.schema.names if not _INDEX.fullmatch(name)]
    if b"pandas" not in metadata or len(names) == len(reader.schema.names):
        return reader
    schema = pa.schema([reader.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in reader))


def _exported(rows: Any) -> pa.RecordBatchReader:
    """Return a stream over what exports one, or a batch; InvalidInputError for one column, and for types Arrow has not."""
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(rows)
        batch = pa.record_batch(rows)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError) as cause:
        has_columns = hasattr(rows, "columns")
        hint = (
            "cast it first"
            if has_columns
            else "write rows.to_frame(name), or pyarrow.table({name: rows})"
        )
        has = "a column that is no Arrow data" if has_columns else "no columns with names"
        raise InvalidInputError(
            f"this {type(rows).__name__} has {has}: {hint} ({cause})", given=type(rows).__name__
        ) from cause


def _validated_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        return ": lsm.read_files(path, table) reads a file; a condition is where=…, a key [{'id': 'x'}]"
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
        kinds = self._kinds.codes_of(batch)
        dropped = self._kinds.dropped(kinds)
        if dropped is not None:
            mask = pa.array(~dropped)
            batch, kinds = batch.filter(mask), kinds.filter(mask)
        columns = [self._column(field, batch, kinds) for field in self._table.fields]
        self._check_key_sizes(columns)
        schema = pa.schema(
            pa.field(field.name, arrow_type(field.type)) for field in self._table.fields
        )
        return IncomingRows(rows=pa.RecordBatch.from_arrays(columns, schema=schema), kinds=kinds)

    def _check_names(self, incoming: pa.Schema) -> None:
        names = set(self._table.names) | ({ROW_KIND_COLUMN} if self._kinds.is_given else set())
        unknown = [name for name in incoming.names if name not in names]
        if unknown:
            hint = did_you_mean(unknown[0], self._table.names, self._unknown_column_hint())
            raise InvalidInputError(
                f"the table has no column {unknown[0]!r}{hint}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                columns=unknown,
            )
        self._check_required(incoming)

    def _unknown_column_hint(self) -> str:
        if self._deletes:
            keys = ", ".join(map(repr, self._table.primary_keys))
            return f"; a delete by rows takes the key alone, such as rows[[{keys}]]"
        return "; add it with alter(AddColumn(...)), or open the table again if it was added since"

    def _check_required(self, incoming: pa.Schema) -> None:
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
            filled = pc.fill_null(column, default)
            if index >= 0 and field.type.nullable:  # what an update states stands, be it null
                is_update = fixed_values(kinds, np.int8) == RowKind.UPDATE_AFTER
                filled = pc.if_else(pa.array(is_update), column, filled)
            column = filled
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
    batches = (conformer.conform(batch) for batch in reader if batch.num_rows)
    return (incoming for incoming in batches if incoming.rows.num_rows)


def _has_bytes(value: pa.DataType) -> bool:
    return bool(pa.types.is_string(value) or pa.types.is_binary(value))


def _refuse_short_keys(name: str, kind: ScalarType, column: pa.Array) -> None:
    """Refuse keys whose row may be stored with blanks or without them: it would be two rows."""
    count = short_count(kind, column)
    if count:
        key = core_options.CHAR_KEYS_PADDED.key
        raise InvalidInputError(
            f"{counted(count, 'value')} of key column {name!r} shorter than {type_text(kind.with_nullable(nullable=True))}, and it is unknown "
            f"whether the keys of this table are stored with the blanks at their end; set option {key!r} = true, "
            "which checks all keys once",
            kind=ErrorKind.INVALID_KEY,
            column=name,
            rows=count,
            option=key,
        )
