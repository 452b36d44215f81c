"""The functions by name, which columns each takes, and the options that shape it."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from importlib import import_module

import pyarrow as pa
import pyroaring

from lsm_engine.base.errors import ErrorKind, InvalidInputError, InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.kernels.fold import NO_LIMIT
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.aggregators.collections import (
    Collect,
    ListAgg,
    MergeMap,
    MergeMapWithKeyTime,
    NestedPartialUpdate,
    NestedUpdate,
    NullKeys,
)
from lsm_engine.merge.aggregators.numeric import (
    WIDEST_PRODUCT,
    Extreme,
    FirstNonNull,
    FirstValue,
    LastNonNull,
    LastValue,
    Product,
    Sum,
)
from lsm_engine.merge.versions import Computed, Folded, Versions, of_adds
from lsm_engine.options import core_options
from lsm_engine.options.option import names
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import (
    BINARY,
    TEXT,
    ArrayType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    type_text,
)

# -- Functions over bitmaps and sketches, kept as bytes --------------------------------------------
#
# Unions, made by the libraries of their formats.
#
# The libraries take one value at a time; a call per value is what a union costs.

_HLL_LG_MAX_K = 12
_THETA_LG_K = 12


class Bitmaps(Enum):
    """The formats; the value is the function's name."""

    RBM32 = "rbm32"
    RBM64 = "rbm64"
    HLL = "hll_sketch"
    THETA = "theta_sketch"


@record
class Union(Aggregator):
    """The union of all values. A value that is not of the format is an InvalidInputError."""

    format: Bitmaps

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, self.format.value)
        valid_versions = versions.filtered(versions.valid(name))
        values = valid_versions.column(name).to_pylist()
        unite = _UNIONS[self.format]
        sketches: list[bytes | None] = []
        for group, (start, stop) in enumerate(
            zip(
                valid_versions.offsets[:-1].tolist(),
                valid_versions.offsets[1:].tolist(),
                strict=True,
            )
        ):
            try:
                sketches.append(unite(values[start:stop]) if stop > start else None)
            except (ValueError, RuntimeError) as cause:
                raise InvalidInputError(
                    f"column {name!r} holds bytes that are no {self.format.value}",
                    kind=ErrorKind.INVALID_ROWS,
                    column=name,
                    key=valid_versions.key(group),
                ) from cause
        return Computed(values=pa.array(sketches, versions.schema.field(name).type))


def _united_32(values: Sequence[bytes]) -> bytes:
    united = pyroaring.BitMap.deserialize(values[0])
    for value in values[1:]:
        united |= pyroaring.BitMap.deserialize(value)
    return bytes(united.serialize())


def _united_64(values: Sequence[bytes]) -> bytes:
    united = pyroaring.BitMap64.deserialize(values[0])
    for value in values[1:]:
        united |= pyroaring.BitMap64.deserialize(value)
    return bytes(united.serialize())


def _united_hll(values: Sequence[bytes]) -> bytes:
    datasketches = import_module("datasketches")
    union = datasketches.hll_union(_HLL_LG_MAX_K)
    for value in values:
        union.update(datasketches.hll_sketch.deserialize(value))
    return bytes(union.get_result(datasketches.tgt_hll_type.HLL_4).serialize_compact())


def _united_theta(values: Sequence[bytes]) -> bytes:
    datasketches = import_module("datasketches")
    union = datasketches.theta_union(_THETA_LG_K)
    for value in values:
        union.update(datasketches.compact_theta_sketch.deserialize(value))
    return bytes(union.get_result().serialize())


_UNIONS: dict[Bitmaps, Callable[[Sequence[bytes]], bytes]] = {
    Bitmaps.RBM32: _united_32,
    Bitmaps.RBM64: _united_64,
    Bitmaps.HLL: _united_hll,
    Bitmaps.THETA: _united_theta,
}


# -- The functions by name, which columns each takes, and the options that shape it ----------------

DEFAULT_FUNCTION = "last_non_null_value"
_NUMBERS = frozenset(
    {
        Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE, Root.DECIMAL,
    }
)  # fmt: skip
_BY_OLDER_NAME = {"first_not_null_value": "first_non_null_value"}


@record
class IgnoringRetracts(Aggregator):
    """A function that does not see retracts, so that they change nothing: `fields.<c>.ignore-retract`."""

    inner: Aggregator
    takes_retracts: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        return of_adds(versions, partial(self.inner.fold, name=name))


def aggregator_of(schema: TableSchema, field: DataField, function: str) -> Aggregator:
    """Return a column's function with its options.

    Raises InvalidOptionError for names that are no function, columns of a type that the function
    does not take, and options that do not go with it.
    """
    name = _BY_OLDER_NAME.get(function, function)
    if name not in FUNCTIONS:
        raise InvalidOptionError(
            f"there is no aggregate function {function!r}; choose one of {', '.join(FUNCTIONS)}",
            key=f"fields.{field.name}.aggregate-function",
            value=function,
        )
    takes, type_names, build = FUNCTIONS[name]
    if not takes(field.type):
        raise InvalidOptionError(
            f"function {name!r} takes {type_names}, and column {field.name!r} is "
            f"{type_text(field.type)}; choose another function",
            kind=ErrorKind.INVALID_OPTION,
            key=f"fields.{field.name}.aggregate-function",
            column=field.name,
        )
    declaration = _Given(schema=schema, field=field)
    aggregator = build(declaration)
    if not declaration.flag("ignore-retract"):
        return aggregator
    return IgnoringRetracts(
        inner=aggregator, keeps_single_row=aggregator.keeps_single_row, needs=aggregator.needs
    )


@record
class _Given:
    """The options of one column."""

    schema: TableSchema
    field: DataField

    def text(self, suffix: str) -> str | None:
        return self.schema.options.of_field(self.field.name, suffix)

    def flag(self, suffix: str) -> bool:
        text = self.text(suffix) or "false"
        if text.lower() not in ("true", "false"):
            raise self.wrong(suffix, "choose true or false")
        return text.lower() == "true"

    def nested(self, suffix: str) -> tuple[str, ...]:
        """Names of fields of the nested rows."""
        chosen = names(self.text(suffix) or "")
        kind = self.field.type
        inner = kind.element if isinstance(kind, ArrayType) else kind
        inner_names = [field.name for field in inner.fields] if isinstance(inner, RowType) else []
        missing = [name for name in chosen if name not in inner_names]
        if missing:
            raise self.wrong(suffix, f"there is no nested field {missing[0]!r}")
        return chosen

    def limit(self) -> int:
        text = self.text("count-limit")
        if text is None:
            return NO_LIMIT
        if not text.isdigit() or int(text) < 1:
            raise self.wrong("count-limit", "give a whole number of at least 1")
        return int(text)

    def null_keys(self) -> NullKeys:
        text = (self.text("nested-key-null-strategy") or "merge").lower()
        if text not in {member.value for member in NullKeys}:
            raise self.wrong("nested-key-null-strategy", "choose merge, ignore or error")
        return NullKeys(text)

    def wrong(self, suffix: str, remedy: str) -> InvalidOptionError:
        key = f"fields.{self.field.name}.{suffix}"
        return InvalidOptionError(
            f"option {key!r} cannot be {self.text(suffix)!r}: {remedy}",
            key=key,
            value=self.text(suffix),
        )


def _nested_update(declaration: _Given) -> Aggregator:
    key, sequence = declaration.nested("nested-key"), declaration.nested("nested-sequence-field")
    if not key:
        for suffix in ("nested-sequence-field", "nested-key-null-strategy"):
            if declaration.text(suffix) is not None:
                raise declaration.wrong(
                    suffix, f"it needs 'fields.{declaration.field.name}.nested-key'"
                )
    return NestedUpdate(
        nested_key=key,
        nested_sequence=sequence,
        count_limit=declaration.limit(),
        null_keys=declaration.null_keys(),
    )


def _nested_partial_update(declaration: _Given) -> Aggregator:
    key = declaration.nested("nested-key")
    if not key:
        raise InvalidOptionError(
            f"function 'nested_partial_update' needs 'fields.{declaration.field.name}.nested-key'",
            key=f"fields.{declaration.field.name}.nested-key",
        )
    return NestedPartialUpdate(nested_key=key, null_keys=declaration.null_keys())


def _merge_map_with_time(declaration: _Given) -> Aggregator:
    kind = declaration.field.type
    assert isinstance(kind, MapType)
    assert isinstance(kind.value, RowType)
    field = declaration.text("ts-field") or ""
    if field not in [member.name for member in kind.value.fields]:
        raise InvalidOptionError(
            f"function 'merge_map_with_keytime' needs 'fields.{declaration.field.name}.ts-field', the name "
            "of a field of the map's values",
            key=f"fields.{declaration.field.name}.ts-field",
            value=field,
        )
    return MergeMapWithKeyTime(time_field=field)


def _list_agg(declaration: _Given) -> Aggregator:
    delimiter = declaration.text("list-agg-delimiter")
    if delimiter == "" and declaration.flag("distinct"):
        raise declaration.wrong(
            "list-agg-delimiter", "nothing parts the tokens that 'distinct' compares"
        )
    return ListAgg(
        delimiter="," if delimiter is None else delimiter, distinct=declaration.flag("distinct")
    )


def _scalar(kind: DataType) -> bool:
    return isinstance(kind, ScalarType)


def _anything(kind: DataType) -> bool:
    del kind
    return True


def _is_any_of(roots: frozenset[Root]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, ScalarType) and kind.root in roots


def _multiplies(kind: DataType) -> bool:
    if not isinstance(kind, ScalarType) or kind.root not in _NUMBERS:
        return False
    return kind.root is not Root.DECIMAL or (kind.precision or 0) <= WIDEST_PRODUCT


def _array(kind: DataType) -> bool:
    return isinstance(kind, ArrayType)


def _rows(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.element, RowType)


def _map(kind: DataType) -> bool:
    return isinstance(kind, MapType)


def _map_of_rows(kind: DataType) -> bool:
    return isinstance(kind, MapType) and isinstance(kind.value, RowType)


def _same(aggregator: Aggregator) -> Callable[[_Given], Aggregator]:
    return lambda declaration: aggregator


_Entry = tuple[Callable[[DataType], bool], str, Callable[[_Given], Aggregator]]
_NUMERIC = "numbers"
_BOOLEANS = frozenset({Root.BOOLEAN})
FUNCTIONS: dict[str, _Entry] = {
    "sum": (_is_any_of(_NUMBERS), _NUMERIC, _same(Sum())),
    "product": (_multiplies, f"numbers, decimals up to {WIDEST_PRODUCT} digits", _same(Product())),
    "max": (_scalar, "values that have an order", _same(Extreme(function="max"))),
    "min": (_scalar, "values that have an order", _same(Extreme(function="min", least=True))),
    "last_value": (_anything, "anything", _same(LastValue())),
    "last_non_null_value": (_anything, "anything", _same(LastNonNull())),
    "first_value": (_anything, "anything", _same(FirstValue())),
    "first_non_null_value": (_anything, "anything", _same(FirstNonNull())),
    "listagg": (_is_any_of(TEXT), "texts", _list_agg),
    "bool_and": (
        _is_any_of(_BOOLEANS),
        "booleans",
        _same(Extreme(function="bool_and", least=True)),
    ),
    "bool_or": (_is_any_of(_BOOLEANS), "booleans", _same(Extreme(function="bool_or"))),
    "collect": (
        _array,
        "arrays",
        lambda declaration: Collect(distinct=declaration.flag("distinct")),
    ),
    "merge_map": (_map, "maps", _same(MergeMap())),
    "merge_map_with_keytime": (_map_of_rows, "maps of rows", _merge_map_with_time),
    "nested_update": (_rows, "arrays of rows", _nested_update),
    "nested_partial_update": (_rows, "arrays of rows", _nested_partial_update),
    "rbm32": (_is_any_of(BINARY), "bytes", _same(Union(format=Bitmaps.RBM32))),
    "rbm64": (_is_any_of(BINARY), "bytes", _same(Union(format=Bitmaps.RBM64))),
    "hll_sketch": (_is_any_of(BINARY), "bytes", _same(Union(format=Bitmaps.HLL))),
    "theta_sketch": (_is_any_of(BINARY), "bytes", _same(Union(format=Bitmaps.THETA))),
}


def function_of(schema: TableSchema, name: str) -> str | None:
    """Return the function that the options name for a column, or the default one, or None."""
    own = schema.options.of_field(name, "aggregate-function")
    return own if own is not None else schema.options[core_options.DEFAULT_AGGREGATE_FUNCTION]
