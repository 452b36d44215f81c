"""Values as users give them → values of a column's type: never another value, and nothing left out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, unwritable_text
from lsm_engine.schema.nested_values import has_entries, in_type

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
_DIGITS = {"decimal128": 38, "decimal256": 76}
_WHOLE_DIGITS = 20  # of a whole number of 64 bits


def check_type(column: str, given: pa.DataType, wanted: pa.DataType) -> None:
    """Refuse what only a guess could turn into the column's type, and fields that it does not have.

    `column`: its name; those of nested fields follow it, behind dots. Raises InvalidInputError.
    """
    of = pa.types
    if of.is_dictionary(given):
        given = given.value_type
    if given == wanted or of.is_null(given):
        return
    if of.is_nested(given) and of.is_nested(wanted):
        _check_nested(column, given, wanted)
        return
    families = (_family(given), _family(wanted))
    narrowing = of.is_float64(given) and of.is_float32(wanted)
    zones = of.is_timestamp(given) and of.is_timestamp(wanted)
    other_zone = zones and (given.tz is None) != (wanted.tz is None)
    if narrowing or other_zone or (families[0] != families[1] and families not in _WIDENS):
        raise InvalidInputError(
            f"column {column!r} takes {wanted}, not {given}; {_remedy(given, wanted)}",
            column=column,
            given=str(given),
            wanted=str(wanted),
        )


def _check_nested(column: str, given: pa.DataType, wanted: pa.DataType) -> None:
    of = pa.types
    if of.is_struct(given) and of.is_struct(wanted):
        known = {field.name: field.type for field in wanted}
        if len({field.name for field in given}) < given.num_fields:
            raise InvalidInputError(
                f"two fields of column {column!r} share a name: {given}; rename one",
                kind=ErrorKind.INVALID_SCHEMA,
                column=column,
            )
        for field in given:
            if field.name not in known:
                raise InvalidInputError(
                    f"column {column!r} has no field {field.name!r}; there are {', '.join(known)}",
                    kind=ErrorKind.NO_SUCH_COLUMN,
                    column=f"{column}.{field.name}",
                )
            check_type(f"{column}.{field.name}", field.type, known[field.name])
    elif of.is_map(given) and of.is_map(wanted):
        check_type(f"{column}.key", given.key_type, wanted.key_type)
        check_type(f"{column}.value", given.item_type, wanted.item_type)
    elif of.is_map(wanted) and _is_pairs(given):
        key, value = given.value_type
        check_type(f"{column}.key", key.type, wanted.key_type)
        check_type(f"{column}.value", value.type, wanted.item_type)
    elif _is_list(given) and _is_list(wanted):
        check_type(f"{column}.element", given.value_type, wanted.value_type)
    else:
        remedy = "cast it first"
        if of.is_map(wanted) and of.is_struct(given):
            remedy = "maps are dictionaries in a list of rows, such as frame.to_dict('records') of pandas"
        raise InvalidInputError(
            f"column {column!r} takes {wanted}, not {given}; {remedy}",
            column=column,
            given=str(given),
            wanted=str(wanted),
        )


def fitted(column: str, values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values, checked by `check_type`, in a column's type.

    Raises InvalidInputError for what does not fit, and for nulls in nested fields that may not be null.
    Under a missing structure such fields hold zeros and empty text: no file takes nulls there.
    """
    try:
        return in_type(column, values, wanted, _scalars)
    except pa.ArrowException as cause:
        raise InvalidInputError(
            f"column {column!r} has values that do not fit {wanted}: {cause}",
            column=column,
            given=str(values.type),
            wanted=str(wanted),
        ) from cause


def _scalars(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type) and pa.types.is_decimal(wanted):
        digits = max(wanted.precision, _WHOLE_DIGITS + wanted.scale)
        wide = pa.decimal128 if digits <= _DIGITS["decimal128"] else pa.decimal256
        values = values.cast(wide(digits, wanted.scale))
    return values.cast(wanted)


def values_array(column: str, values: Sequence[Any], wanted: pa.DataType | None = None) -> pa.Array:
    """Return Python values of a column as Arrow's, in the type that they have.

    `wanted`: the column's type; where it is a map, dictionaries and lists of pairs are maps. Raises
    InvalidInputError for values that have no type in common, such as times with a zone and without,
    for what is no map, and for half of a character.
    """
    try:
        if wanted is not None and pa.types.is_map(wanted):
            return _maps(column, values)
        found = pa.array(values)
    except UnicodeEncodeError as cause:
        raise InvalidInputError(
            f"column {column!r} holds half of a character, which no file can; correct it",
            column=column,
            text=unwritable_text(cause).facts["text"],
        ) from cause
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as cause:
        raise InvalidInputError(
            f"the values of column {column!r} have no type in common: {cause}", column=column
        ) from cause
    if _has_times(found.type):
        _check_zones(column, values)
    return found


def _has_times(kind: pa.DataType) -> bool:
    fields = (kind.field(at) for at in range(kind.num_fields))
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
    whole = [_pairs(column, value) for value in values]
    offsets = pa.array(accumulate(map(len, whole), initial=0), pa.int32())
    keys, items = ([pair[at] for pairs in whole for pair in pairs] for at in (0, 1))
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
        repeated = any(key in keys[:at] for at, key in enumerate(keys))
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


def _remedy(given: pa.DataType, wanted: pa.DataType) -> str:
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        if wanted.tz is not None:
            return "give it a time zone"
        return "take its time zone away, such as by value.astimezone(UTC).replace(tzinfo=None)"
    if pa.types.is_floating(given) and pa.types.is_decimal(wanted):
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
