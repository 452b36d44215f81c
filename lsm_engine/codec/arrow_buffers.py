"""Arrow arrays made of NumPy buffers, for the codecs. Views of arrays are in kernels/arrow_views.py."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs


def validity(valid: Bools | None) -> tuple[pa.Buffer | None, int]:
    """Return Arrow's validity bitmap for a mask, and the number of nulls."""
    if valid is None:
        return None, 0
    nulls = len(valid) - int(np.count_nonzero(valid))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), nulls


def fixed_array(values: npt.NDArray[Any], kind: pa.DataType, valid: Bools | None) -> pa.Array:
    """Return an array of `kind` over the bytes of `values`, which are in its own layout."""
    bitmap, nulls = validity(valid)
    count = len(values) * values.itemsize * 8 // kind.bit_width
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, count, [bitmap, data], nulls)


def bool_array(values: Bools, valid: Bools | None) -> pa.Array:
    """Return a bool array."""
    bitmap, nulls = validity(valid)
    data = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [bitmap, data], nulls)


def binary_array(data: Bytes, offsets: Longs, kind: pa.DataType, valid: Bools | None) -> pa.Array:
    """Return a string or binary array of `kind`; its large sibling if 32-bit offsets overflow."""
    bitmap, nulls = validity(valid)
    large = len(data) > 2_147_483_647
    if large:
        kind = pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
    stored = offsets if large else offsets.astype(np.int32)
    buffers = [bitmap, pa.py_buffer(stored), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, nulls)


def offsets_of(lengths: Longs) -> Longs:
    """Return the n + 1 offsets of n pieces that follow each other."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
