"""The directory of a partition: `a=1/b=x`, escaped (format section 9).

A path is made of a partition, never the other way round: several partitions may share a directory,
so only the stored row identifies the partition.
"""

import re
from collections.abc import Sequence

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.codec.binary_row import decode_columns
from lsm_engine.codec.java_text import (
    date_text,
    decimal_text,
    floating_text,
    time_text,
    timestamp_text,
)
from lsm_engine.codec.row_slots import scalar
from lsm_engine.schema.types import BINARY, TEXT, TIMESTAMPS, DataField, Root, ScalarType

_UNSAFE = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")
_TICKS_PER_SECOND = {"ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def partition_path(
    stored: bytes,
    fields: Sequence[DataField],
    *,
    default_name: str = "__DEFAULT_PARTITION__",
    legacy_name: bool = True,
) -> str:
    """Return a partition's directory below its table, without a slash at either end; "" if none.

    `stored` is the partition's stored row, `fields` the partition columns in order. NULL, empty and
    blank text become `default_name`. `legacy_name`: values as Java prints its internal values
    (a date is its number of days); otherwise as a cast to text gives them.
    """
    columns = decode_columns(pa.array([stored], pa.binary()), [field.type for field in fields])
    return "/".join(
        escape(field.name)
        + "="
        + escape(_text(column, scalar(field.type), legacy=legacy_name) or default_name)
        for field, column in zip(fields, columns, strict=True)
    )


def escape(text: str) -> str:
    """Return text with what a directory name must not hold as %XX."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _text(column: pa.Array, kind: ScalarType, *, legacy: bool) -> str | None:
    """Return a value's name, or None where the default name stands for it."""
    if column.null_count:
        return None
    if kind.root in TIMESTAMPS:
        ticks = column.cast(pa.int64())[0].as_py()
        per_second = _TICKS_PER_SECOND[column.type.unit]
        nanos = ticks % per_second * (1_000_000_000 // per_second)
        precision = None if legacy else kind.precision or 0
        return timestamp_text(ticks // per_second, nanos, precision)
    if kind.root is Root.DATE:
        days = column.cast(pa.int32())[0].as_py()
        return str(days) if legacy else date_text(days)
    if kind.root is Root.TIME:
        millis = column.cast(pa.int32())[0].as_py()
        return str(millis) if legacy else time_text(millis, kind.precision or 0)
    if kind.root in (Root.FLOAT, Root.DOUBLE):
        return floating_text(column[0].as_py(), single=kind.root is Root.FLOAT)
    return _plain_text(column[0].as_py(), kind, legacy=legacy)


def _plain_text(value: object, kind: ScalarType, *, legacy: bool) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes() if kind.root in BINARY:
            return _binary_text(value, legacy=legacy)
        case str() if kind.root in TEXT:
            return value if value.strip(_BLANKS) else None
        case _ if kind.root is Root.DECIMAL:
            return decimal_text(value)
        case _:
            return str(value)


_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)
"""What Java counts as white space: not the no-break spaces."""


def _binary_text(value: bytes, *, legacy: bool) -> str | None:
    if legacy:
        raise UnsupportedError(
            "a binary partition column has no legacy directory name; set partition.legacy-name=false",
            kind=ErrorKind.UNSUPPORTED_TYPE,
        )
    try:
        text = value.decode()
    except UnicodeDecodeError as cause:
        raise UnsupportedError(
            "a partition's directory is named by its values, and this binary one is no UTF-8 text; "
            "partition by a text column, such as its hexadecimal form",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            value=value.hex(),
        ) from cause
    return text if text.strip(_BLANKS) else None
