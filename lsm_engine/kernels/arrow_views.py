"""NumPy views of Arrow buffers: no copies, offsets of slices applied."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = pa.Array | pa.ChunkedArray
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]


def one_array(column: Column) -> pa.Array:
    """Return a column as one array; concatenates only if there are several chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # The only chunk is returned as it is, because concatenation would copy it.
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def one_zero(column: Column) -> Column:
    """Return a column with one zero and one NaN, as keys have them: Arrow's joins and groups compare bits."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def fixed_values(array: pa.Array, dtype: npt.DTypeLike, *, per_row: int = 1) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array, `per_row` items of `dtype` for each row.

    What stands at null rows is unspecified.
    """
    data = array.buffers()[1]
    # Arrow may allocate no buffer for an array without values.
    if data is None or len(array) == 0:
        return np.zeros(len(array) * per_row, dtype)
    # A buffer may end in the middle of a value where its writer padded it.
    count = (array.offset + len(array)) * per_row
    return np.frombuffer(data, dtype, count=count)[array.offset * per_row :]


def bool_values(array: pa.Array) -> Bools:
    """Return a bool array as one byte per row; null rows are False."""
    filled = pc.fill_null(array, pa.scalar(value=False)) if array.null_count else array
    values: Bools = np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return values


def valid_rows(array: pa.Array) -> Bools | None:
    """Return which rows are not null, or None when none is null."""
    # A mask of rows that are all valid would cost memory for nothing.
    if array.null_count == 0:
        return None
    valid: Bools = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    return valid


def is_text_or_binary(kind: pa.DataType) -> bool:
    """Whether values of a type are bytes of any length, with offsets of 32 or 64 bits."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def binary_values(array: pa.Array) -> tuple[Bytes, Longs]:
    """Return the bytes of a string or binary array and the n + 1 offsets into them.

    Null rows may cover any bytes. Views and fixed-size binary are cast first.
    """
    kind = array.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not wide and not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        array = array.cast(pa.large_binary())
        wide = True
    _, offsets, data = array.buffers()
    # An empty array may have no offsets, and callers expect one more than rows.
    if offsets is None or len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    raw = np.frombuffer(
        offsets, np.int64 if wide else np.int32, count=array.offset + len(array) + 1
    )
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return content, raw[array.offset :].astype(np.int64, copy=False)


def address_of(array: npt.NDArray[Any]) -> int:
    """Return where a contiguous array's values start in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


def addresses_of(arrays: Sequence[npt.NDArray[Any]]) -> Longs:
    """Return the address of each array. The caller keeps the arrays alive."""
    return np.array([address_of(array) for array in arrays], dtype=np.int64)
