"""Which type changes a column can go through, and what its stored values become.

A change loses nothing when every old value has one plain reading as the new type. What may lose
something goes by the rules of `explicit_casts`. The rest is refused by name rather than guessed at:
text that may not parse, and renderings that clients disagree about.
"""

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.explicit_casts import WHOLE, can_cast_explicitly, cast_explicitly
from lsm_engine.schema.types import (
    BINARY,
    TEXT,
    TIMESTAMPS,
    ArrayType,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    type_text,
)

_DIGITS = {Root.TINYINT: 3, Root.SMALLINT: 5, Root.INT: 10, Root.BIGINT: 19}
_CHARACTERS = {Root.BOOLEAN: 5, Root.DATE: 10, **{root: 1 + n for root, n in _DIGITS.items()}}
"""What the longest value takes as text, of a year of four digits."""
_OF_A_LENGTH = TEXT | BINARY


def reads_as_is(source: DataType, target: DataType) -> bool:
    """Whether stored values are the wanted ones, bit for bit, nested fields being the same by id."""
    if source == target:
        return True
    if arrow_type(source) != arrow_type(target):
        return False
    match source, target:
        case ScalarType(), ScalarType():
            return not _shortens(source, target)
        case ArrayType(), ArrayType():
            return reads_as_is(source.element, target.element)
        case MapType(), MapType():
            return reads_as_is(source.key, target.key) and reads_as_is(source.value, target.value)
        case RowType(), RowType():
            return all(
                source_field.id == target_field.id
                and reads_as_is(source_field.type, target_field.type)
                for source_field, target_field in zip(source.fields, target.fields, strict=True)
            )
        case _:
            return False


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether values of `source` read as `target` and lose nothing, whatever may be null."""
    if not isinstance(source, ScalarType) or not isinstance(target, ScalarType):
        return reads_as_is(source, target)
    if source.root is target.root and source.root not in (Root.DECIMAL, *TIMESTAMPS):
        return not _shortens(source, target)
    if source.root in WHOLE:
        return _whole_reads_as(source, target)
    match source.root:
        case Root.BOOLEAN | Root.DATE if target.root in TEXT:
            return _holds_text(source, target)
        case Root.FLOAT:
            return target.root is Root.DOUBLE
        case Root.DECIMAL:
            return target.root is Root.DECIMAL and _holds_decimal(source, target)
        case Root.DATE:
            return target.root is Root.TIMESTAMP
        case root if root in TIMESTAMPS:
            return target.root is root and (target.precision or 0) >= (source.precision or 0)
        case root if root in TEXT:
            return target.root in TEXT and not _shortens(source, target)
        case root if root in BINARY:
            return target.root in BINARY and not _shortens(source, target)
        case _:
            return False


def _whole_reads_as(source: ScalarType, target: ScalarType) -> bool:
    if target.root in WHOLE:
        return WHOLE.index(target.root) >= WHOLE.index(source.root)
    if target.root is Root.DECIMAL:
        return (target.precision or 10) - (target.scale or 0) >= _DIGITS[source.root]
    if target.root is Root.FLOAT:
        return source.root in (Root.TINYINT, Root.SMALLINT)  # exact up to 24 bits
    if target.root is Root.DOUBLE:
        return source.root is not Root.BIGINT  # exact up to 53 bits
    return target.root in TEXT and target.root is not Root.CHAR and _holds_text(source, target)


def _holds_text(source: ScalarType, target: ScalarType) -> bool:
    return target.precision is None or target.precision >= _CHARACTERS[source.root]


def _holds_decimal(source: ScalarType, target: ScalarType) -> bool:
    integer_digits = (source.precision or 10) - (source.scale or 0)
    return (
        (target.scale or 0) >= (source.scale or 0)
        and (target.precision or 10) - (target.scale or 0) >= integer_digits
    )  # fmt: skip


def _shortens(source: ScalarType, target: ScalarType) -> bool:
    """Whether CHAR(n) and its kin lose room; the unbounded names have no precision."""
    if target.root not in _OF_A_LENGTH or target.precision is None:
        return False
    return source.precision is None or source.precision > target.precision


def may_lose_values(source: DataType, target: DataType) -> bool:
    """Whether a change has a rule, but one that may lose something."""
    return (
        not can_cast(source, target)
        and isinstance(source, ScalarType)
        and isinstance(target, ScalarType)
        and can_cast_explicitly(source, target)
    )


def keeps_order(source: DataType, target: DataType) -> bool:
    """Whether values compare as before once they are read as another type. 9 < 10, but "10" < "9"."""
    if not isinstance(source, ScalarType) or not isinstance(target, ScalarType):
        return True
    return (source.root in TEXT) == (target.root in TEXT)


def check_cast(column: str, source: DataType, target: DataType, *, may_lose: bool = True) -> None:
    """Raise UnsupportedError, naming the column, unless `source` can be read as `target`.

    `may_lose` false: unless nothing can be lost by that.
    """
    if not (can_cast(source, target) or (may_lose and may_lose_values(source, target))):
        raise UnsupportedError(
            f"column {column!r} cannot change from {type_text(source)} to {type_text(target)};"
            " add a new column and copy the values",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=column,
        )


def cast_values(
    values: pa.Array | pa.ChunkedArray, source: DataType, target: DataType
) -> pa.Array | pa.ChunkedArray:
    """Return old values as the new type. `values` are of the Arrow type of `source`.

    The pair must have passed `check_cast`. Values that do not fit raise pa.ArrowInvalid: dates far
    from 1970 have no nanosecond timestamp.
    """
    if not can_cast(source, target):
        assert isinstance(source, ScalarType)
        assert isinstance(target, ScalarType)
        return cast_explicitly(values, source, target)
    target_type = arrow_type(target)
    if values.type == target_type:
        return values
    if (
        isinstance(source, ScalarType)
        and source.root is Root.DATE
        and pa.types.is_timestamp(target_type)
    ):
        # Arrow goes through seconds, which reach every date; the unit follows.
        return pc.cast(pc.cast(values, pa.timestamp("s")), target_type)
    return pc.cast(values, target_type)
