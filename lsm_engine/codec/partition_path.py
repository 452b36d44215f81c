"""The directory of a partition: `a=1/b=x`, escaped (format section 9).

A path is made of a partition, never the other way round: several partitions may share a directory,
so only the stored row identifies the partition.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

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


def partition_paths(
    columns: Sequence[pa.Array],
    fields: Sequence[DataField],
    *,
    default_name: str = "__DEFAULT_PARTITION__",
    legacy_name: bool = True,
) -> list[str]:
    """Return partitions' directories below their table, without a slash at either end.

    `columns` are the values of the partition columns `fields`, in order; without any it is the one of the
    table, "". NULL, empty and blank text become `default_name`. `legacy_name`: values as Java prints its
    internal values (a date is its number of days); otherwise as a cast to text gives them.
    """
    paths = [""] * (len(columns[0]) if columns else 1)
    for field, column in zip(fields, columns, strict=True):
        texts = _texts(column, scalar(field.type), legacy=legacy_name)
        name = escape(field.name)
        parts = (f"{name}={escape(text or default_name)}" for text in texts)
        paths = [
            f"{path}/{part}" if path else part for path, part in zip(paths, parts, strict=True)
        ]
    return paths


def partition_path(
    stored: bytes,
    fields: Sequence[DataField],
    *,
    default_name: str = "__DEFAULT_PARTITION__",
    legacy_name: bool = True,
) -> str:
    """Return the directory of one stored partition, as `partition_paths` does."""
    row = decode_columns(pa.array([stored], pa.binary()), [field.type for field in fields])
    return partition_paths(row, fields, default_name=default_name, legacy_name=legacy_name)[0]


def escape(text: str) -> str:
    """Return text with what a directory name must not hold as %XX."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _texts(column: pa.Array, kind: ScalarType, *, legacy: bool) -> list[str | None]:
    """Return the values' names; None where the default name stands for one."""
    spell: Callable[..., str | None]
    if kind.root in TIMESTAMPS:
        spell = partial(_timestamp_text, kind, column.type.unit, legacy=legacy)
        column = column.cast(pa.int64())
    elif kind.root is Root.DATE:
        spell, column = str if legacy else date_text, column.cast(pa.int32())
    elif kind.root is Root.TIME:
        spell = str if legacy else partial(time_text, precision=kind.precision or 0)
        column = column.cast(pa.int32())
    elif kind.root in (Root.FLOAT, Root.DOUBLE):
        spell = partial(floating_text, single=kind.root is Root.FLOAT)
    else:
        spell = partial(_plain_text, kind=kind, legacy=legacy)
    return [None if value is None else spell(value) for value in column.to_pylist()]


def _timestamp_text(kind: ScalarType, unit: str, ticks: int, *, legacy: bool) -> str:
    per_second = _TICKS_PER_SECOND[unit]
    nanos = ticks % per_second * (1_000_000_000 // per_second)
    return timestamp_text(ticks // per_second, nanos, None if legacy else kind.precision or 0)


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
