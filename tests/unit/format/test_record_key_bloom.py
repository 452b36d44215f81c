"""Bloom filters of record keys: bytes that Hadoop's classes, which Hudi's are, wrote and would read."""

import base64

import numpy as np
import pytest

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.format.bloom import (
    BLOOM_KEY,
    MAX_KEY,
    MIN_KEY,
    OLDER_BLOOM_KEY,
    TYPE_KEY,
    RecordKeys,
    bit_places,
    build_record_key_bloom,
    decode_record_key_bloom,
    filter_shape,
    hash_chains,
    read_key_footer,
)
from lsm_engine.options.modes import BloomFilterType
from tests.kernel_forms import FORMS, in_form

# What the BloomFilter (287 bits, 7 hashes, murmur) and DynamicBloomFilter (72, 10, murmur, 5 a row)
# of hadoop-client-api 3.4 wrote after these keys were added in this order, as base64.
KEYS = ["a", "ab", "abc", "abcd", "id:1,region:eu", "über", "key-00000001", "ÿþý"]
SIMPLE = b"/////wAAAAcBAAABHwAIgECCAABgCRnlAgAC0AYhiBAUQjBACJOAAgCMEIQgoBAgAQ=="
DYNAMIC = b"/////wAAAAoBAAAASAAAAAUAAAADAAAAAv////8AAAAKAQAAAEjsO8QMYhwT2Iv/////AAAACgEAAABIJ6TCsOGiAYFE"  # fmt: skip


def pieces(keys):
    stored = [key.encode() for key in keys]
    offsets = np.cumsum([0, *map(len, stored)]).astype(np.int64)
    return np.frombuffer(b"".join(stored), np.uint8), offsets


def may_hold(bloom, keys):
    every = np.arange(len(keys))
    return np.isin(every, bloom.remaining(RecordKeys(*pieces(keys)), every)).tolist()


@pytest.mark.parametrize(
    ("stored", "kind"), [(SIMPLE, BloomFilterType.SIMPLE), (DYNAMIC, BloomFilterType.DYNAMIC_V0)]
)
def test_foreign_filters_hold_their_keys(stored, kind):
    bloom = decode_record_key_bloom(stored, kind, file_name="f")
    assert all(may_hold(bloom, KEYS))
    assert sum(may_hold(bloom, [f"absent-{n}" for n in range(1000)])) < 120


def test_our_bytes_are_theirs():
    """The same keys, bits and hashes give the same bytes."""
    ours = np.zeros(36, np.uint8)
    for place in bit_places(hash_chains(*pieces(KEYS), 7), 287).reshape(-1).tolist():
        ours[place // 8] |= 1 << place % 8
    assert base64.b64decode(SIMPLE)[13:] == ours.tobytes()


@pytest.mark.parametrize("kind", list(BloomFilterType))
@pytest.mark.parametrize(
    "count", [300_000, pytest.param(2_000_000, marks=pytest.mark.sweep)], ids=str
)
def test_a_million_keys(kind, count):
    keys = [f"k{n}" for n in range(count)]
    data, offsets = pieces(keys)
    half = len(keys) // 2
    stored = build_record_key_bloom(
        data, offsets[: half + 1], kind,
        entries=half if kind is BloomFilterType.SIMPLE else 2 * count // 5,
        fpp=0.001, max_entries=half,
    )  # fmt: skip
    bloom = decode_record_key_bloom(base64.b64encode(stored), kind, file_name="f")
    found = np.array(may_hold(bloom, keys))
    assert found[:half].all()
    rows = len(bloom.rows)
    assert rows == (1 if kind is BloomFilterType.SIMPLE else 2)
    # Ten hashes: once one key has all its bits, eight are looked at of the others.
    assert found[half:].mean() <= 2 * 0.001 * 4 * rows
    assert (
        np.mean([any(may_hold(bloom, [key])) for key in keys[half : half + 5_000]])
        <= 2 * 0.001 * rows
    )


def footer(**changes):
    members = {BLOOM_KEY: SIMPLE, TYPE_KEY: b"SIMPLE", MIN_KEY: b"a", MAX_KEY: b"z"}
    return {**members, **changes}


def test_absence_says_nothing():
    for members in (None, {}, {MIN_KEY: b"a"}):
        said = read_key_footer(members, file_name="f")
        assert (said.lowest, said.highest, said.bloom) == (None, None, None)


def test_the_older_name_of_the_filter_in_a_footer_is_read():
    members = footer()
    members[OLDER_BLOOM_KEY] = members.pop(BLOOM_KEY)
    assert read_key_footer(members, file_name="f").bloom is not None


def test_hashes_are_counted_up_as_hudi_does():
    assert filter_shape(60_000, 1e-9) == (2_587_966, 30)
    assert filter_shape(10, 0.1)[1] == 4  # 3.3, which would round down


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({**footer(), TYPE_KEY: b"ROARING"}, UnsupportedError),
        ({**footer(), MIN_KEY: b"zz"}, CorruptFileError),
        ({**footer(), BLOOM_KEY: SIMPLE[:-8]}, CorruptFileError),
        ({**footer(), BLOOM_KEY: SIMPLE[:9]}, CorruptFileError),
        ({**footer(), BLOOM_KEY: b"not base64!"}, CorruptFileError),
        ({**footer(), BLOOM_KEY: b""}, CorruptFileError),
        ({**footer(), BLOOM_KEY: SIMPLE, TYPE_KEY: b"DYNAMIC_V0"}, CorruptFileError),
    ],
)
def test_bad_footers_name_the_file(members, error):
    with pytest.raises(error, match=r"some\.parquet"):
        read_key_footer(members, file_name="some.parquet")


def test_every_truncation_is_noticed():
    raw = base64.b64decode(DYNAMIC)
    for size in range(len(raw)):
        with pytest.raises(CorruptFileError):
            decode_record_key_bloom(
                base64.b64encode(raw[:size]), BloomFilterType.DYNAMIC_V0, file_name="f"
            )


def bits_held(bloom, stored, kind, keys, hash_count):
    """Which keys have their first bits in one row, bit by bit of the decoded text."""
    places = bit_places(hash_chains(*pieces(keys), hash_count), bloom.bit_count)
    size = -(-bloom.bit_count // 8)
    begin = 13 if kind is BloomFilterType.SIMPLE else 13 + 12 + 13
    held = set()
    for at in range(begin, len(stored), 13 + size):
        row = np.frombuffer(stored, np.uint8, size, at)
        bits = row[places >> 3] >> (places & 7).astype(np.uint8) & 1
        held |= set(np.flatnonzero(bits.all(axis=0)).tolist())
    return held


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(12))
def test_keys_left_are_those_of_plain_probing(seed, form):
    rng = np.random.default_rng(seed)
    kind = list(BloomFilterType)[seed % 2]
    count = int(rng.integers(1, 300))
    keys = [str(n).zfill(rng.integers(1, 20)) for n in rng.permutation(2 * count)]
    kept = pieces(keys[: int(rng.integers(1, count + 1))])
    stored = build_record_key_bloom(
        *kept, kind, entries=int(rng.integers(1, count + 1)),
        fpp=float(rng.choice([0.5, 0.01, 1e-9])), max_entries=int(rng.integers(1, 2 * count)),
    )  # fmt: skip
    with in_form(form):
        bloom = decode_record_key_bloom(base64.b64encode(stored), kind, file_name="f")
        known = RecordKeys(*pieces(keys))
        for share in (0.1, 1, 0.6, 1, 0.2):  # the second large question finds keys in another order
            asked = np.flatnonzero(rng.random(len(keys)) < share)
            left = set(bloom.remaining(known, asked).tolist())
            whole = bits_held(bloom, stored, kind, keys, bloom.hash_count) & set(asked.tolist())
            eight = bits_held(bloom, stored, kind, keys, min(8, bloom.hash_count))
            assert whole <= left <= eight & set(asked.tolist())
            assert bool(left) == bool(whole)


@pytest.mark.parametrize("form", FORMS)
def test_every_letter_that_is_not_base64_is_noticed(form):
    stored = build_record_key_bloom(
        *pieces(KEYS), BloomFilterType.SIMPLE, entries=100, fpp=0.01, max_entries=1
    )
    text = bytearray(base64.b64encode(stored))
    good = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    for letter in set(range(256)) - good:
        text[40] = letter
        with in_form(form), pytest.raises(CorruptFileError):
            decode_record_key_bloom(bytes(text), BloomFilterType.SIMPLE, file_name="f")
    for letter in good:
        text[40] = letter
        with in_form(form):
            decode_record_key_bloom(bytes(text), BloomFilterType.SIMPLE, file_name="f")
