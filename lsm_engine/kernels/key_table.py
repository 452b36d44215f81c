"""The keys of several inputs as compiled loops see them, and how those compare two rows."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bytes, Longs, Words, address_of, addresses_of
from lsm_engine.kernels.compiled import compiled, compiled_with, load_i64, load_u8, load_u64
from lsm_engine.kernels.interpreted_memory import compare_bytes
from lsm_engine.kernels.keys import ONE_WORD, WORDS_AND_BYTES, SortKeys, words_from

_WORD_BYTES = 16


@record
class KeyTable:
    """The keys of several inputs as compiled loops see them. Keeps the buffers alive.

    `addresses` has a row per input: where its second words, data and offsets lie; `tail` is the first
    byte that the words do not hold.
    """

    form: int
    tail: int
    first: tuple[Words, ...]
    second: tuple[Words, ...]
    keys: tuple[SortKeys, ...]
    addresses: NDArray[np.int64]

    @property
    def parts(self) -> tuple[int, int, int]:
        """What compare_tied takes; the table has to outlive the call."""
        return self.form, self.tail, address_of(self.addresses)

    @staticmethod
    def from_keys(keys: Sequence[SortKeys], *, in_order: bool) -> "KeyTable":
        """Return the table of inputs, which are sorted by key if `in_order`."""
        form = max((key.form for key in keys if len(key)), default=ONE_WORD)
        assert all(key.form == form for key in keys if len(key)), "keys of different columns"
        first = [np.ascontiguousarray(key.prefix) for key in keys]
        second = [np.ascontiguousarray(key.second) for key in keys]
        skipped = 0
        if form == WORDS_AND_BYTES:
            skipped = _prefix_of_sorted(keys) if in_order else _prefix_of_any(keys)
        if skipped:
            # What all keys begin with decides nothing: let the words hold what follows.
            pairs = [words_from(key.data, key.offsets, skipped) for key in keys]
            first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        addresses = [
            addresses_of(second),
            addresses_of([key.data for key in keys]),
            addresses_of([key.offsets for key in keys]),
        ]
        return KeyTable(
            form=form,
            tail=_WORD_BYTES + skipped,
            first=tuple(first),
            second=tuple(second),
            keys=tuple(keys),
            addresses=np.stack(addresses, axis=1),
        )


def _prefix_of_sorted(keys: Sequence[SortKeys]) -> int:
    """Return how many bytes all keys of sorted inputs have in common at the front."""
    ends = [key.bytes_of(row) for key in keys if len(key) for row in (0, len(key) - 1)]
    low, high = min(ends), max(ends)
    shared = min(len(low), len(high))
    return next((index for index in range(shared) if low[index] != high[index]), shared)


def _prefix_of_any(keys: Sequence[SortKeys]) -> int:
    """Return how many bytes all keys have in common at the front."""
    filled = [key for key in keys if len(key)]
    pattern = np.frombuffer(filled[0].bytes_of(0), np.uint8)
    return min(_shared_with(pattern, run_keys.data, run_keys.offsets) for run_keys in filled)


def _shared_slices(pattern: memoryview, data: memoryview, offsets: memoryview) -> int:
    shared, text = bytes(pattern), bytes(data)
    for start, stop in pairwise(offsets):
        if not text.startswith(shared, start, stop):
            both = zip(shared, text[start:stop], strict=False)
            count = next(
                (
                    index
                    for index, (left_byte, right_byte) in enumerate(both)
                    if left_byte != right_byte
                ),
                stop - start,
            )
            shared = shared[:count]
    return len(shared)


@compiled_with(interpreted=_shared_slices, work=lambda pattern, data, offsets: len(offsets))
def _shared_with(pattern: Bytes, data: Bytes, offsets: Longs) -> int:
    shared = len(pattern)
    for row in range(len(offsets) - 1):
        start = offsets[row]
        shared = min(shared, offsets[row + 1] - start)
        for index in range(shared):
            if data[start + index] != pattern[index]:
                shared = index
                break
        if shared == 0:
            break
    return shared


@compiled_with(interpreted=compare_bytes)
def _compare_bytes(left_address: int, right_address: int, start: int, stop: int) -> int:
    for index in range(start, stop):
        x, y = load_u8(left_address + index), load_u8(right_address + index)
        if x != y:
            return -1 if x < y else 1
    return 0


@compiled
def compare_tied(form: int, tail: int, addresses: int, a: int, i: int, b: int, j: int) -> int:
    """Compare row i of input a and row j of input b, whose first words are equal.

    Returns a number below, at or above zero.
    """
    if form == ONE_WORD:
        return 0
    at_a, at_b = addresses + 24 * a, addresses + 24 * b
    left_word, right_word = load_u64(load_i64(at_a) + 8 * i), load_u64(load_i64(at_b) + 8 * j)
    if left_word != right_word:
        return -1 if left_word < right_word else 1
    if form != WORDS_AND_BYTES:
        return 0
    offset_a, offset_b = load_i64(at_a + 16) + 8 * i, load_i64(at_b + 16) + 8 * j
    start_a, start_b = load_i64(offset_a), load_i64(offset_b)
    length_a, length_b = load_i64(offset_a + 8) - start_a, load_i64(offset_b + 8) - start_b
    bytes_a, bytes_b = load_i64(at_a + 8) + start_a, load_i64(at_b + 8) + start_b
    order = _compare_bytes(bytes_a, bytes_b, tail, min(length_a, length_b))
    return order if order != 0 else length_a - length_b


@compiled
def compare_tags(form: int, tail: int, addresses: int, left_tag: int, right_tag: int) -> int:
    return compare_tied(
        form,
        tail,
        addresses,
        left_tag >> 32,
        left_tag & 0xFFFFFFFF,
        right_tag >> 32,
        right_tag & 0xFFFFFFFF,
    )
