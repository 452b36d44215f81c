"""Record keys asked for in the bits of bloom filters, while these are base64 (codec/record_key_bloom)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lsm_engine.base.record import record
from lsm_engine.codec.bloom import read_only_longs
from lsm_engine.codec.byte_copies import read_only
from lsm_engine.kernels.arrow_views import Bytes, Longs, address_of
from lsm_engine.kernels.compiled import compiled, load_i8, load_u32

Chains = npt.NDArray[np.int32]
Places = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int32]
_FIRST_HASHES = 8
_FIRST_PLACES = 2
"""Bits of each key that lie side by side in the order of the first: few keys are asked for a third."""


@record
class RecordKeyBloom:
    """One or more rows of bits of one size. A key may be there if one row has all its bits.

    A row is the base64 text that its bits are in, from some multiple of four letters on, and how many
    bytes come before them there (0 to 2). Decoding a text takes longer than asking it for 100,000 keys.
    """

    bit_count: int
    hash_count: int
    rows: tuple[tuple[Bytes, int], ...]

    def remaining(self, keys: "RecordKeys", candidates: Longs) -> Longs:
        """Return which of some keys, by ascending numbers, may be there.

        None is left only if none is there by all its bits; else the first eight of each decide.
        """
        asks_most = 4 * len(candidates) > len(keys)
        parts = []
        for text, before in self.rows:
            placed = keys.placed(self.bit_count, before)
            order, firsts = (
                placed.in_order if asks_most else (candidates, placed.firsts_of(candidates))
            )
            hash_count = min(self.hash_count, _FIRST_HASHES)
            hits = np.empty(len(order), np.int32)
            hits = hits[: _probe(text, hash_count, placed.places, firsts, order, hits)]
            hits.sort()
            if asks_most and len(candidates) < len(keys):
                places_in_candidates = np.minimum(
                    np.searchsorted(candidates, hits), max(len(candidates) - 1, 0)
                )
                hits = hits[candidates[places_in_candidates] == hits]
            if self.hash_count > _FIRST_HASHES:
                shape = np.array([self.bit_count, self.hash_count, before], np.int64)
                data = address_of(keys.data)
                count = _confirm(text, shape, keys.first, data, keys.offsets, hits)
                hits = hits[:count]
            parts.append(hits)
        return np.unique(np.concatenate(parts)).astype(np.int64)


class RecordKeys:
    """Record keys as filters are asked for them: their bytes, and the first hashes of each.

    Most absent keys are known by their first two or three bits; hashes beyond the eighth are made until
    one key has all its bits. For one thread.
    """

    def __init__(self, data: Bytes, offsets: Longs) -> None:
        self.data = data
        self.offsets = read_only_longs(offsets)
        self.first = hash_chains(data, offsets, _FIRST_HASHES)
        self._bit_count = 0
        self._placed: dict[int, PlacedKeys] = {}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def placed(self, bit_count: int, before: int) -> "PlacedKeys":
        """Return where the first bits of keys are in such a row of a filter."""
        if self._bit_count != bit_count:
            self._bit_count, self._placed = bit_count, {}
        if before not in self._placed:
            places = np.empty(self.first.shape, np.uint32)
            _place_all(self.first, bit_count, before, places)
            self._placed[before] = PlacedKeys(places)
        return self._placed[before]


class PlacedKeys:
    """Where the first bits of keys are in rows of one shape, as `_place` has it: a row per hash."""

    def __init__(self, places: "Places") -> None:
        self.places = places
        self._in_order = np.arange(places.shape[1], dtype=np.int64), places[:_FIRST_PLACES]
        self._asked = 0

    @property
    def in_order(self) -> "tuple[Longs, Places]":
        """All keys, and their first places: ascending from the second time on, as memory is read best."""
        self._asked += 1
        if self._asked == 2:
            order = np.argsort(self.places[0])
            self._in_order = order, self.firsts_of(order)
        return self._in_order

    def firsts_of(self, keys: Longs) -> "Places":
        """Return the first places of some keys."""
        return np.take(self.places[:_FIRST_PLACES], keys, axis=1)


def hash_chains(data: Bytes, offsets: Longs, hash_count: int) -> Chains:
    """Return the hashes of each key: a row of first hashes, one of second ones, and so on."""
    chains = np.empty((hash_count, len(offsets) - 1), np.int32)
    _chain(address_of(data), read_only_longs(offsets), chains)
    return chains


def _six_bits() -> Bytes:
    table = np.full(256, 255, np.uint8)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table[np.frombuffer(letters, np.uint8)] = np.arange(64)
    return table


_SIX_BITS = read_only(_six_bits())


# Each loop compiles in about 0.3 s.


@compiled
def _murmur(data: int, start: Any, stop: Any, seed: np.uint32) -> np.uint32:
    mult = np.uint32(0x5BD1E995)
    aligned_stop = start + ((stop - start) & ~3)
    mixed = np.uint32(seed ^ np.uint32(stop - start))
    for index in range(start, aligned_stop, 4):
        word = np.uint32(np.uint32(load_u32(data + index)) * mult)
        word = np.uint32(np.uint32(word ^ (word >> np.uint32(24))) * mult)
        mixed = np.uint32(np.uint32(mixed * mult) ^ word)
    tail_size = stop - aligned_stop
    if tail_size > 0:
        for byte in range(tail_size):
            # The last byte unshifted, those before it further up.
            piece = np.uint32(np.int32(load_i8(data + stop - 1 - byte)))
            mixed = np.uint32(mixed ^ np.uint32(piece << np.uint32(8 * byte)))
        mixed = np.uint32(mixed * mult)
    mixed = np.uint32(np.uint32(mixed ^ (mixed >> np.uint32(13))) * mult)
    return np.uint32(mixed ^ (mixed >> np.uint32(15)))


@compiled
def _chain(data: int, offsets: Longs, chains: Chains) -> None:
    for row in range(chains.shape[1]):
        seed = np.uint32(0)
        for step in range(chains.shape[0]):
            seed = _murmur(data, offsets[row], offsets[row + 1], seed)
            chains[step, row] = np.int32(seed)


@compiled
def _place(hashed: Any, bit_count: int, before: int) -> Any:
    """Return where a hash's bit is in a base64 text: the number of its letter, times 8, and the shift."""
    bit = np.int64(np.uint32(abs(np.int64(hashed)))) % bit_count
    bit_offset = 8 * (before + (bit >> 3)) + 7 - (bit & 7)
    return np.uint32(((bit_offset // 6) << 3) | (5 - bit_offset % 6))


@compiled
def _place_all(chains: Chains, bit_count: int, before: int, places: Places) -> None:
    for step in range(chains.shape[0]):
        for key in range(chains.shape[1]):
            places[step, key] = _place(chains[step, key], bit_count, before)


@compiled
def _bit(text: Bytes, place: Any) -> Any:
    letter = text[place >> np.uint32(3)]
    return np.int64((_SIX_BITS[letter] >> np.uint8(place & np.uint32(7))) & np.uint8(1))


@compiled
def _probe(
    text: Bytes,
    hash_count: int,
    places: Places,
    firsts: Places,
    order: Longs,
    survivors: Numbers,
) -> Any:
    # Bit by bit for all keys, without a branch that depends on one: a wrong guess costs more than a bit.
    count = np.int64(0)
    for row in range(len(order)):
        survivors[count] = row
        count += _bit(text, firsts[0, row])
    for step in range(1, hash_count):
        previous_count, count = count, np.int64(0)
        for number in range(previous_count):
            survivors[count] = row = survivors[number]
            place = firsts[step, row] if step < len(firsts) else places[step, order[row]]
            count += _bit(text, place)
    for number in range(count):
        survivors[number] = order[survivors[number]]
    return count


@compiled
def _confirm(
    text: Bytes, shape: Longs, first: Chains, data: int, offsets: Longs, survivors: Numbers
) -> Any:
    bit_count, hash_count, before = shape[0], shape[1], shape[2]
    chain_count = first.shape[0]
    count = np.int64(0)
    for number in range(len(survivors)):
        survivors[count] = key = survivors[number]
        all_set = np.int64(1)
        seed = np.uint32(first[chain_count - 1, key])
        # One key is enough for the file to be read, and reading says it of the others for less.
        for _ in range(chain_count, hash_count if count == 0 else chain_count):
            seed = _murmur(data, offsets[key], offsets[key + 1], seed)
            all_set = _bit(text, _place(np.int32(seed), bit_count, before))
            if not all_set:
                break
        count += all_set
    return count
