"""Conversion of polars expressions to predicates that keep at least the rows that polars keeps.

polars serializes an expression as JSON and does not promise its form. polars itself applies the whole
expression to the rows that the scan returns, so unknown parts are left out. Comparisons of floats are left
out too: NaN is above every number in polars, and incomparable in Arrow.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lsm_engine.prune.where import AllOf, AnyOf, Predicate, col

_EPOCH = date(1970, 1, 1)
_COMPARED: Mapping[str, Callable[[Any, Any], Predicate]] = {
    "Eq": lambda column, value: column == value,
    "NotEq": lambda column, value: column != value,
    "Lt": lambda column, value: column < value,
    "LtEq": lambda column, value: column <= value,
    "Gt": lambda column, value: column > value,
    "GtEq": lambda column, value: column >= value,
}
_FLIPPED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}


def polars_predicate(text: str, schema: pa.Schema) -> Predicate | None:
    """Return a predicate for every row that a polars expression, in JSON, keeps; None: any row."""
    try:
        return _read(json.loads(text), schema)
    except (
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        OverflowError,
    ):  # polars filters itself
        return None


def _read(node: Any, schema: pa.Schema) -> Predicate | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            parts = [
                part for part in (_read(left, schema), _read(right, schema)) if part is not None
            ]
            return AllOf(parts=tuple(parts)) if len(parts) > 1 else next(iter(parts), None)
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            first, second = _read(left, schema), _read(right, schema)
            return None if first is None or second is None else AnyOf(parts=(first, second))
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": value}}}:
            return _compared(name, op, value, schema)
        case {"BinaryExpr": {"left": {"Literal": value}, "op": op, "right": {"Column": name}}}:
            return _compared(name, _FLIPPED.get(op, op), value, schema)
        case {"Function": {"input": [{"Column": name}, *arguments], "function": function}}:
            return _called(name, arguments, function, schema)
        case _:
            return None


def _called(name: str, arguments: list[Any], function: Any, schema: pa.Schema) -> Predicate | None:
    match function, arguments:
        case {"Boolean": "IsNull"}, []:
            return col(name).is_null()
        case {"Boolean": "IsNotNull"}, []:
            return col(name).is_not_null()
        case {"StringExpr": "StartsWith"}, [{"Literal": {"Scalar": {"String": prefix}}}]:
            return (
                col(name).starts_with(prefix)
                if pa.types.is_string(schema.field(name).type)
                else None
            )
        case {"Boolean": {"IsBetween": _}}, [{"Literal": low}, {"Literal": high}]:
            above = _compared(name, "GtEq", low, schema)
            below = _compared(name, "LtEq", high, schema)
            return None if above is None or below is None else above & below
        case _:
            return None


def _compared(name: str, op: str, literal: Any, schema: pa.Schema) -> Predicate | None:
    compare = _COMPARED.get(op)
    value = _value(literal, schema.field(name).type)
    return None if compare is None or value is None else compare(col(name), value)


def _value(literal: Any, kind: pa.DataType) -> object:
    """Return a literal as a value of a column's type; None if it is of another, or null."""
    match literal:
        case {"Scalar": {"String": str(text)}} if pa.types.is_string(kind):
            return text
        case {"Scalar": {"Boolean": bool(flag)}} if pa.types.is_boolean(kind):
            return flag
        case {"Scalar": {"Date": int(days)}} if pa.types.is_date32(kind):
            return _EPOCH + timedelta(days=days)
        case {"Scalar": {"Decimal": [int(unscaled), _, int(scale)]}} if pa.types.is_decimal(kind):
            # Arithmetic of decimals would round to 28 digits.
            return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
        case {"Scalar": {"Datetime": [int(count), "Microseconds", None]}}:
            is_zoneless = pa.types.is_timestamp(kind) and kind.tz is None
            return pa.scalar(count, pa.timestamp("us")) if is_zoneless else None
        case {"Scalar": dict(forms)} | {"Dyn": dict(forms)} if pa.types.is_integer(kind):
            return next((n for form, n in forms.items() if "Int" in form and type(n) is int), None)
        case _:
            return None
