"""Bloom filters: the bytes of every client, no false negative, false positives as configured."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format.bloom import bloom_size, build_bloom, key_hashes, stored_bloom


def pieces(keys):
    offsets = np.cumsum([0, *map(len, keys)]).astype(np.int64)
    return np.frombuffer(b"".join(keys), np.uint8), offsets


def rotl(value, by):
    return (value << by | value >> (32 - by)) & 0xFFFFFFFF


def slow_hash(key):
    """The hash as format section 17 words it, one byte at a time."""
    whole = len(key) - len(key) % 4
    words = [int.from_bytes(key[at : at + 4], "little") for at in range(0, whole, 4)]
    words += [int.from_bytes([byte], signed=True) & 0xFFFFFFFF for byte in key[whole:]]
    mixed = 42
    for word in words:
        word = rotl(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        mixed = (rotl(mixed ^ word, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    mixed ^= len(key)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def slow_bits(keys, entries, fpp):
    size = -(-math.trunc(-entries * math.log(fpp) / math.log(2) ** 2) // 8) or 1
    bits, probes = bytearray(size), max(1, math.floor(8 * size / entries * math.log(2) + 0.5))
    for key in keys:
        first = slow_hash(key)
        for probe in range(1, probes + 1):
            at = (first + probe * ((first & 0xFFFFFFFF) >> 16)) & 0xFFFFFFFF
            at = at - (1 << 32) if at >> 31 else at
            at = (~at if at < 0 else at) % (8 * size)
            bits[at // 8] |= 1 << at % 8
    return bytes(bits)


@given(st.lists(st.binary(max_size=23), min_size=1, max_size=40))
def test_hashes_equal_the_slow_ones(keys):
    assert key_hashes(*pieces(keys)).tolist() == [slow_hash(key) for key in keys]


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=60), st.sampled_from([0.5, 0.05, 1e-9]))
def test_bits_equal_the_slow_ones_and_hold_every_key(keys, fpp):
    hashes = key_hashes(*pieces(keys))
    made = build_bloom(hashes, entries=len(keys), fpp=fpp)
    assert made.bits.tobytes() == slow_bits(keys, len(keys), fpp)
    assert made.may_hold(hashes).all()


@pytest.mark.parametrize("fpp", [0.1, 0.05, 0.01, 0.001])
def test_a_million_keys(fpp):
    """No false negative; the rate of false positives is at most twice the one asked for."""
    keys = np.arange(2_000_000, dtype="<i8")
    data, offsets = keys.view(np.uint8), np.arange(len(keys) + 1, dtype=np.int64) * 8
    hashes = key_hashes(data, offsets)
    made = build_bloom(hashes[:1_000_000], entries=1_000_000, fpp=fpp)
    assert made.may_hold(hashes[:1_000_000]).all()
    assert made.may_hold(hashes[1_000_000:]).mean() <= 2 * fpp


def test_sizes():
    assert bloom_size(1, 0.9) == 1
    assert bloom_size(1_000_000, 0.05) == -(
        -math.trunc(1e6 * -math.log(0.05) / math.log(2) ** 2) // 8
    )
    assert bloom_size(2**40, 1e-9) == 1 << 28


@pytest.mark.parametrize(("data", "entries"), [(b"", 1), (b"\1", 0), (b"\1", -5)])
def test_foreign_bits_are_refused(data, entries):
    with pytest.raises(CorruptFileError, match=r"f\.sst"):
        stored_bloom(data, entries=entries, file_name="f.sst")
