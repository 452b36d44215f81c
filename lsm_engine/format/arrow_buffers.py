"""Arrow arrays from NumPy buffers, for the codecs. kernels/arrow_views.py has views of arrays."""

from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words
from lsm_engine.kernels.compiled import compiled, compiled_with


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


# -- Compiled loops that copy pieces of unequal length ---------------------------------------------
#
# Plain NumPy has no such copy.
#
# Every function takes one combination of types, so each is compiled once per machine (about
# half a second for each, then cached beside the sources) and costs a cold start nothing but
# loading.


Values = TypeVar("Values", bound=npt.NDArray[Any])


def read_only(values: Values) -> Values:
    """Return a view that cannot be written: compiled code is one per (type, writeable) pair."""
    view: Any = values.view()
    view.flags.writeable = False
    return cast("Values", view)


def _copy_slices(source: Any, starts: Any, offsets: Any, target: Any) -> None:
    for row, begin in enumerate(starts):
        place, end = offsets[row], offsets[row + 1]
        target[place:end] = source[begin : begin + end - place]


@compiled_with(interpreted=_copy_slices, work=lambda source, starts, offsets, target: len(starts))
def copy_pieces(source: Bytes, starts: Longs, offsets: Longs, target: Bytes) -> None:
    """Copy piece i from `source[starts[i]:]` to `target[offsets[i]:offsets[i + 1]]`.

    The caller has checked every bound.
    """
    for row in range(len(starts)):
        begin = starts[row]
        end = offsets[row + 1]
        place = offsets[row]
        while place < end:
            target[place] = source[begin]
            place += 1
            begin += 1


class Pieces(NamedTuple):
    """A string or binary column: its bytes, n + 1 offsets, and which values are present."""

    source: Bytes
    offsets: Longs
    present: Bools


@compiled
def place_pieces(
    pieces: Pieces,
    target: Bytes,
    row_starts: Longs,
    slot_offset: int,
    cursors: Longs,
) -> None:
    """Write one string or binary column into rows: short values into the slot, long ones behind.

    `cursors[i]` is where row i's variable part goes on, counted from the row's start; it moves.
    The target is zeroed.
    """
    source, offsets, present = pieces
    for row in range(len(row_starts)):
        if not present[row]:
            continue
        begin = offsets[row]
        length = offsets[row + 1] - begin
        slot = row_starts[row] + slot_offset
        if length <= 7:
            place = slot
            target[slot + 7] = np.uint8(0x80 + length)
        else:
            cursor = cursors[row]
            place = row_starts[row] + cursor
            for byte in range(4):
                target[slot + byte] = np.uint8((length >> (8 * byte)) & 0xFF)
                target[slot + 4 + byte] = np.uint8((cursor >> (8 * byte)) & 0xFF)
            cursors[row] = cursor + ((length + 7) & ~7)
        for byte in range(length):
            target[place + byte] = source[begin + byte]


def gather_pieces(source: Bytes, starts: Longs, lengths: Longs) -> tuple[Bytes, Longs]:
    """Return pieces of `source` one behind the other, and their n + 1 offsets."""
    offsets = offsets_of(lengths)
    target = np.empty(int(offsets[-1]), np.uint8)
    copy_pieces(read_only(source), starts, offsets, target)
    return target, offsets


def words_at(data: Bytes, positions: Longs) -> Words:
    """Return the little-endian 8-byte words at any byte positions. The caller has checked bounds."""
    if len(positions) == 0:
        return np.zeros(0, np.uint64)
    # A word begins at each byte; sliding_window_view takes longer than the words of few rows.
    windows: Words = np.ndarray((len(data) - 7,), "<u8", np.ascontiguousarray(data), strides=(1,))
    return windows[positions]
